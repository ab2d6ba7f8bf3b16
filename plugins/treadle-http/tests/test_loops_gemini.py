"""Loops over Gemini: what is sent next is what the provider took from the client that was recorded."""

from __future__ import annotations

from typing import Any

import pytest
from table_gemini import LOOPS, PROFILE, WIRE, comparable, words
from wire_tables import with_ids

from treadle.plugin import Message, Request, Result, Text, as_message


@pytest.mark.parametrize("name", LOOPS)
async def test_the_next_request_of_a_gemini_loop_is_the_one_that_was_accepted(
    name: str, replay: Any, at: Any, ask: Any
) -> None:
    recording = replay.by_id[f"gemini/{name}"]
    exchanges = recording["exchanges"]
    model = at(f"{replay.url}/r/gemini/{name}", "gemini")
    history = [as_message(each["parts"][0]["text"]) for each in exchanges[0]["request"]["json"]["contents"]]
    for number, exchange in enumerate(exchanges[:-1]):
        reply = await ask(model, *history)
        history.append(Message(id=f"a{number}", role="assistant", parts=reply.parts))
        history = with_ids(history, number)
        before, after = exchange["request"]["json"]["contents"], exchanges[number + 1]["request"]["json"]["contents"]
        history += answers(history[-1], after[len(before) + 1 :])
        sent = WIRE.body(Request(messages=history), recording["model"], PROFILE, stream=False)["contents"]
        assert [comparable(content) for content in sent] == [comparable(content) for content in after]


def answers(asked: Message, contents: list[Any]) -> list[Message]:
    """The recorded results and words as messages of a session."""
    out, waiting = [], list(asked.calls)
    for part in (part for content in contents for part in content["parts"]):
        if "text" in part:
            out.append(as_message(part["text"]))
            continue
        call = waiting.pop(0)
        given = part["functionResponse"]["response"]
        parts = (Text(words(given)),) if given else ()
        out.append(
            Message(id=call.id, role="tool", parts=(Result(call_id=call.id, name=call.name, status="ok", parts=parts),))
        )
    return out
