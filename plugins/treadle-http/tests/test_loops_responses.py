"""Loops over Responses: what is sent next is what the provider took from the client that was recorded."""

from __future__ import annotations

from typing import Any

import pytest
from table_responses import LOOPS, PROFILE, PROVIDERS, WIRE, comparable
from wire_tables import called, with_ids

from treadle.plugin import Message, Request, Result, Text, as_message
from treadle_http.profiles import PROFILES


def ids(items: list[Any]) -> list[str]:
    return [item["id"] for item in items if "id" in item]


@pytest.mark.parametrize("name", LOOPS)
async def test_the_next_request_of_a_responses_loop_is_the_one_that_was_accepted(
    name: str, replay: Any, at: Any, ask: Any
) -> None:
    recording = replay.by_id[f"openai-responses/{name}"]
    exchanges, provider = recording["exchanges"], PROVIDERS[recording["provider"]]
    model = at(f"{replay.url}/r/openai-responses/{name}/v1", provider)
    asked = [comparable(item) for item in exchanges[0]["request"]["json"]["input"] if item["role"] != "system"]
    history = [as_message("".join(item["content"])) for item in asked]
    for number, exchange in enumerate(exchanges[:-1]):
        reply = await ask(model, *history)
        history.append(Message(id=f"a{number}", role="assistant", parts=reply.parts))
        history = with_ids(history, number)
        before, after = exchange["request"]["json"]["input"], exchanges[number + 1]["request"]["json"]["input"]
        history += answers(history, after[len(before) :])
        sent = WIRE.body(Request(messages=history), "m", PROFILES[provider], stream=False)["input"]
        # An empty message stands for nothing, and instructions are not items here.
        stands = [item for item in map(comparable, after) if item.get("role") != "system"]
        wanted = [item for item in stands if item.get("content") != [""]]
        assert [comparable(item) for item in sent] == wanted
        assert PROFILE.family != model.family or set(ids(after)) <= set(ids(sent))


def answers(history: list[Message], items: list[Any]) -> list[Message]:
    """The recorded results and words as messages of a session."""
    out = []
    for item in items:
        if item.get("role") == "user":
            out.append(as_message(item["content"]))
        elif item.get("type") == "function_call_output":
            call = called(history, item["call_id"])
            assert call is not None
            result = Result(call_id=call.id, name=call.name, status="ok", parts=(Text(item["output"]),))
            out.append(Message(id=call.id, role="tool", parts=(result,)))
    return out
