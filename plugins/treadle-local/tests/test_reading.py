from __future__ import annotations

import pytest

from treadle.plugin import CallDelta, Finish, Json, Piece, ProviderError, ReasoningDelta, TextDelta, Usage
from treadle_local.reading import Reading


def delta(finish: str | None = None, **delta: Json) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def read(*chunks: Json) -> list[Piece]:
    reading = Reading()
    return [*(piece for chunk in chunks for piece in reading.pieces(chunk)), reading.end()]


def test_words_come_as_they_are_sent_and_the_finish_is_last() -> None:
    chunks = (delta(role="assistant", content=None), delta(content="It is"), delta(content=" 42."), delta("stop"))
    assert read(*chunks) == [TextDelta("It is"), TextDelta(" 42."), Finish(finish="end", raw="stop")]


def test_a_call_comes_in_pieces_under_its_index() -> None:
    chunks = (
        delta(tool_calls=[{"index": 0, "id": "x1", "function": {"name": "add", "arguments": "{"}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '"a":1}'}}]),
        delta("tool_calls"),
    )
    assert read(*chunks) == [
        CallDelta(key=0, name="add", arguments="{", provider_id="x1"),
        CallDelta(key=0, arguments='"a":1}'),
        Finish(finish="calls", raw="tool_calls"),
    ]


def test_a_thinking_models_thoughts_are_reasoning() -> None:
    assert read(delta(reasoning_content="Hm."), delta("stop"))[0] == ReasoningDelta("Hm.")


def test_usage_counts_what_came_from_the_cache_once() -> None:
    usage = {"completion_tokens": 8, "prompt_tokens": 496, "prompt_tokens_details": {"cached_tokens": 480}}
    finish = read(delta("stop"), {"choices": [], "usage": usage})[-1]
    raw = '{"completion_tokens":8,"prompt_tokens":496,"prompt_tokens_details":{"cached_tokens":480}}'
    assert isinstance(finish, Finish)
    assert finish.usage == Usage(input=16, cache_read=480, output=8, raw=raw)


def test_an_answer_cut_by_its_bound_says_length() -> None:
    assert read(delta(content="a"), delta("length"))[-1] == Finish(finish="length", raw="length")


def test_an_unknown_reason_to_stop_is_a_fault_that_keeps_the_word() -> None:
    assert read(delta("melted")) == [Finish(finish="fault", raw="melted")]


def test_an_answer_without_a_reason_to_stop_was_interrupted() -> None:
    with pytest.raises(ProviderError) as caught:
        read(delta(content="It is"))
    assert caught.value.kind == "interrupted"


@pytest.mark.parametrize(
    ("code", "type", "kind"),
    [
        (400, "exceed_context_size_error", "context_overflow"),
        (400, "invalid_request_error", "bad_request"),
        (500, "server_error", "server"),
    ],
)
def test_an_error_object_becomes_a_provider_error(code: int, type: str, kind: str) -> None:
    with pytest.raises(ProviderError, match="too much") as caught:
        read({"error": {"code": code, "type": type, "message": "too much"}})
    assert (caught.value.kind, caught.value.status) == (kind, code)
    assert '"message":"too much"' in caught.value.raw
