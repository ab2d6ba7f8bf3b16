"""The log's grammar: one table, the rules under it, and the fold that all projections come from.

`State` is what a log means. The live driver, replay and repair all use this one fold, so that any prefix of a log
gives what the driver had there. Nothing here knows stores, hooks or tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from .errors import UnlawfulEvent
from .events import (
    KERNEL,
    AssistantMessage,
    ContextEdit,
    Data,
    Event,
    Header,
    InboxDrop,
    InboxPut,
    ModelFailed,
    ModelRequest,
    PluginData,
    SessionMeta,
    SessionOpen,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from .messages import Call, Message, Part, Result, Status, Text, Usage, canonical
from .view import Item, View, apply_changes


class Phase(StrEnum):
    """Where a log stands. A `StrEnum` hashes as its text does; a plain one by a function, thrice for each event."""

    NEW = "NEW"
    IDLE = "IDLE"
    OPEN = "OPEN"
    READY = "READY"
    ASKING = "ASKING"
    ACTING = "ACTING"


TABLE: Mapping[Phase, Mapping[type, Phase]] = {
    Phase.NEW: {SessionOpen: Phase.IDLE},
    Phase.IDLE: {SessionOpen: Phase.IDLE, ContextEdit: Phase.IDLE, TurnStart: Phase.OPEN},
    Phase.OPEN: {StepStart: Phase.READY, ContextEdit: Phase.OPEN, SessionOpen: Phase.OPEN, TurnEnd: Phase.IDLE},
    Phase.READY: {
        UserMessage: Phase.READY,
        ContextEdit: Phase.READY,
        ModelRequest: Phase.ASKING,
        StepEnd: Phase.OPEN,
    },
    Phase.ASKING: {ModelFailed: Phase.READY, AssistantMessage: Phase.ACTING},
    Phase.ACTING: {ToolCall: Phase.ACTING, ToolResult: Phase.ACTING, StepEnd: Phase.OPEN},
}
"""Phase by event: the phase after it. A `StepStart` that resumes calls leads to ACTING instead."""

ANYWHERE: frozenset[type] = frozenset({InboxPut, InboxDrop, SessionMeta, PluginData})
"""Lawful in all phases but NEW; the phase stays."""

_PLACED: frozenset[type] = frozenset(
    {TurnStart, StepStart, UserMessage, ModelRequest, ModelFailed, AssistantMessage, ToolCall, ToolResult, StepEnd,
     TurnEnd, ContextEdit, PluginData}
)  # fmt: skip
_IN_STEP = frozenset({Phase.READY, Phase.ASKING, Phase.ACTING})
_IN_TURN = _IN_STEP | {Phase.OPEN}
_INSIDE = ("plugin:", "call:", "turn:")


def is_outside(message: Message) -> bool:
    """Whether a message came from outside the session's own turns and plugins."""
    return not message.origin.startswith(_INSIDE)


@attrs.define
class CallState:
    """One call of the open step."""

    call: Call
    placeholder: int = 0  # seq of the result this one replaces, if the call is resumed
    called: ToolCall | None = None
    status: Status | None = None
    answer: Message | None = None  # its result as the model reads it


@attrs.frozen
class Waiting:
    """A call that may be resumed, and the seq of its placeholder result."""

    call: Call
    placeholder: int


def result_message(call: Call, status: Status, parts: tuple[Part, ...]) -> Message:
    """A result as the model reads it, in a tool message of its own."""
    return Message(
        id=f"{call.id}:result",
        role="tool",
        parts=(Result(call_id=call.id, name=call.name, status=status, parts=parts),),
        origin=f"call:{call.id}",
    )


