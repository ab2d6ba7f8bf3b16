"""What hooks and tools are given, and what they may answer.

A `TurnContext` lives as long as its turn, a `CallContext` as long as its call. Neither is ever stored.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from inspect import Parameter, signature
from typing import Any, Generic, Literal, TypeAlias, TypeVar, Union, get_args
from weakref import WeakKeyDictionary

import attrs

from .agent import Agent, Limits
from .errors import UsageError
from .events import ContextEdit, Event, PluginData
from .messages import Json, Part, Status, Text, Usage, as_parts
from .tools import Tool

Deps = TypeVar("Deps")
APP = "app"
"""The owner of notes from the application's own tools; no plugin may be named so."""


class TurnContext(Generic[Deps]):
    """The turn as hooks, tools and dynamic instructions see it.

    `turn` and `step` are numbers from 1 (`step` is 0 before the first), `vetoes` how often its end was objected to,
    `usage` what it cost so far. `deps` is the application's own object, passed through untouched. Everything but
    `slot` is read-only to plugins.
    """

    __slots__ = (
        "_opens", "_reads", "_slots", "agent", "author", "deps", "held", "limits", "metadata", "run", "sent", "session",
        "step", "turn", "usage", "user", "vetoes",
    )  # fmt: skip

    def __init__(
        self,
        *,
        session: str,
        turn: int,
        agent: Agent,
        limits: Limits,
        user: str | None,
        deps: Deps,
        metadata: Mapping[str, Json],
        run: str | None = None,
        sent: Callable[[PluginData | ContextEdit, str], None],
        reads: Callable[[int], Awaitable[Sequence[Event]]],
        opens: Callable[[Agent, str, Mapping[str, Any]], AbstractAsyncContextManager[Any]],
    ) -> None:
        self.session, self.turn, self.agent, self.limits = session, turn, agent, limits
        self.user, self.deps, self.metadata, self.run = user, deps, metadata, run
        self.step, self.vetoes, self.usage = 0, 0, Usage()
        self.author = ""  # the plugin whose hook is running, set by the host
        self.held = False
        self.sent, self._reads, self._opens = sent, reads, opens
        self._slots: dict[str, dict[str, Any]] = {}

    def slot(self, plugin: str) -> dict[str, Any]:
        """A plugin's own dict, which dies with the turn."""
        return self._slots.setdefault(plugin, {})

    def note(self, name: str, data: Json = None) -> None:
        """Queue an event `<plugin>/<name>` for the log; it stands before the loop's next append, in the same batch.

        `data` must be plain data that JSON keeps. Notify hooks have no note. From a tool body use `CallContext.note`.
        """
        self.sent(plugin_data(self.author, name, data), self.author)

    def edit(self, first: int, last: int, put: str | Part | tuple[Part, ...] | None = None) -> None:
        """Queue a `context/edit`: the view's items from seq `first` to `last` give way to `put`, or are hidden.

        Raises `UsageError` where the grammar does not allow it: outside a step's start, across half of a call and its
        result, or leaving a view that no model could be given.
        """
        parts = None if put is None else as_parts(put)
        self.sent(ContextEdit(first=first, last=last, put=parts, plugin=self.author), self.author)

    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        """The events of this session's log after `after_seq`."""
        return await self._reads(after_seq)

    def open_child(self, agent: Agent, name: str, **settings: Any) -> AbstractAsyncContextManager[Any]:
        """A `Driver` of the session `<this session>/<name>` in the same store; leaving the `async with` closes it.

        User, deps, metadata and run are this turn's, unless `settings` name others; else as for `Stack.open`. Its turns
        are its own: a cancel of this turn reaches it only by cancelling whoever holds it open.
        """
        return self._opens(agent, name, settings)

    def hold_deltas(self) -> None:
        """Keep this request's deltas back until its reply has passed `around_model`, for output guards."""
        self.held = True


def plugin_data(plugin: str, name: str, data: Json) -> PluginData:
    """A plugin's event, its value copied by way of JSON so that nobody can change it afterwards."""
    if not plugin or not name or "/" in name:
        raise UsageError(f'A note needs a name without "/", from within a plugin\'s hook; got {name!r} of {plugin!r}.')
    try:
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"The note {plugin}/{name} is not plain data: {error}. Pass what JSON keeps.") from error
    return PluginData(f"{plugin}/{name}", json.loads(text))


