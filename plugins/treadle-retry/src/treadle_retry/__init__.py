"""Failed model calls, tried again: when it helps, as late as the provider asks, and within a budget.

`decide` chooses in plain code; the kernel waits and logs each attempt. What a provider's error means is not known
here: its kind says so. A fallback to another model is asked in `around_model`, and is noted in the log.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import attrs

from treadle.plugin import (
    Assembly,
    Json,
    Model,
    OpenStack,
    ProviderError,
    Reply,
    Request,
    TurnContext,
    UsageError,
    hookimpl,
)
from treadle.plugin import Retry as Again

__all__ = ["Retry", "RetrySettings"]

TRANSIENT = frozenset({"rate_limit", "overloaded", "server", "interrupted", "timeout"})
"""Kinds that pass by themselves. Quota, access, unknown models and refused requests do not."""

ONCE = frozenset({"tool_use_failed"})
"""Kinds that are the model's own slip: it may do better, once."""

ELSEWHERE = TRANSIENT | {"quota"}
"""Kinds that another provider need not share."""

PASSED_ON = ("max_tokens", "stop")
"""Parameters that mean the same to every model; the others are the first model's own."""


def _chains(value: Mapping[str, Iterable[str]]) -> Mapping[str, tuple[str, ...]]:
    """Fallbacks as tuples. Raises `ValueError` naming the entry that is wrong."""
    out: dict[str, tuple[str, ...]] = {}
    for ref, others in value.items():
        chain = (others,) if isinstance(others, str) else tuple(others)
        if not all(isinstance(each, str) and each for each in chain):
            raise ValueError(f'the fallbacks of "{ref}" must be references such as "anthropic:claude-opus"')
        out[ref] = chain
    return out


@attrs.frozen(kw_only=True)
class RetrySettings:
    """Settings of `Retry`. How often is the agent's `Limits.max_attempts`.

    The wait begins with `first_seconds`, doubles with each failure in a step and ends at `max_seconds`; a share of it,
    up to `jitter`, is left to chance, so that clients do not come back together. A provider's own hint is never cut
    short; one beyond `max_seconds` is not waited for. `budget_seconds` bounds all waits of a turn.

    `fallbacks` names models to go to instead: by reference, in order, `*` for every model. The next one is asked after
    `fallback_failures` failures in a row, or at once if the quota is spent, and answers to the end of the turn.
    """

    first_seconds: float = 1.0
    max_seconds: float = 60.0
    budget_seconds: float = 180.0
    jitter: float = 0.5
    fallbacks: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict, converter=_chains)
    fallback_failures: int = 2

    def __attrs_post_init__(self) -> None:
        for name in ("first_seconds", "max_seconds", "budget_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, not {getattr(self, name)!r}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be from 0 to 1, not {self.jitter!r}")
        if self.fallback_failures < 1:
            raise ValueError(f"fallback_failures must be at least 1, not {self.fallback_failures!r}")


@attrs.define
class Progress:
    """What a turn went through so far.

    `failures` in a row, and `slips` among them, of the model that is asked in this step: the one at `place` of the
    chain, 0 for the agent's own.
    """

    step: int = 0
    failures: int = 0
    slips: int = 0
    waited_seconds: float = 0.0
    place: int = 0


@attrs.frozen(kw_only=True)
class Verdict:
    """Ask again after `after_seconds`; `moves` says that the next model of the chain is asked."""

    after_seconds: float
    moves: bool = False


def decide(
    error: ProviderError, progress: Progress, settings: RetrySettings, others: int, chance: float
) -> Verdict | None:
    """Whether to ask again, and when; None gives up.

    `progress` counts this failure already. `others` is how many models of the chain are left, `chance` a number from
    0 to 1 that places the wait within its jitter.
    """
    may_move = bool(others) and error.kind in ELSEWHERE
    if may_move and (error.kind == "quota" or progress.failures >= settings.fallback_failures):
        return Verdict(after_seconds=0.0, moves=True)
    if error.kind not in TRANSIENT and not (error.kind in ONCE and progress.slips == 1):
        return None
    seconds = _wait(error.retry_after_seconds, progress.failures, settings, chance)
    if seconds is None or progress.waited_seconds + seconds > settings.budget_seconds:
        return Verdict(after_seconds=0.0, moves=True) if may_move else None
    return Verdict(after_seconds=seconds)