class State:
    """The fold of a log. `apply` is the only way it changes; everything else reads.

    `items` only ever grows in place; where an edit or a late result changes the middle, it becomes a new list, so that
    views made before stay what they were.
    """

    def __init__(self, session: str = "") -> None:
        self.session = session
        self.phase: Phase = Phase.NEW
        self.seq = 0
        self.time = 0.0
        self.turn = 0
        self.step = 0
        self.attempt = 0
        self.stopped = False  # a model/failed(stop) closed the step's asking
        self.pending: dict[str, InboxPut] = {}
        self.put_seq: dict[str, int] = {}  # of what pends
        self.ids: set[str] = set()
        self.parked = False
        self.owed = False
        self.items: list[Item] = []
        self.calls: dict[str, CallState] = {}
        self.order: list[str] = []
        self.answered = 0  # how many of `order` have their result
        self.last_reply: AssistantMessage | None = None
        self.deferred: dict[str, Waiting] = {}
        self.resumable: dict[str, Waiting] = {}
        self.header: Header | None = None
        self.header_seq = 0
        self.last_end: TurnEnd | None = None
        self.alone = 0
        self.usage = Usage()  # of the open or last turn
        self.size = 0  # bytes of the view's messages in canonical form, as far as digested
        self.meta = SessionMeta()
        self._concluded = False
        self._claims: set[str] | None = None  # ids the step/start just before claimed; None once it is past
        self._reply_seq = 0
        self._chain = b""
        self._chained = 0

    # --- projections ---------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The conversation as of now. O(1), shares the items."""
        return View(self.items)

    @property
    def digest(self) -> str:
        """A chain over the digests of the view's messages; costs only what was added since the last look."""
        for at in range(self._chained, len(self.items)):
            text = canonical(self.items[at].message)
            self._chain = link(self._chain, text)
            self.size += len(text)
        self._chained = len(self.items)
        return self._chain.hex()

    @property
    def idle(self) -> bool:
        """Whether no turn is open."""
        return self.phase in (Phase.NEW, Phase.IDLE)

    def wakes(self, lane: str | None = None) -> bool:
        """Whether a waking message pends, in this lane if one is named."""
        return bool(self.pending) and any(put.wake and lane in (None, put.lane) for put in self.pending.values())

    def woken_since(self, seq: int) -> bool:
        """Whether a waking message pends that was put after event `seq`."""
        return any(put.wake and self.put_seq[each] > seq for each, put in self.pending.items())

    def batch(self, with_turn_lane: bool) -> tuple[Message, ...]:
        """What the next step would take: the step lane, and one message of the turn lane if asked; in seq order."""
        out, room = [], with_turn_lane
        for put in self.pending.values():
            if put.lane == "step":
                out.append(put.message)
            elif room:
                out.append(put.message)
                room = False
        return tuple(out)

    @property
    def last_deferred(self) -> bool:
        """Whether a call of the last assistant message waits for a decision."""
        reply = self.last_reply
        return reply is not None and bool(self.deferred) and any(c.id in self.deferred for c in reply.message.calls)

    # --- the door ------------------------------------------------------------------------------------------

    def stamp(self, data: Data, time: float, owner: str = KERNEL, required: bool = True) -> Event:
        """The next event with this data: seq, turn and step follow from where the log stands."""
        turn = step = None
        kind = type(data)
        if kind is TurnStart or (kind in _PLACED and self.phase in _IN_TURN):
            turn = self.turn + (kind is TurnStart)
            if kind is StepStart or self.phase in _IN_STEP:
                step = self.step + (kind is StepStart)
        return Event(self.seq + 1, time, data, turn, step, owner, required)

    def apply(self, event: Event) -> None:
        """Take the next event, or raise `UnlawfulEvent` and stay as before."""
        data = event.data
        kind = type(data)
        if event.seq != self.seq + 1:
            raise self._unlawful(event, f"seq {self.seq + 1} was due")
        if kind in ANYWHERE:
            after = self.phase
            if after is Phase.NEW:
                raise self._unlawful(event, "a log begins with session/open")
        else:
            found = TABLE[self.phase].get(kind)
            if found is None:
                raise self._unlawful(event, "the table has no such row")
            after = found
        if event.turn is not None and event.turn != self.turn + (kind is TurnStart):
            raise self._unlawful(event, f"it names turn {event.turn}, not {self.turn + (kind is TurnStart)}")
        check = _CHECKS.get(kind)
        if check is not None and (reason := check(self, data)):
            raise self._unlawful(event, reason)
        if self._claims is not None and kind is not UserMessage:
            self._claims = None
        self.seq, self.time, self.phase = event.seq, event.time, after
        fold = _FOLDS.get(kind)
        if fold is not None:
            fold(self, data)

    def _unlawful(self, event: Event, reason: str) -> UnlawfulEvent:
        return UnlawfulEvent(event.type, self.phase.value, reason, event.seq)

    # --- rules under the table: each says why not, or an empty string --------------------------------------

    def _check_open(self, data: SessionOpen) -> str:
        if (data.reason == "new") != (self.phase is Phase.NEW):
            return "reason new belongs to the first event, and to no other"
        return "only a swap may come inside a turn" if self.phase is Phase.OPEN and data.reason != "swap" else ""

    def _check_put(self, data: InboxPut) -> str:
        return f"id {data.message.id} was used before" if data.message.id in self.ids else ""

    def _check_drop(self, data: InboxDrop) -> str:
        gone = [each for each in data.ids if each not in self.pending]
        return f"{gone[0]} does not pend" if gone else ""

    def _check_step(self, data: StepStart) -> str:
        if not data.claims and not data.resumes:
            return ""
        if data.claims and data.resumes:
            return "a step that resumes calls claims no message"
        for call_id in data.resumes:
            if call_id not in self.deferred and call_id not in self.resumable:
                return f"call {call_id} is neither deferred nor resumable"
        claimed = set(data.claims)
        for lane, most in (("step", len(self.pending)), ("turn", 1)):
            waiting = [each for each, put in self.pending.items() if put.lane == lane]
            taken = [each for each in waiting if each in claimed]
            if taken != waiting[: len(taken)] or len(taken) > most:
                return f"it must claim the oldest of the {lane} lane, at most {most}"
            claimed.difference_update(taken)
        return f"{sorted(claimed)[0]} does not pend" if claimed else ""

    def _check_user(self, data: UserMessage) -> str:
        if self._claims is None:
            return "a user/message stands directly behind its step/start"
        message = data.message
        return f"id {message.id} was used before" if message.id in self.ids and message.id not in self._claims else ""

    def _check_request(self, data: ModelRequest) -> str:
        if self.stopped:
            return "the step's asking was stopped"
        if data.attempt != self.attempt + 1:
            return f"attempt {self.attempt + 1} was due"
        known = data.header is not None or (self.header is not None and data.header_seq == self.header_seq)
        return "" if known else f"no request with a header stands at seq {data.header_seq}"

    def _check_attempt(self, data: ModelFailed) -> str:
        return "" if data.attempt == self.attempt else f"attempt {self.attempt} is open"

    def _check_call(self, data: ToolCall) -> str:
        call = self.calls.get(data.call_id)
        if call is None:
            return f"the step has no call {data.call_id}"
        return f"call {data.call_id} was taken up before" if call.called else ""

    def _check_result(self, data: ToolResult) -> str:
        call = self.calls.get(data.call_id)
        if call is None or call.called is None:
            return f"no tool/call {data.call_id} stands in this step"
        if self.answered >= len(self.order) or self.order[self.answered] != data.call_id:
            return "results stand in the model's order, one for each call"
        return ""

    def _check_step_end(self, data: StepEnd) -> str:
        if self.phase is Phase.READY:
            return "a step without a reply is not done" if data.outcome == "done" else ""
        if self.answered < len(self.order):
            return f"call {self.order[self.answered]} has no result"
        if data.resumable and data.outcome != "interrupted":
            return "only repair leaves resumable calls"
        odd = [each for each in data.resumable if self._status(each) not in ("not_started", "outcome_unknown")]
        return f"call {odd[0]} is not resumable" if odd else ""

    def _status(self, call_id: str) -> Status | None:
        return self.calls[call_id].status if call_id in self.calls else None

    def check_edit(self, data: ContextEdit) -> str:
        """Why this edit would not be lawful now, or an empty string."""
        return self._edited(data)[1]

    def _edited(self, data: ContextEdit, seq: int = 0) -> tuple[list[Item], str]:
        items = self.items
        place = {item.seq: at for at, item in enumerate(items)}
        first, last = place.get(data.first, -1), place.get(data.last, -1)
        if first < 0 or last < 0:
            return [], f"no live item has seq {data.first if first < 0 else data.last}"
        if last < first:
            return [], "last stands before first"
        waiting = {each.placeholder for each in self.deferred.values()}
        if any(item.seq in waiting for item in items[first : last + 1]):
            return [], "a deferred call may not be edited away"
        single = first == last and items[first].message.role == "tool"
        crosses = items[first].message.role == "tool" or (
            last + 1 < len(items) and items[last + 1].message.role == "tool"
        )
        put: list[Item] = []
        if single and data.put is not None:
            put = [Item(seq, _replaced_result(items[first].message, data.put))]
        elif crosses:
            return [], "a message and its results are edited together"
        elif data.put is not None:
            message = Message(id=f"edit:{seq}", role="context", parts=data.put, origin=f"plugin:{data.plugin}")
            put = [Item(seq, message)]
        after = [*items[:first], *put, *items[last + 1 :]]
        if after and after[0].message.role in ("assistant", "tool"):
            return [], "the view would not begin with a user's item"
        if self.owed and (not after or after[-1].message.role == "assistant"):
            return [], "a reply is owed, and nothing would be left to answer"
        return after, ""

    # --- folds: what each event changes --------------------------------------------------------------------

    def _fold_open(self, data: SessionOpen) -> None:
        if data.reason == "resume":
            self.parked = True
        elif data.reason == "fork":
            self.pending, self.put_seq, self.deferred, self.resumable = {}, {}, {}, {}
            self.parked = False

    def _fold_put(self, data: InboxPut) -> None:
        self.ids.add(data.message.id)
        self.pending[data.message.id] = data
        self.put_seq[data.message.id] = self.seq
        if data.wake:
            self.parked = False

    def _fold_drop(self, data: InboxDrop) -> None:
        for each in data.ids:
            del self.pending[each], self.put_seq[each]

    def _fold_turn(self, data: TurnStart) -> None:
        self.turn += 1
        self.step = 0
        self.parked = False
        self.alone += 1
        self.usage = Usage()

    def _fold_step(self, data: StepStart) -> None:
        self.step += 1
        self.attempt, self.stopped, self._concluded = 0, False, False
        self.calls, self.order, self.answered = {}, [], 0
        for call_id in data.resumes:
            waiting = self.deferred.pop(call_id, None) or self.resumable[call_id]
            self.calls[call_id] = CallState(waiting.call, waiting.placeholder)
            self.order.append(call_id)
        self.resumable = {}
        for each in data.claims:
            del self.pending[each], self.put_seq[each]
        self._claims = set(data.claims)
        if data.resumes:
            self.phase = Phase.ACTING

    def _fold_user(self, data: UserMessage) -> None:
        self.ids.add(data.message.id)
        self.items.append(Item(self.seq, data.message))
        self.owed = True
        if is_outside(data.message):
            self.alone = 0

    def _fold_request(self, data: ModelRequest) -> None:
        self.attempt = data.attempt
        if data.header is not None:
            self.header, self.header_seq = data.header, self.seq

    def _fold_failed(self, data: ModelFailed) -> None:
        self.stopped = data.action == "stop"
        self._spend(data.usage)

    def _fold_reply(self, data: AssistantMessage) -> None:
        self.last_reply, self._reply_seq = data, self.seq
        self.owed = False
        self._spend(data.usage)
        if data.message.parts:
            self.items.append(Item(self.seq, data.message))
        for call in data.message.calls:
            self.calls[call.id] = CallState(call)
            self.order.append(call.id)

    def _fold_call(self, data: ToolCall) -> None:
        self.calls[data.call_id].called = data

    def _fold_result(self, data: ToolResult) -> None:
        self.answered += 1
        state = self.calls[data.call_id]
        state.status = data.status
        answer = state.answer = result_message(state.call, data.status, data.parts)
        self._spend(data.usage)
        self._concluded = self._concluded or data.concludes
        self.owed = not self._concluded
        if data.status == "deferred":
            if state.placeholder == 0:
                self.items.append(Item(self.seq, answer))
            self.deferred[data.call_id] = Waiting(state.call, state.placeholder or self.seq)
        elif state.placeholder:
            self._place_late(state, data, answer)
        else:
            self.items.append(Item(self.seq, answer))

    def _spend(self, usage: Usage | None) -> None:
        if usage is not None:
            self.usage = self.usage + usage

    def _place_late(self, state: CallState, data: ToolResult, answer: Message) -> None:
        """A resumed call's result: in its placeholder's place, or where it stands if an answer came in between."""
        at = next((i for i, item in enumerate(self.items) if item.seq == state.placeholder), -1)
        if at < 0 or self._reply_seq > state.placeholder:
            self.items.append(Item(self.seq, late_message(state.call, data.status, data.parts)))
            return
        items = list(self.items)
        items[at] = Item(self.seq, answer)
        self._rebuilt(items)

    def _fold_edit(self, data: ContextEdit) -> None:
        self._rebuilt(self._edited(data, self.seq)[0])

    def _rebuilt(self, items: list[Item]) -> None:
        self.items, self._chain, self._chained, self.size = items, b"", 0, 0

    def _fold_step_end(self, data: StepEnd) -> None:
        # A resumed call's result may stand far up, in its placeholder's place.
        seqs = {item.message.id: item.seq for item in self.items} if data.resumable else {}
        for call_id in data.resumable:
            call = self.calls[call_id]
            self.resumable[call_id] = Waiting(call.call, seqs.get(f"{call_id}:result", call.placeholder))

    def _fold_turn_end(self, data: TurnEnd) -> None:
        self.parked = data.park
        self.last_end = data

    def _fold_meta(self, data: SessionMeta) -> None:
        said = attrs.asdict(data, recurse=False, filter=lambda _, value: value is not None)
        self.meta = attrs.evolve(self.meta, **said)


