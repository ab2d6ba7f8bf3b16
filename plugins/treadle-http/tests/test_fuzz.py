"""Whatever bytes come: a reply or a ProviderError, and never more memory than the stream itself asks for."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.plugin import Assembly, ProviderError
from treadle_http.errors import error_in_answer, error_of
from treadle_http.profiles import PROFILES
from treadle_http.sse import BadStream, EventReader
from treadle_http.wires.chat import ChatReader

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


def drive(pieces: list[bytes], provider: str) -> None:
    events, reader, assembly = EventReader(LIMIT), ChatReader(PROFILES[provider]), Assembly()
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


providers = st.sampled_from(["openai", "deepseek", "mistral", "openrouter"])


@given(st.lists(st.binary(max_size=60), max_size=12), providers)
def test_arbitrary_bytes_are_a_reply_or_a_provider_error(pieces: list[bytes], provider: str) -> None:
    drive(pieces, provider)


@given(st.lists(chunks | json_values, max_size=5), providers)
@settings(max_examples=150)
def test_arbitrary_events_are_a_reply_or_a_provider_error(values: list[Any], provider: str) -> None:
    drive([b"data: " + json.dumps(value).encode() + b"\n\n" for value in values], provider)


@given(
    json_values | st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"message": deltas}))}), providers
)
@settings(max_examples=150)
def test_an_arbitrary_whole_answer_is_a_reply_or_a_provider_error(value: Any, provider: str) -> None:
    reader = ChatReader(PROFILES[provider])
    try:
        pieces = [*reader.body(json.dumps(value).encode()), *reader.end()]
    except ProviderError:
        return
    assert pieces


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_mutated_recording_is_a_reply_or_a_provider_error(recorded: list[bytes], data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from(recorded))[:20_000])
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
    events, reader = EventReader(1_000_000), ChatReader(PROFILES["openrouter"])
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