@attrs.frozen(kw_only=True)
class AskedCall:
    """A call as tool hooks see it: decoded `arguments`, and `raw` as the model wrote it."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    raw: str


class CallContext(Generic[Deps]):
    """One call, as its tool and the tool hooks see it.

    `key` is the idempotency key: session and call id, the same when the call is resumed. `deadline` is on the
    event loop's clock. `decision` is "allow" when a person allowed this very call.
    """

    __slots__ = ("_note", "_progress", "author", "call", "deadline", "decision", "key", "turn")

    def __init__(
        self,
        *,
        call: str,
        key: str,
        deadline: float,
        turn: TurnContext[Deps],
        progress: Callable[[str], None],
        note: Callable[[str, str, Json], None],
        decision: Literal["", "allow"] = "",
    ) -> None:
        self.call, self.key, self.deadline, self.turn, self.decision = call, key, deadline, turn, decision
        self._progress, self._note = progress, note
        self.author = ""  # the plugin whose hook is running, set by the host

    @property
    def deps(self) -> Deps:
        """The application's own object."""
        return self.turn.deps

    def progress(self, text: str) -> None:
        """Tell watchers how far the body is. Live only, never logged; safe from a worker thread."""
        self._progress(text)

    def note(self, name: str, data: Json = None) -> None:
        """Append an event: `<plugin>/<name>` from a hook, `app/<name>` from a tool's body.

        From a hook it stands before the loop's next append, from a body it is appended at once. A body that was left
        behind has its notes reported and dropped. Safe from a worker thread.
        """
        self._note(self.author or APP, name, data)


_wanting: WeakKeyDictionary[Tool, tuple[tuple[str, bool], ...]] = WeakKeyDictionary()


def wanted_contexts(tool: Tool) -> tuple[tuple[str, bool], ...]:
    """`context_parameters` of a tool's function, worked out once per tool."""
    known = _wanting.get(tool)
    if known is None:
        known = _wanting[tool] = context_parameters(tool.call)
    return known


def context_parameters(call: Callable[..., object]) -> tuple[tuple[str, bool], ...]:
    """The parameters of `call` that want a context: each name, and whether it wants the turn's, not the call's."""
    try:
        parameters = signature(call, eval_str=True).parameters.values()
    except Exception:  # annotations that do not resolve here: go by their text
        try:
            parameters = signature(call).parameters.values()
        except (TypeError, ValueError):
            return ()
    return tuple((p.name, wants == "TurnContext") for p in parameters if (wants := _wanted(p)))


def _wanted(parameter: Parameter) -> str:
    annotation = parameter.annotation
    origin = getattr(annotation, "__origin__", annotation)
    if origin is CallContext or origin is TurnContext:
        return str(origin.__name__)
    if isinstance(annotation, str):
        name = annotation.split("[")[0].rsplit(".", 1)[-1]
        return name if name in ("CallContext", "TurnContext") else ""
    return ""


# --- answers -----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ToolAnswer:
    """What a tool may return instead of plain text or data.

    `concludes`: the turn owes no reply after this. `agent` acts from the next step to the end of the turn. `usage` is
    what a sub-agent spent, counted with the turn's.
    """

    parts: tuple[Part, ...] = attrs.field(converter=as_parts)
    status: Status = "ok"
    concludes: bool = False
    agent: Agent | None = None
    usage: Usage | None = None


@attrs.frozen
class Halt:
    """`before_step`: end the turn, blocked, for this reason."""

    reason: str


@attrs.frozen
class Retry:
    """`on_model_error`: ask again after so many seconds."""

    after_seconds: float = 0.0


@attrs.frozen
class Deny:
    """`before_tool` or `decide`: the call does not run; the model reads the reason."""

    reason: str


@attrs.frozen
class Defer:
    """`before_tool`: the call waits for a decision, and the turn ends `waiting`."""

    reason: str = ""


@attrs.frozen
class Answer:
    """`before_tool` or `decide`: the call does not run; this is its result."""

    result: ToolAnswer | str


@attrs.frozen
class Allow:
    """`decide`: the call runs, with `arguments` if a person edited them (an object, checked like the model's)."""

    arguments: Mapping[str, Json] | None = None


Verdict: TypeAlias = Union[Deny, Defer, Answer]
Decision: TypeAlias = Union[Allow, Deny, Answer]


def as_answer(value: object) -> ToolAnswer:
    """A tool's return value as an answer: text as it is, parts as they are, None as null, other data as JSON text."""
    if isinstance(value, ToolAnswer):
        return value
    if isinstance(value, str):
        return ToolAnswer(parts=value)
    parts = value if isinstance(value, (list, tuple)) else (value,)
    if parts and all(isinstance(part, get_args(Part)) for part in parts):
        return ToolAnswer(parts=tuple(parts))
    return ToolAnswer(parts=(Text(to_json(value)),))


def to_json(value: object) -> str:
    """Structured data as JSON text.

    pydantic's models say themselves how they look in JSON, wherever they stand. attrs classes, dataclasses and other
    types beyond JSON's own need msgspec, if it is there. What has no JSON form is its `str`.
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=_dumped)
    except (TypeError, ValueError):
        pass
    try:
        import msgspec
    except ImportError:
        return str(value)
    try:
        return msgspec.json.encode(value, enc_hook=_dumped).decode()
    except (TypeError, ValueError):
        return str(value)


def _dumped(value: Json) -> Json:
    """A pydantic model as plain data, without importing pydantic; `TypeError` for anything else."""
    if hasattr(value, "model_dump") and hasattr(type(value), "__pydantic_serializer__"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")
