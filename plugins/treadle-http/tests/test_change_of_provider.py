"""A session that changes provider in the middle: what each wire makes of answers that all four wires gave."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import table_anthropic
import table_chat
import table_gemini
import table_responses
from wire_tables import with_ids

from treadle.codec import dump_data, load_data
from treadle.plugin import (
    AssistantMessage,
    Call,
    Message,
    Payload,
    Reasoning,
    Request,
    Result,
    Text,
    as_message,
)
from treadle_http.profiles import PROFILES, Profile

ASKED = [
    ("anthropic-messages/anthropic-thinking-tool-loop-stream", "anthropic"),
    ("openai-responses/openai-encrypted-reasoning-parallel-tools", "openai-responses"),
    ("gemini/gemini-parallel-tools-loop", "gemini"),
    ("openai-chat/deepseek-reasoning-tools-loop", "deepseek"),
]
WIRES = {
    "anthropic": table_anthropic.WIRE,
    "openai-responses": table_responses.WIRE,
    "gemini": table_gemini.WIRE,
    "deepseek": table_chat.WIRE,
    "mistral": table_chat.WIRE,
}


async def history(replay: Any, at: Any, ask: Any) -> list[Message]:
    """A session in which each provider in turn thought, called tools and got its results."""
    out: list[Message] = []
    for number, (name, provider) in enumerate(ASKED):
        out.append(as_message(f"question {number}"))
        reply = await ask(at(f"{replay.url}/r/{name}/v1", provider))
        out = with_ids([*out, Message(id=f"a{number}", role="assistant", parts=reply.parts)], number)
        for call in out[-1].calls:
            result = Result(call_id=call.id, name=call.name, status="ok", parts=(Text(f"result of {call.id}"),))
            out.append(Message(id=f"r-{call.id}", role="tool", parts=(result,)))
    return out


def strings(value: Any) -> set[str]:
    """All texts of some length in JSON, signatures among them."""
    if isinstance(value, dict):
        return {text for inner in value.values() for text in strings(inner)}
    if isinstance(value, list):
        return {text for inner in value for text in strings(inner)}
    return {value} if isinstance(value, str) and len(value) > 100 else set()


def secrets(messages: list[Message], family: str) -> set[str]:
    payloads = [part.payload for message in messages for part in message.parts if part.payload is not None]
    found = [strings(json.loads(payload.data)) for payload in payloads if payload.family == family]
    return {text for texts in found for text in texts}


def pairs_of_chat(body: Any) -> list[tuple[list[str], list[str]]]:
    out: list[tuple[list[str], list[str]]] = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            out.append(([call["id"] for call in message.get("tool_calls", ())], []))
        elif message["role"] == "tool":
            out[-1][1].append(message["tool_call_id"])
    return out


def pairs_of_messages(body: Any) -> list[tuple[list[str], list[str]]]:
    out: list[tuple[list[str], list[str]]] = []
    for message in body["messages"]:
        blocks = message["content"]
        if message["role"] == "assistant":
            out.append(([block["id"] for block in blocks if block["type"] == "tool_use"], []))
        else:
            for block in blocks:
                if block["type"] == "tool_result":
                    out[-1][1].append(block["tool_use_id"])
    return out


def pairs_of_responses(body: Any) -> list[tuple[list[str], list[str]]]:
    items = body["input"]
    return [(
        [item["call_id"] for item in items if item.get("type") == "function_call"],
        [item["call_id"] for item in items if item.get("type") == "function_call_output"],
    )]  # fmt: skip


def pairs_of_gemini(body: Any) -> list[tuple[list[str], list[str]]]:
    out: list[tuple[list[str], list[str]]] = []
    for content in body["contents"]:
        calls = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
        results = [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]
        if content["role"] == "model":
            out.append((calls, []))
        elif results:
            out[-1][1].extend(results)
    return out


PAIRS: dict[str, Callable[[Any], list[tuple[list[str], list[str]]]]] = {
    "anthropic": pairs_of_messages,
    "openai-responses": pairs_of_responses,
    "gemini": pairs_of_gemini,
    "deepseek": pairs_of_chat,
    "mistral": pairs_of_chat,
}


def body_of(provider: str, messages: list[Message]) -> Any:
    profile: Profile = PROFILES[provider]
    return WIRES[provider].body(Request(messages=messages), "model-1", profile, stream=False)


@pytest.mark.parametrize("provider", WIRES)
async def test_each_call_meets_its_result_whoever_made_it(provider: str, replay: Any, at: Any, ask: Any) -> None:
    messages = await history(replay, at, ask)
    pairs = PAIRS[provider](body_of(provider, [*messages, as_message("go on")]))
    assert sum(len(calls) for calls, _ in pairs) == 6
    assert all(calls == results for calls, results in pairs)


@pytest.mark.parametrize("provider", WIRES)
async def test_what_is_opaque_goes_to_its_own_family_and_to_no_other(
    provider: str, replay: Any, at: Any, ask: Any
) -> None:
    messages = await history(replay, at, ask)
    sent = strings(body_of(provider, messages))
    for other in ("anthropic", "openai-responses", "gemini", "deepseek"):
        kept = secrets(messages, PROFILES[other].family)
        assert kept or other == "deepseek"
        assert kept <= sent if other == provider else not kept & sent


@pytest.mark.parametrize("provider", WIRES)
def test_calls_that_share_an_id_or_have_odd_names_and_arguments_can_be_sent_to_all(provider: str) -> None:
    calls = [
        Call(id="0190-a", name="web.search", arguments='{"bad', provider_id="0"),
        Call(id="0190-b", name="f", arguments="[1]", provider_id="0", payload=Payload("nobody", "not even JSON")),
    ]
    messages = [as_message("a")]
    for call in calls:
        messages.append(Message(id=f"m{call.id}", role="assistant", parts=(Reasoning("hm"), call)))
        result = Result(call_id=call.id, name=call.name, status="unknown_tool", parts=())
        messages.append(Message(id=f"r{call.id}", role="tool", parts=(result,)))
    pairs = PAIRS[provider](body_of(provider, messages))
    found = [id for calls, _ in pairs for id in calls]
    assert len(set(found)) == 2 and all(calls == results for calls, results in pairs)


@pytest.mark.parametrize("provider", WIRES)
def test_history_that_a_hook_tore_apart_is_whole_again(provider: str) -> None:
    call = Call(id="k1", name="f", arguments="{}")
    result = Result(call_id="k1", name="f", status="ok", parts=(Text("late"),))
    stray = attrs.evolve(result, call_id="k9")
    messages = [
        as_message("a"),
        Message(id="m", role="assistant", parts=(call,)),
        as_message("b"),
        Message(id="r", role="tool", parts=(result,)),
        Message(id="s", role="tool", parts=(stray,)),
    ]
    body = body_of(provider, messages)
    assert all(calls == results for calls, results in PAIRS[provider](body))
    assert json.dumps(body).count("late") == 2  # the stray one's words are kept


def stored(message: Message) -> Message:
    """The message after a stay in a store that keeps text."""
    if message.role != "assistant":
        return message
    said = AssistantMessage(message=message, finish="calls", usage=None)
    loaded = load_data("assistant/message", dump_data(said))
    assert isinstance(loaded, AssistantMessage)
    return loaded.message


@pytest.mark.parametrize("provider", WIRES)
async def test_tc_043_a_session_from_a_store_is_sent_byte_for_byte_as_before(
    provider: str, replay: Any, at: Any, ask: Any
) -> None:
    messages = await history(replay, at, ask)
    before = body_of(provider, messages)
    assert json.dumps(body_of(provider, [stored(message) for message in messages])) == json.dumps(before)
