"""Loops over Chat Completions: what is sent next is what the provider took from the client that was recorded."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from table_chat import LOOPS, PROVIDERS
from wire_tables import called, with_ids

from treadle.plugin import Message, Request, Result, Text, as_message
from treadle_http.wires.chat import Chat


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what means the same.

    No content, null and empty text are one; white space in arguments does not count. One recorded client sent the
    reasoning under both its names, and plain spaces for narrow ones.
    """
    if message.get("reasoning") == message.get("reasoning_content"):
        message.pop("reasoning_content", None)
    if "reasoning_content" in message:
        message["reasoning"] = message.pop("reasoning_content")
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return {
        name: value.replace("\u202f", " ") if isinstance(value, str) else value
        for name, value in message.items()
        if value not in (None, "")
    }


@pytest.mark.parametrize("name", LOOPS)
async def test_the_next_request_of_a_loop_has_the_shape_that_was_accepted(
    name: str, replay: Any, at: Any, ask: Any
) -> None:
    recording = replay.by_id[f"openai-chat/{name}"]
    model = at(f"{replay.url}/r/openai-chat/{name}/v1", PROVIDERS.get(recording["provider"], recording["provider"]))
    history: list[Message] = [as_message("hello")]
    for number, exchange in enumerate(recording["exchanges"]):
        reply = await ask(model, *history)
        history.append(Message(id=f"a{number}", role="assistant", parts=reply.parts))
        follow = recording["exchanges"][number + 1 :][:1]
        before = len(exchange["request"]["json"]["messages"])
        said = follow[0]["request"]["json"]["messages"][before:] if follow else []
        history = with_ids(history, number)
        for message in said:
            if message["role"] == "tool" and (call := called(history, message["tool_call_id"])):
                part = Result(call_id=call.id, name=call.name, status="ok", parts=(Text(message["content"]),))
                history.append(Message(id=call.id, role="tool", parts=(part,)))
            elif message["role"] == "user":
                history.append(as_message(message["content"]))
        if follow:
            check_accepted(name, said, model, history)


def check_accepted(name: str, said: list[Any], model: Any, history: list[Message]) -> None:
    """What this plugin would send now, against what the recorded client added, message by message."""
    sent = Chat().body(Request(messages=history), "m", model._profile, stream=False)["messages"]
    ours = [comparable(copy.deepcopy(message)) for message in sent]
    for message in said:
        # A tool that the recorded client called by itself, and one it split off as an empty message, are not ours.
        calls = message.get("tool_calls") or [{"id": message.get("tool_call_id", "")}]
        if message == {"role": "assistant", "content": ""} or "auto_load" in calls[0]["id"]:
            continue
        assert comparable(copy.deepcopy(message)) in ours, f"{name}: {message} is not among {ours}"