def _replaced_result(message: Message, put: tuple[Part, ...]) -> Message:
    """A tool message whose one result shows other parts."""
    result = next(part for part in message.parts if isinstance(part, Result))
    given = next((part for part in put if isinstance(part, Result)), None)
    parts = given.parts if given is not None else put
    return attrs.evolve(message, parts=(attrs.evolve(result, parts=parts),))


def late_message(call: Call, status: Status, parts: tuple[Part, ...]) -> Message:
    """The result of a call that was answered over, as a user-role item that names the call."""
    head = Text(f"[Result of the earlier call {call.name} ({call.id}), status {status}]\n")
    return Message(id=f"{call.id}:late", role="context", parts=(head, *parts), origin=f"call:{call.id}")


def link(chain: bytes, text: bytes) -> bytes:
    """The next link of a digest chain."""
    return hashlib.blake2b(text, digest_size=16, key=chain).digest()


_CHECKS: Mapping[type, Callable[[State, Any], str]] = {
    SessionOpen: State._check_open,
    InboxPut: State._check_put,
    InboxDrop: State._check_drop,
    StepStart: State._check_step,
    UserMessage: State._check_user,
    ModelRequest: State._check_request,
    ModelFailed: State._check_attempt,
    ToolCall: State._check_call,
    ToolResult: State._check_result,
    StepEnd: State._check_step_end,
    ContextEdit: State.check_edit,
}

