"""History as any provider takes it: each call with exactly one result, right after it, in the model's order.

The kernel keeps to that already. A hook, another stack's log or a compaction may not, and every provider refuses the
whole session then, for ever. So each wire passes its messages through here; whole histories pass unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from treadle.plugin import Message, Part, Result, Text


def repaired(messages: Sequence[Message]) -> list[Message]:
    """The messages with calls and results paired, one tool message per result.

    A result that stands late or out of order moves to its call; a call without one gets a result that says so; a
    result without its call, or a second one, becomes a context message that names the call. Nothing is left out.
    """
    results = _by_call(messages)
    out: list[Message] = []
    used: set[int] = set()
    for message in messages:
        if message.role == "tool":
            out += (_stray(message, part) for part in message.parts if id(part) not in used)
            continue
        out.append(message)
        if message.role == "assistant":
            for call in message.calls:
                waiting = results.get(call.id, [])
                owner, result = waiting.pop(0) if waiting else (message, _missing(call.id, call.name))
                used.add(id(result))
                out.append(Message(id=owner.id, role="tool", parts=(result,), origin=owner.origin))
    return out


def _by_call(messages: Sequence[Message]) -> dict[str, list[tuple[Message, Result]]]:
    """Results by the call they answer, those before their call left out: they answer nothing."""
    out: dict[str, list[tuple[Message, Result]]] = {}
    called: set[str] = set()
    for message in messages:
        called |= {call.id for call in message.calls}
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, Result) and part.call_id in called:
                    out.setdefault(part.call_id, []).append((message, part))
    return out


def _missing(call_id: str, name: str) -> Result:
    words = Text("No result was recorded. It is not known whether the call ran.")
    return Result(call_id=call_id, name=name, status="outcome_unknown", parts=(words,))


def _stray(message: Message, part: Part) -> Message:
    return attrs.evolve(message, role="context", parts=named(part) if isinstance(part, Result) else (part,))


def named(result: Result) -> tuple[Part, ...]:
    """A result as content of a user message, with words that name its call."""
    head = f"Result of an earlier call of {result.name} ({result.status}):"
    return (Text(head), *result.parts)