def _wait(hint: float | None, failures: int, settings: RetrySettings, chance: float) -> float | None:
    """Seconds to wait, or None where the provider asks for more than is allowed."""
    grown = min(settings.first_seconds * 2.0 ** min(failures - 1, 60), settings.max_seconds)
    if hint is None:
        return grown * (1 - settings.jitter * chance)
    if hint > settings.max_seconds:
        return None
    return hint + settings.jitter * chance * min(settings.first_seconds, hint)


class Retry:
    """Acts on every model call of a stack that names it. One instance serves one open stack."""

    Settings = RetrySettings
    ambient = True

    def __init__(self, settings: RetrySettings | None = None) -> None:
        self._settings = settings or RetrySettings()
        self._stack: OpenStack | None = None

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, stack: OpenStack) -> AsyncIterator[None]:
        """Know the stack while it is open: it opens the models of the fallbacks."""
        self._stack = stack
        try:
            yield
        finally:
            self._stack = None

    @hookimpl
    def on_model_error(self, error: ProviderError, context: TurnContext[Json]) -> Again | None:
        progress = _progress(context)
        if progress.step != context.step:
            progress.step, progress.failures, progress.slips = context.step, 0, 0
        progress.failures += 1
        progress.slips += error.kind in ONCE
        chain = (_ref(context), *self._chain(context))
        others = len(chain) - 1 - progress.place
        verdict = decide(error, progress, self._settings, others, random.random())
        if verdict is None:
            return None
        progress.waited_seconds += verdict.after_seconds
        if verdict.moves:
            left, asked = chain[progress.place : progress.place + 2]
            context.note("fallback", {"from": left, "to": asked, "kind": error.kind})
            progress.place, progress.failures, progress.slips = progress.place + 1, 0, 0
        return Again(after_seconds=verdict.after_seconds)

    @hookimpl
    async def around_model(
        self, call_next: Callable[[Request], Awaitable[Reply]], request: Request, context: TurnContext[Json]
    ) -> Reply:
        place = _progress(context).place
        if not place:
            return await call_next(request)
        if self._stack is None:
            raise UsageError("A fallback was asked for outside an open stack. Put Retry into the stack that runs.")
        context.hold_deltas()  # another model's deltas are not the kernel's to stream; its words follow whole
        params = {name: value for name, value in request.params.items() if name in PASSED_ON}
        model = self._stack.open_model(self._chain(context)[place - 1])
        return await _answer(model, attrs.evolve(request, params=params))

    def _chain(self, context: TurnContext[Json]) -> tuple[str, ...]:
        ref = _ref(context)
        chain = self._settings.fallbacks.get(ref, self._settings.fallbacks.get("*", ()))
        return tuple(each for each in chain if each != ref)


def _ref(context: TurnContext[Json]) -> str:
    model = context.agent.model
    return model if isinstance(model, str) else model.ref


def _progress(context: TurnContext[Json]) -> Progress:
    found: Progress = context.slot("retry").setdefault("progress", Progress())
    return found


async def _answer(model: Model, request: Request) -> Reply:
    """The whole reply of another model. A cancel closes its stream."""
    assembly = Assembly()
    async with model.stream(request) as pieces:
        async for piece in pieces:
            assembly.feed(piece)
    reply = assembly.reply()
    if reply is None:
        message = f"The stream of {model.ref} ended before the reply was complete."
        raise ProviderError("interrupted", message, partial=assembly.parts)
    if reply.finish == "fault":
        raise ProviderError("tool_use_failed", f"{model.ref} made a call that could not be read.", partial=reply.parts)
    return reply