_FOLDS: Mapping[type, Callable[[State, Any], None]] = {
    SessionOpen: State._fold_open,
    InboxPut: State._fold_put,
    InboxDrop: State._fold_drop,
    TurnStart: State._fold_turn,
    StepStart: State._fold_step,
    UserMessage: State._fold_user,
    ModelRequest: State._fold_request,
    ModelFailed: State._fold_failed,
    AssistantMessage: State._fold_reply,
    ToolCall: State._fold_call,
    ToolResult: State._fold_result,
    ContextEdit: State._fold_edit,
    StepEnd: State._fold_step_end,
    TurnEnd: State._fold_turn_end,
    SessionMeta: State._fold_meta,
}


def fold(events: Iterable[Event], session: str = "") -> State:
    """What a log means. Raises `UnlawfulEvent` at the first event that does not fit."""
    state = State(session)
    for event in events:
        state.apply(event)
    return state


# --- repair ------------------------------------------------------------------------------------------------

_UNKNOWN = "The process ended while this call ran. Whether it took effect is unknown: check before calling again."
_NOT_STARTED = "The process ended before this call was started."
_DEFERRED = "This call still waits for a decision."


def closers(state: State) -> Sequence[Data]:
    """The events that close a log which a dead process left open; none for a balanced log.

    Pure: it reads the fold and changes nothing. Repairing twice adds nothing.
    """
    if state.idle:
        return ()
    out: list[Data] = []
    if state.phase is Phase.ASKING:
        error = "The process ended during the model call."
        out.append(ModelFailed(attempt=state.attempt, kind="interrupted", error=error, action="stop"))
    resumable: list[str] = []
    if state.phase is Phase.ACTING:
        for call_id in state.order[state.answered :]:
            out.extend(_close_call(state, state.calls[call_id], resumable))
    if state.phase is not Phase.OPEN:
        out.append(StepEnd("interrupted", tuple(resumable)))
    detail = "the process ended"
    out.append(TurnEnd(reason="interrupted", detail=detail, park=True, steps=state.step, usage=state.usage))
    return out


def _close_call(state: State, call: CallState, resumable: list[str]) -> Iterable[Data]:
    call_id = call.call.id
    truncated = state.last_reply is not None and state.last_reply.finish == "length" and not call.placeholder
    if call.called is not None:
        if call.called.replay == "safe":
            resumable.append(call_id)
        yield ToolResult(call_id=call_id, status="outcome_unknown", parts=(Text(_UNKNOWN),))
        return
    yield ToolCall(call_id=call_id, arguments=call.call.arguments, replay="never")
    if call.placeholder:
        yield ToolResult(call_id=call_id, status="deferred", parts=(Text(_DEFERRED),))
        return
    if not truncated:
        resumable.append(call_id)
    yield ToolResult(call_id=call_id, status="not_started", parts=(Text(_NOT_STARTED),))


def request_messages(state: State, request: ModelRequest) -> tuple[Message, ...]:
    """The messages of a logged request, from the fold of all events before it."""
    return tuple(state.view) if request.changes is None else apply_changes(state.view, request.changes)
