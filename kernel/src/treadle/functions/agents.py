"""An agent as a tool: a child session per call, found again after a crash.

It knows a driver only by what it does with one, which `TurnContext.open_child` hands it.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from treadle.agent import Agent, Limits
from treadle.context import Allow, CallContext, ToolAnswer, TurnContext
from treadle.errors import UsageError
from treadle.events import AssistantMessage, Event, ToolResult, TurnEnd
from treadle.messages import Call, Json, Message, Text, Usage
from treadle.tools import NO_ANSWER, Tool

from .signatures import NAME

_TASK: Json = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "All that it needs to know; it sees nothing else."}},
    "required": ["task"],
    "additionalProperties": False,
}


def agent_tool(
    agent: Agent,
    *,
    name: str = "",
    description: str = "",
    output: object = None,
    limits: Limits | None = None,
    share: float = 1.0,
    exclusive: bool = False,
    timeout_seconds: float | None = None,
    needs_approval: bool = False,
) -> Tool:
    """A tool that gives a task to another agent and answers with what it says.

    The agent works in a session of its own, `<parent session>/<call id>`, in the parent's store. Its usage counts as
    the parent turn's. Of the tokens that the parent turn has left it may use `share` (0 to 1); calls that run side by
    side get such a share each. `output` asks it for a structured answer, which comes as JSON. The other options are
    `Tool`'s.

    A call that a crash interrupted goes on where its session stands. Calls in there that wait for a decision make this
    call wait, and say which they are; to allow this call is to allow them. A turn that does not complete is an error
    result, with what the agent said last. A cancel, or the time-out, closes the child session, aborted.

    Raises `UsageError` for a share outside of 0 to 1, and for an agent whose name cannot name a tool.
    """
    label = name or agent.name
    if not NAME.fullmatch(label):
        raise UsageError(f"{label} cannot name a tool: 1 to 64 letters, digits, _ and -. Give agent_tool(name=...).")
    if not 0 < share <= 1:
        raise UsageError(f"agent_tool(share={share!r}): give a number above 0 and up to 1.")

    async def work(task: str, context: CallContext[Json]) -> ToolAnswer:
        within = _within(limits or agent.limits, context.turn, share)
        async with context.turn.open_child(agent, context.call, limits=within, output=output) as child:
            await _work_on(child, task, context)
            return _answer(agent.name, child, await child.read())

    return Tool(
        name=label,
        description=description or f"Give a task to the agent {agent.name} and get its answer.",
        parameters=_TASK,
        call=work,
        exclusive=exclusive,
        # Not "reconcile": only the body has the context that finds the child session, and it runs no part of it twice.
        replay="idempotent",
        timeout_seconds=timeout_seconds,
        needs_approval=needs_approval,
    )


def _within(own: Limits, turn: TurnContext[Json], share: float) -> Limits:
    """The child's limits: its own, and no more tokens than its share of what the parent turn has left."""
    if turn.limits.tokens is None:
        return own
    left = int(max(0, turn.limits.tokens - turn.usage.tokens) * share)
    return attrs.evolve(own, tokens=left if own.tokens is None else min(own.tokens, left))


async def _work_on(child: Json, task: str, context: CallContext[Json]) -> None:
    """Give the task to a new session; go on in one that is there already."""
    if not child.seq:
        message = Message(id=f"{context.call}:task", role="user", parts=(Text(task),), origin=f"call:{context.call}")
        await child.prompt(message)
    elif child.waiting:
        if context.decision == "allow":
            await (await child.decide({call.id: Allow() for call in child.waiting})).result()
    elif (end := _ends(await child.read())[-1]) is None or end.reason == "interrupted":
        try:
            await child.nudge()
        except UsageError:
            pass  # it had said all before the crash, and only its turn's end was missing


def _ends(events: Sequence[Event]) -> list[TurnEnd | None]:
    """The turns' ends in order; None stands for a session without any."""
    return [each.data for each in events if isinstance(each.data, TurnEnd)] or [None]


def _answer(name: str, child: Json, events: Sequence[Event]) -> ToolAnswer:
    ends = [end for end in _ends(events) if end is not None]
    usage, said = _unreported(ends), _last_words(events)
    if child.waiting:
        asked = "; ".join(f"{call.name} {call.arguments}" for call in _shown(child.waiting))
        text = f"{name} waits for a decision about: {asked}. Allowing this call allows that."
        return ToolAnswer(parts=(Text(text),), status="deferred", usage=usage)
    end = ends[-1] if ends else None
    complete = end is not None and (end.reason == "completed" or (end.reason == "interrupted" and said))
    if end is not None and complete and not end.detail.startswith(NO_ANSWER):
        return ToolAnswer(parts=(Text(said),), usage=usage)
    why = f"{end.reason}, {end.detail}" if end is not None and end.detail else end.reason if end else "before any turn"
    tail = f" It said last: {said}" if said else ""
    return ToolAnswer(parts=(Text(f"{name} came to no answer ({why}).{tail}"),), status="error", usage=usage)


def _shown(calls: Sequence[Call]) -> Sequence[Call]:
    return [attrs.evolve(call, arguments=call.arguments[:200]) for call in calls[:10]]


def _unreported(ends: Sequence[TurnEnd]) -> Usage:
    """What the turns cost since the last that ended waiting: what came before it, that result reported."""
    total = Usage()
    for at, end in enumerate(ends):
        total = total + end.usage
        if end.reason == "waiting" and at < len(ends) - 1:
            total = Usage()
    return total


def _last_words(events: Sequence[Event]) -> str:
    """The text of the last answer: a reply's words, or what its concluding tool returned."""
    for event in reversed(events):
        data = event.data
        if isinstance(data, AssistantMessage):
            return data.message.text
        if isinstance(data, ToolResult) and data.concludes:
            return "".join(part.text for part in data.parts if isinstance(part, Text))
    return ""
