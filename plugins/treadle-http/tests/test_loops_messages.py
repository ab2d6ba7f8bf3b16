"""Loops over Messages: what is sent next is what the provider took from the client that was recorded."""

from __future__ import annotations

from typing import Any

import pytest
from table_anthropic import LOOPS, PROFILE, WIRE, comparable
from wire_tables import called, with_ids

from treadle.plugin import Message, Request, Result, Text, as_message


@pytest.mark.parametrize("name", LOOPS)
async def test_the_next_request_of_a_messages_loop_is_the_one_that_was_accepted(
    name: str, replay: Any, at: Any, ask: Any
) -> None:
    exchanges = replay.by_id[f"anthropic-messages/{name}"]["exchanges"]
    model = at(f"{replay.url}/r/anthropic-messages/{name}", "anthropic")
    asked = exchanges[0]["request"]["json"]["messages"]
    history = [as_message(comparable(message)["content"][0]["text"]) for message in asked]
    for number, exchange in enumerate(exchanges[:-1]):
        reply = await ask(model, *history)
        history.append(Message(id=f"a{number}", role="assistant", parts=reply.parts))
        history = with_ids(history, number)
        before, after = exchange["request"]["json"]["messages"], exchanges[number + 1]["request"]["json"]["messages"]
        for message in after[len(before) + 1 :]:
            history += answers(history, comparable(message)["content"])
        sent = WIRE.body(Request(messages=history), "m", PROFILE, stream=False)["messages"]
        assert [comparable(message) for message in sent] == [comparable(message) for message in after]


def answers(history: list[Message], blocks: list[Any]) -> list[Message]:
    """The recorded results and words as messages of a session."""
    out = []
    for block in blocks:
        if block["type"] == "text":
            out.append(as_message(block["text"]))
            continue
        call = called(history, block["tool_use_id"])
        assert call is not None
        parts = tuple(Text(inner["text"]) for inner in block["content"])
        result = Result(call_id=call.id, name=call.name, status="ok", parts=parts)
        out.append(Message(id=call.id, role="tool", parts=(result,)))
    return out
