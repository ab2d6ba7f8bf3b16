"""What happened: the events of a session's log, each an immutable value.

The envelope is `Event`; its `data` is one of the classes below for core types, `PluginData` for a plugin's own.
Which event may follow which is the grammar's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias, Union

import attrs

from .messages import Json, Message, Part, Status, Text, Usage
from .model import FinishReason, OutputSchema, ToolSchema

KERNEL = "treadle"
"""The owner of core events."""

Lane = Literal["step", "turn"]
DropReason = Literal["withdrawn", "cancelled", "rejected"]
OpenReason = Literal["new", "resume", "fork", "swap"]
Outcome = Literal["done", "failed", "aborted", "limit", "interrupted"]
Ending = Literal["completed", "waiting", "limit", "blocked", "failed", "aborted", "interrupted"]


@attrs.frozen(kw_only=True)
class SessionOpen:
    """A process begins to write: which kernel and plugins, and for a fork from where."""

    type: ClassVar[str] = "session/open"
    reason: OpenReason
    kernel: str
    plugins: tuple[tuple[str, str], ...] = ()
    parent: str = ""
    parent_seq: int = 0


@attrs.frozen(kw_only=True)
class InboxPut:
    """A message waits. Lane `step` aims at the nearest step, `turn` at the next turn; `wake` opens one if idle."""

    type: ClassVar[str] = "inbox/put"
    message: Message
    lane: Lane
    wake: bool


@attrs.frozen(kw_only=True)
class InboxDrop:
    """Messages left the inbox without entering a step."""

    type: ClassVar[str] = "inbox/drop"
    ids: tuple[str, ...]
    why: DropReason
    detail: str = ""


@attrs.frozen
class TurnStart:
    """A turn opens."""

    type: ClassVar[str] = "turn/start"


@attrs.frozen(kw_only=True)
class StepStart:
    """A step opens: who acts, which inbox messages it claims (this is the claim), which calls it resumes."""

    type: ClassVar[str] = "step/start"
    agent: str
    digest: str
    claims: tuple[str, ...] = ()
    resumes: tuple[str, ...] = ()


@attrs.frozen
class UserMessage:
    """A message enters the conversation, in the append of its `step/start`."""

    type: ClassVar[str] = "user/message"
    message: Message


@attrs.frozen(kw_only=True)
class Header:
    """What a request holds besides messages."""

    model: str
    family: str
    instructions: tuple[Text, ...] = ()
    tools: tuple[ToolSchema, ...] = ()
    params: Mapping[str, Json] = attrs.field(factory=dict)
    output: OutputSchema | None = None


@attrs.frozen
class Kept:
    """A stretch of the fold that a changed view keeps: the items put there by seq `first` to `last`."""

    first: int
    last: int


@attrs.frozen
class Inserted:
    """A message that hooks put into the view of one request."""

    message: Message


@attrs.frozen(kw_only=True)
class Changes:
    """How hooks changed the view of one request: the whole view, as stretches kept and messages put in."""

    plugins: tuple[str, ...]
    view: tuple[Union[Kept, Inserted], ...]


@attrs.frozen(kw_only=True)
class ModelRequest:
    """A request leaves. Its header stands here, or in the request at `header_seq`, which had the same."""

    type: ClassVar[str] = "model/request"
    attempt: int
    digest: str
    header: Header | None = None
    header_seq: int = 0
    changes: Changes | None = None


@attrs.frozen(kw_only=True)
class ModelFailed:
    """A request ended without a reply. After `stop` only the step's end may follow."""

    type: ClassVar[str] = "model/failed"
    attempt: int
    kind: str
    error: str
    action: Literal["retry", "stop"]
    usage: Usage | None = None
    after_seconds: float = 0.0


@attrs.frozen(kw_only=True)
class AssistantMessage:
    """The model answered. `interrupted`: a cancel cut it off, and only its complete visible parts stand here."""

    type: ClassVar[str] = "assistant/message"
    message: Message
    finish: FinishReason
    usage: Usage | None = None
    interrupted: bool = False


@attrs.frozen(kw_only=True)
class ToolCall:
    """A call was taken up. With a body to run, this is durable before the body starts.

    `arguments` is what the body gets, as JSON text: the model's own, or as a person edited it. `replay` says whether
    the call may run again if its outcome stays unknown.
    """

    type: ClassVar[str] = "tool/call"
    call_id: str
    arguments: str
    replay: Literal["safe", "never"]


@attrs.frozen(kw_only=True)
class ToolResult:
    """A call ended. `agent` names who acts from the next step on, if the result hands over."""

    type: ClassVar[str] = "tool/result"
    call_id: str
    status: Status
    parts: tuple[Part, ...]
    usage: Usage | None = None
    concludes: bool = False
    agent: str = ""


@attrs.frozen(kw_only=True)
class SessionMeta:
    """What people know the session by; None leaves a field as it is, the last one wins."""

    type: ClassVar[str] = "session/meta"
    title: str | None = None
    labels: tuple[str, ...] | None = None
    metadata: Mapping[str, Json] | None = None


@attrs.frozen(kw_only=True)
class ContextEdit:
    """The items from `first` to `last` of the view are shadowed by one item of `put`, or hidden if that is None."""

    type: ClassVar[str] = "context/edit"
    first: int
    last: int
    put: tuple[Part, ...] | None
    plugin: str


@attrs.frozen
class StepEnd:
    """A step is over. `resumable` are the calls that repair found safe to run: never begun, or safe to replay."""

    type: ClassVar[str] = "step/end"
    outcome: Outcome
    resumable: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TurnEnd:
    """A turn is over. `detail` names the limit, the cause or the failure; `park` keeps what pends until a wake."""

    type: ClassVar[str] = "turn/end"
    reason: Ending
    detail: str = ""
    park: bool
    steps: int
    usage: Usage
    ignored: int = 0


@attrs.frozen
class PluginData:
    """A plugin's own event; `name` is its type, `<plugin>/<name>`."""

    name: str
    value: Json


Core: TypeAlias = Union[
    SessionOpen,
    InboxPut,
    InboxDrop,
    TurnStart,
    StepStart,
    UserMessage,
    ModelRequest,
    ModelFailed,
    AssistantMessage,
    ToolCall,
    ToolResult,
    SessionMeta,
    ContextEdit,
    StepEnd,
    TurnEnd,
]
Data: TypeAlias = Union[Core, PluginData]

CORE_TYPES: Mapping[str, type[Core]] = {
    cls.type: cls
    for cls in (
        SessionOpen, InboxPut, InboxDrop, TurnStart, StepStart, UserMessage, ModelRequest, ModelFailed,
        AssistantMessage, ToolCall, ToolResult, SessionMeta, ContextEdit, StepEnd, TurnEnd,
    )
}  # fmt: skip

RESERVED_NAMES = frozenset(name.split("/")[0] for name in CORE_TYPES) | {KERNEL}
"""First words of core types; no plugin may be named so."""


@attrs.frozen
class Event:
    """One entry of the log. `seq` starts at 1 and has no gaps; `time` is seconds since 1970 and orders nothing."""

    seq: int
    time: float
    data: Data
    turn: int | None = None
    step: int | None = None
    owner: str = KERNEL
    required: bool = True

    @property
    def type(self) -> str:
        """Its name in the log."""
        data = self.data
        return data.name if isinstance(data, PluginData) else data.type
