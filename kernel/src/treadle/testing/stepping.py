"""Step through a turn: every effect crosses one boundary, where a test can hold it and let it go in any order.

The boundaries are wrappers around a model, tools, a stack's hooks and a store's logs. The kernel's own code stays as it
is and is not slowed. The stepper knows nothing of turns: what it holds is for the test to read.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Literal, get_args

import anyio
import attrs
from anyio.lowlevel import checkpoint

from treadle.agent import Agent
from treadle.context import ToolAnswer
from treadle.driver import Driver
from treadle.errors import UsageError
from treadle.events import Event
from treadle.hooks import JOINS
from treadle.host import Row
from treadle.model import Model, Piece, Request
from treadle.stack import Stack
from treadle.store import Capabilities, Log, Store
from treadle.tools import Tool

EffectKind = Literal["model", "tool", "hook", "append", "sync"]
EFFECT_KINDS: frozenset[str] = frozenset(get_args(EffectKind))

_TURNS_TO_REST = 25
_SHAKEN_TURNS = 4


@attrs.frozen(eq=False)
class Effect:
    """One effect that waits at the boundary.

    `kind` and `name` say what: `model` and the piece that has come ("TextDelta", or the class of the error), `tool` and
    "add starts" or "add ends", `hook` and "before_step of guard", `append` and the events' types, `sync` and "".
    """

    kind: EffectKind
    name: str
    gate: anyio.Event = attrs.field(factory=anyio.Event, repr=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


class Stepper:
    """Holds the effects of what runs on its stacks until the test releases them.

        stepper = Stepper()
        agent = stepper.agent(Agent(model=ScriptModel([call("add", a=1, b=2), "3"]), tools=[add]))
        async with anyio.create_task_group() as group, stepper.stack([Guard()]).open(agent) as driver:
            group.start_soon(driver.prompt, "1 + 2?")  # a task of its own: its append is held already
            await stepper.settle()
            assert str(stepper.waiting[0]) == "append session/open, inbox/put, turn/start"
            await stepper.release()

    `hold` says which kinds wait (all, unless told otherwise); the others pass. `shake`, a seeded `random.Random`, lets
    what passes wait for a few turns of the event loop, so that each seed is another interleaving.

    Times in the log come from `clock`, which stands still until `advance`. Deadlines and `sleep` keep the event loop's
    clock: an append that is held longer than `store_seconds` is a store fault, a body held longer than its time-out
    times out. Sync tools run on the event loop, not in a thread, so that their order is a matter of the stepper alone.
    Sync hooks (`on_delta`, `on_status`, `open_model` ...) and `lifespan` are never held.
    """

    def __init__(self, *, hold: Collection[EffectKind] | None = None, shake: Random | None = None) -> None:
        self.waiting: list[Effect] = []
        """The effects that wait, in the order in which they came."""
        self.now = 1_700_000_000.0
        self._held = frozenset(EFFECT_KINDS if hold is None else hold)
        self._shake = shake
        self._outside = 0
        self._back = anyio.Event()
        if odd := sorted(self._held - EFFECT_KINDS):
            raise UsageError(f"A stepper holds {', '.join(sorted(EFFECT_KINDS))}; {odd[0]!r} is none of them.")

    # --- what the test does --------------------------------------------------------------------------------

    async def release(self, n: int = 0) -> Effect:
        """Let the nth waiting effect happen, and return when everything waits again. Returns that effect.

        Raises `UsageError` if no such effect waits.
        """
        if not -len(self.waiting) <= n < len(self.waiting):
            names = "; ".join(str(each) for each in self.waiting) or "nothing"
            raise UsageError(f"No effect {n} waits. Waiting: {names}. Await stepper.settle() first?")
        effect = self.waiting.pop(n)
        effect.gate.set()
        await self.settle()
        return effect

    async def settle(self) -> None:
        """Return when every other task waits for something: an effect, an event, or the time."""
        while True:
            for _ in range(_TURNS_TO_REST):  # cheaper than what follows, which pauses where anything still runs
                await checkpoint()
            await anyio.wait_all_tasks_blocked()
            if not self._outside:
                return
            await self._back.wait()

    def free(self) -> None:
        """Let everything happen that waits, and hold nothing from here on."""
        self.hold()
        waiting, self.waiting = self.waiting, []
        for effect in waiting:
            effect.gate.set()

    def hold(self, *kinds: EffectKind) -> None:
        """Hold these kinds from here on, and no others. What waits goes on waiting."""
        self._held = frozenset(kinds)

    def clock(self) -> float:
        """What stamps the events."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let the clock go on."""
        self.now += seconds

    # --- what is wrapped -----------------------------------------------------------------------------------

    def stack(self, plugins: Sequence[object] = (), *, store: str | Store = "memory:") -> SteppedStack:
        """A stack whose hooks, stores and models cross the boundary. Leaving one of its drivers frees the stepper."""
        return SteppedStack(self, plugins, store)

    def agent(self, agent: Agent) -> Agent:
        """The agent, with its model and its tools wrapped. A model that is a reference is wrapped by the stack."""
        model = agent.model if isinstance(agent.model, str) else self.model(agent.model)
        return attrs.evolve(agent, model=model, tools=tuple(self.tool(tool) for tool in agent.tools))

    def model(self, model: Model) -> Model:
        """The model, with each of its pieces an effect."""
        return model if isinstance(model, _SteppedModel) else _SteppedModel(self, model)

    def store(self, store: Store) -> Store:
        """The store, with each append and each sync of its logs an effect."""
        return store if isinstance(store, _SteppedStore) else _SteppedStore(self, store)

    def tool(self, tool: Tool) -> Tool:
        """The tool, with its body's start and its end an effect each. An end is one only if the body came to it."""
        if hasattr(tool.call, "stepped"):
            return tool

        async def call(**arguments: Any) -> object:
            await self.cross("tool", f"{tool.name} starts")
            value = tool.call(**arguments)
            if hasattr(value, "__await__"):
                value = await value
            await self.cross("tool", f"{tool.name} ends")
            if isinstance(value, ToolAnswer) and value.agent is not None:
                return attrs.evolve(value, agent=self.agent(value.agent))
            return value

        functools.update_wrapper(call, tool.call, updated=())  # what it wants of a context stands in its signature
        call.stepped = True  # type: ignore[attr-defined]
        return attrs.evolve(tool, call=call)

    def row(self, hook: str, row: Row) -> Row:
        """One implementation of a hook, asked only when it is let go."""
        if JOINS[hook].sync or hook == "lifespan":
            return row

        async def call(*args: object) -> object:
            await self.cross("hook", f"{hook} of {row.plugin}")
            answer = row.call(*args)
            if answer is not None and hasattr(answer, "__await__"):
                answer = await answer
            return [self.tool(tool) for tool in answer or ()] if hook == "provide_tools" else answer

        return attrs.evolve(row, call=call, is_async=True)

    # --- the boundary --------------------------------------------------------------------------------------

    async def cross(self, kind: EffectKind, name: str = "") -> None:
        """Wait here until the effect is let go. A cancel takes it out of `waiting`."""
        if kind not in self._held:
            for _ in range(self._shake.randrange(_SHAKEN_TURNS) if self._shake is not None else 0):
                await checkpoint()
            return
        effect = Effect(kind, name)
        self.waiting.append(effect)
        try:
            await effect.gate.wait()
        finally:
            if effect in self.waiting:
                self.waiting.remove(effect)

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Around what may go on in another thread, where the event loop looks at rest."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1
            if not self._outside:
                self._back.set()
                self._back = anyio.Event()


