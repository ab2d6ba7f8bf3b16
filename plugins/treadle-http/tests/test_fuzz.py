"""Whatever bytes come: a reply or a ProviderError, and never more memory than the stream itself asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.plugin import Assembly, ProviderError
from treadle_http.errors import error_in_answer, error_of
from treadle_http.profiles import PROFILES
from treadle_http.sse import BadStream, EventReader
from treadle_http.wires.chat import ChatReader
from treadle_http.wires.gemini import GeminiReader
from treadle_http.wires.messages import MessagesReader
from treadle_http.wires.responses import ResponsesReader

LIMIT = 4096

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "delta", "message", "content", "index", "tool_calls", "function", "name", "arguments", "id",
             "finish_reason", "usage", "error", "code", "type", "text", "thinking", "reasoning_details", "refusal",
             "prompt_tokens", "details", "metadata", "raw", "x_groq", "status"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip
deltas = st.fixed_dictionaries({}, optional={
    "content": json_values, "refusal": json_values, "reasoning": json_values, "reasoning_content": json_values,
    "reasoning_details": json_values, "tool_calls": st.lists(json_values, max_size=3) | json_values,
    "function_call": json_values,
})  # fmt: skip
chunks = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries({"delta": deltas}, optional={"finish_reason": json_values}), max_size=2
        )
    },
    optional={"usage": json_values, "error": json_values},
)


blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "redacted_thinking", "server_tool_use"]) | json_values},
    optional=dict.fromkeys(("text", "thinking", "signature", "id", "name", "input", "citations"), json_values),
)
block_events = st.fixed_dictionaries(
    {"type": st.sampled_from(["message_start", "content_block_start", "content_block_delta", "content_block_stop",
                              "message_delta", "message_stop", "error"])},
    optional={
        "index": st.integers(0, 2) | json_values, "content_block": blocks, "usage": json_values, "message": json_values,
        "delta": st.dictionaries(st.sampled_from(["type", "text", "thinking", "signature", "partial_json", "citation",
                                                  "stop_reason", "stop_details"]), json_values, max_size=3),
    },
)  # fmt: skip
items = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "web_search_call"]) | json_values},
    optional=dict.fromkeys(("id", "call_id", "name", "arguments", "content", "summary", "phase"), json_values),
)
item_events = st.fixed_dictionaries(
    {"type": st.sampled_from(["response.output_item.added", "response.output_item.done", "response.output_text.delta",
                              "response.reasoning_text.delta", "response.reasoning_summary_text.delta",
                              "response.function_call_arguments.delta", "response.content_part.added",
                              "response.completed", "response.incomplete", "response.failed", "error"])},
    optional={
        "output_index": st.integers(0, 2) | json_values, "item": items, "item_id": json_values, "delta": json_values,
        "content_index": st.integers(0, 1) | json_values,
        "response": st.fixed_dictionaries({"output": st.lists(items, max_size=2)}, optional={
            "status": st.just("completed") | json_values, "usage": json_values, "error": json_values,
            "incomplete_details": json_values,
        }),
    },
)  # fmt: skip
gemini_parts = st.dictionaries(
    st.sampled_from(["text", "thought", "thoughtSignature", "functionCall", "inlineData"]),
    json_values | st.fixed_dictionaries({}, optional={
        "name": st.text(max_size=3), "args": json_values, "id": json_values, "willContinue": st.booleans(),
        "partialArgs": st.lists(st.fixed_dictionaries({"jsonPath": st.text("$.[]'\"a0", max_size=8)},
                                                      optional={"stringValue": json_values}), max_size=3),
    }),
    max_size=3,
)  # fmt: skip
candidates = st.fixed_dictionaries(
    {"candidates": st.lists(
        st.fixed_dictionaries({"content": st.fixed_dictionaries({"parts": st.lists(gemini_parts, max_size=3)})},
                              optional={"finishReason": st.sampled_from(["STOP", "SAFETY"]) | json_values}),
        max_size=2,
    )},
    optional={"usageMetadata": json_values, "promptFeedback": json_values},
)  # fmt: skip
READERS: dict[str, Callable[[], Any]] = {
    "openai": lambda: ChatReader(PROFILES["openai"]),
    "deepseek": lambda: ChatReader(PROFILES["deepseek"]),
    "mistral": lambda: ChatReader(PROFILES["mistral"]),
    "openrouter": lambda: ChatReader(PROFILES["openrouter"]),
    "anthropic": lambda: MessagesReader(PROFILES["anthropic"]),
    "gemini": lambda: GeminiReader(PROFILES["gemini"]),
    "openai-responses": lambda: ResponsesReader(PROFILES["openai-responses"]),
}
WIRES = {
    "openai-chat": "openrouter",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai-responses",
    "gemini": "gemini",
}


def drive(pieces: list[bytes], provider: str) -> None:
    events, reader, assembly = EventReader(LIMIT), READERS[provider](), Assembly()
    try:
        for found in [*(events.feed(piece) for piece in pieces), events.end()]:
            for event in found:
                for part in reader.event(event):
                    assembly.feed(part)
        for part in reader.end():
            assembly.feed(part)
    except BadStream as error:
        assert isinstance(reader.bad_stream(str(error)), ProviderError)
        return
    except ProviderError as error:
        assert str(error)
        return
    assert assembly.reply() is not None


providers = st.sampled_from(list(READERS))


@given(st.lists(st.binary(max_size=60), max_size=12), providers)
def test_arbitrary_bytes_are_a_reply_or_a_provider_error(pieces: list[bytes], provider: str) -> None:
    drive(pieces, provider)


@given(st.lists(chunks | block_events | item_events | candidates | json_values, max_size=6), providers)
@settings(max_examples=300)
def test_arbitrary_events_are_a_reply_or_a_provider_error(values: list[Any], provider: str) -> None:
    drive([b"data: " + json.dumps(value).encode() + b"\n\n" for value in values], provider)


@given(
    json_values
    | st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"message": deltas}))})
    | candidates
    | st.fixed_dictionaries({"output": st.lists(items | json_values)}, optional={"status": json_values})
    | st.fixed_dictionaries({"content": st.lists(blocks | json_values)}, optional={"stop_reason": json_values}),
    providers,
)
@settings(max_examples=200)
def test_an_arbitrary_whole_answer_is_a_reply_or_a_provider_error(value: Any, provider: str) -> None:
    reader = READERS[provider]()
    try:
        pieces = [*reader.body(json.dumps(value).encode()), *reader.end()]
    except ProviderError:
        return
    assert pieces


@pytest.mark.parametrize("wire", WIRES)
@given(st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_recording_is_a_reply_or_a_provider_error(
    wire: str, recorded: dict[str, list[bytes]], data: st.DataObject
) -> None:
    body = bytearray(data.draw(st.sampled_from(recorded[wire]))[:20_000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(body) - 1)))
        change = data.draw(st.sampled_from(["flip", "cut", "drop", "double"]))
        if change == "flip":
            body[at : at + 1] = data.draw(st.binary(min_size=1, max_size=2))
        elif change == "cut":
            del body[at:]
        elif change == "drop":
            del body[at : at + data.draw(st.integers(1, 80))]
        else:
            body[at:at] = body[at : at + data.draw(st.integers(1, 80))]
    events, reader = EventReader(1_000_000), READERS[WIRES[wire]]()
    try:
        for event in [*events.feed(bytes(body)), *events.end()]:
            reader.event(event)
        reader.end()
    except (ProviderError, BadStream):
        pass


@given(
    st.integers(100, 999), st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text()), json_values
)
@settings(max_examples=150)
def test_any_refusal_is_a_provider_error(status: int, headers: dict[str, str], value: Any) -> None:
    assert isinstance(error_of(status, headers, json.dumps(value).encode()), ProviderError)
    assert isinstance(error_in_answer(value, ""), ProviderError)


@given(st.integers(100, 999), st.binary())
def test_any_refusal_in_bytes_is_a_provider_error(status: int, body: bytes) -> None:
    assert str(error_of(status, {}, body))


@given(st.lists(st.binary(min_size=1, max_size=500).map(lambda data: data.replace(b"\n", b"x")), max_size=40))
def test_the_reader_holds_no_more_than_its_limit_and_one_piece(pieces: list[bytes]) -> None:
    events = EventReader(LIMIT)
    for piece in pieces:
        try:
            events.feed(b"data:" + piece)
        except BadStream:
            return
        assert len(events._buffer) + events._size <= LIMIT
