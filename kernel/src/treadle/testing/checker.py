"""The log checker: every invariant of a session's log, as functions that anyone can run on any log.

The grammar refuses what is unlawful by itself; this adds what only shows over a whole log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from treadle.errors import UnlawfulEvent
from treadle.events import AssistantMessage, Event, ModelRequest, StepEnd, ToolCall, ToolResult, TurnEnd
from treadle.grammar import Phase, State, closers, fold, link, request_messages
from treadle.loop import changes_text
from treadle.messages import Json
from treadle.view import why_invalid


def summary(state: State) -> dict[str, Json]:
    """What a log means: every projection, as plain data that compares."""
    return {
        "seq": state.seq,
        "phase": state.phase.value,
        "turn": state.turn,
        "step": state.step,
        "attempt": state.attempt,
        "pending": list(state.pending),
        "parked": state.parked,
        "owed": state.owed,
        "view": [[item.seq, item.message.role, item.message.id] for item in state.items],
        "digest": state.digest,
        "calls": [[each, state.calls[each].status] for each in state.order],
        "deferred": {call_id: waiting.placeholder for call_id, waiting in state.deferred.items()},
        "resumable": sorted(state.resumable),
        "alone": state.alone,
        "usage": attrs.asdict(state.usage),
        "meta": attrs.asdict(state.meta),
    }


def faults_of(events: Sequence[Event], *, balanced: bool = True) -> list[str]:
    """What is wrong with a log; empty if nothing is. `balanced` asks that no turn is open at its end."""
    state = State()
    faults: list[str] = []
    for event in events:
        faults.extend(f"seq {event.seq}: {fault}" for fault in _before(state, event))
        try:
            state.apply(event)
        except UnlawfulEvent as error:
            return [*faults, f"seq {event.seq}: {error}"]
        faults.extend(f"seq {event.seq}: {fault}" for fault in _after(state, event))
    if balanced and not state.idle:
        faults.append(f"turn {state.turn} is open at the end, in phase {state.phase.value}")
    return faults


def _before(state: State, event: Event) -> list[str]:
    """What must hold of an event against all that stood before it."""
    data = event.data
    out: list[str] = []
    if isinstance(data, ModelRequest):
        messages = request_messages(state, data)
        if reason := why_invalid(messages):
            out.append(f"the request's view fits no model: {reason}")
        digest = state.digest
        if data.changes is not None:
            digest = link(bytes.fromhex(digest), changes_text(data.changes)).hex()
        if digest != data.digest:
            out.append("the request's digest is not that of its messages")
    if isinstance(data, ToolResult) and data.status == "ok":
        call = state.calls.get(data.call_id)
        if call is not None and state.last_reply is not None and not call.placeholder:
            truncated = state.last_reply.finish == "length" and call.call in state.last_reply.message.calls
            if truncated:
                out.append(f"call {data.call_id} of a truncated reply ran")
    if isinstance(data, ToolCall) and state.last_reply is not None and state.last_reply.interrupted:
        asked = state.calls.get(data.call_id)
        if asked is not None and not asked.placeholder:
            out.append("a call of an interrupted reply was taken up")
    return out


def _after(state: State, event: Event) -> list[str]:
    """What must hold once an event is folded."""
    data = event.data
    out: list[str] = []
    if isinstance(data, AssistantMessage) and data.interrupted and data.message.calls:
        out.append("an interrupted reply keeps half a call")
    if isinstance(data, StepEnd) and data.outcome == "done" and state.stopped:
        out.append("a step whose asking was stopped is done")
    if isinstance(data, TurnEnd):
        if data.reason == "completed" and data.park:
            out.append("a completed turn parks")
        if data.reason == "completed" and state.owed and data.steps:
            out.append("a completed turn owes a reply")
        if data.reason == "waiting" and not state.deferred:
            out.append("a turn waits for no call")
        if data.steps != state.step:
            out.append(f"turn/end says {data.steps} steps, the log {state.step}")
    return out


_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
"""The kernel's ids, and the digests that depend on them."""


def normalised(events: Sequence[Event]) -> list[str]:
    """A log as text that compares: times left out, and each id or digest replaced by a number, in order of appearance.

    Two runs of one script are alike if these are equal.
    """
    seen: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return seen.setdefault(found[0], f"<{len(seen) + 1}>")

    return [_MADE.sub(number, repr(attrs.evolve(event, time=0.0))) for event in events]


def prefix_faults(events: Sequence[Event]) -> list[str]:
    """What is wrong with any prefix, repaired: it must balance, a second repair add nothing, and pairs hold."""
    out: list[str] = []
    for length in range(1, len(events) + 1):
        state = fold(events[:length])
        for data in closers(state):
            state.apply(state.stamp(data, state.time))
        if state.phase is not Phase.IDLE:
            out.append(f"prefix {length}: repair leaves phase {state.phase.value}")
        elif closers(state):
            out.append(f"prefix {length}: a second repair adds events")
        elif reason := why_invalid(state.view, reply_owed=False):
            out.append(f"prefix {length}: {reason}")
    return out