class SteppedStack(Stack):
    """A stack whose effects a `Stepper` holds. Made by `Stepper.stack`."""

    def __init__(self, stepper: Stepper, plugins: Sequence[object], store: str | Store) -> None:
        super().__init__(plugins, store=store, clock=stepper.clock)
        self._stepper = stepper
        rows = {hook: tuple(stepper.row(hook, row) for row in rows) for hook, rows in self.host.rows.items()}
        self.host.rows = rows

    def open_model(self, ref: str) -> Model:
        return self._stepper.model(super().open_model(ref))

    def _located(self, session: str | None) -> tuple[Store, str]:
        store, name = super()._located(session)
        return self._stepper.store(store), name

    @asynccontextmanager
    async def open(self, agent: Agent, session: str | None = None, **settings: Any) -> AsyncIterator[Driver]:
        async with super().open(agent, session, **settings) as driver:
            try:
                yield driver
            finally:
                self._stepper.free()  # a test that fails must not wait for what it still holds


class _SteppedModel:
    """A model whose pieces cross the boundary."""

    def __init__(self, stepper: Stepper, model: Model) -> None:
        self._stepper, self._model = stepper, model

    @property
    def ref(self) -> str:
        return self._model.ref

    @property
    def family(self) -> str:
        return self._model.family

    @property
    def window_tokens(self) -> int | None:
        return self._model.window_tokens

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Piece]]:
        async with self._model.stream(request) as pieces:
            yield _SteppedPieces(self._stepper, pieces)


class _SteppedPieces:
    """A stream whose pieces, and whose error, arrive when they are let go."""

    def __init__(self, stepper: Stepper, pieces: AsyncIterator[Piece]) -> None:
        self._stepper, self._pieces = stepper, pieces

    def __aiter__(self) -> _SteppedPieces:
        return self

    async def __anext__(self) -> Piece:
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            raise
        except Exception as error:
            await self._stepper.cross("model", type(error).__name__)
            raise
        await self._stepper.cross("model", type(piece).__name__)
        return piece


class _SteppedStore:
    """A store whose logs cross the boundary. Its appends may wait, so it says that they suspend."""

    def __init__(self, stepper: Stepper, store: Store) -> None:
        self._stepper, self._store = stepper, store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def capabilities(self) -> Capabilities:
        return attrs.evolve(self._store.capabilities, suspends=True)

    async def open(self, session_id: str, write: bool) -> Log:
        log = await self._store.open(session_id, write)
        return _SteppedLog(self._stepper, log) if write else log


class _SteppedLog:
    """A log whose appends and syncs cross the boundary before they happen."""

    def __init__(self, stepper: Stepper, log: Log) -> None:
        self._stepper, self._log = stepper, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, events: Sequence[Event], expected_seq: int) -> None:
        await self._stepper.cross("append", ", ".join(event.type for event in events))
        async with self._stepper.outside():
            await self._log.append(events, expected_seq)

    async def sync(self) -> None:
        await self._stepper.cross("sync")
        async with self._stepper.outside():
            await self._log.sync()


__all__ = ["EFFECT_KINDS", "Effect", "EffectKind", "SteppedStack", "Stepper"]
