from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.plugin import Assembly, Call, Opaque, Payload, ProviderError, Reasoning, Reply, Text
from treadle_http.profiles import PROFILES
from treadle_http.sse import Event
from treadle_http.wires.messages import MessagesReader, usage_of

ANTHROPIC = PROFILES["anthropic"]


def start(**usage: int) -> Any:
    return {"type": "message_start", "message": {"content": [], "usage": usage}}


def began(index: int, **block: Any) -> Any:
    return {"type": "content_block_start", "index": index, "content_block": block}


def added(index: int, **delta: Any) -> Any:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stopped(index: int) -> Any:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str = "end_turn", **usage: int) -> Any:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


def text(index: int, *words: str) -> list[Any]:
    deltas = [added(index, type="text_delta", text=word) for word in words]
    return [began(index, type="text", text=""), *deltas, stopped(index)]


def fed(reader: MessagesReader, *events: Any) -> Assembly:
    assembly = Assembly()
    for event in events:
        for piece in reader.event(Event(event["type"], json.dumps(event))):
            assembly.feed(piece)
    return assembly


def stream(*events: Any) -> Reply:
    reader = MessagesReader(ANTHROPIC)
    assembly = fed(reader, *events)
    for piece in reader.end():
        assembly.feed(piece)
    reply = assembly.reply()
    assert reply is not None
    return reply


def failure(*events: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        stream(*events)
    return caught.value


def test_tc_031_a_stream_that_just_stops_is_an_interrupted_error_with_the_text_so_far() -> None:
    error = failure(start(), began(0, type="text", text=""), added(0, type="text_delta", text="The answer is"))
    assert (error.kind, error.partial) == ("interrupted", (Text("The answer is"),))


def test_tc_037_an_error_inside_a_stream_keeps_the_text_and_the_usage_so_far() -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    error = failure(start(input_tokens=7, output_tokens=1), *text(0, "Par"), busy)
    assert (error.kind, error.message, error.partial) == ("overloaded", "busy", (Text("Par"),))
    assert error.usage is not None and (error.usage.input, error.usage.output) == (7, 1)


def test_tc_041_counts_of_start_and_end_are_not_added() -> None:
    reply = stream(start(input_tokens=100, output_tokens=1), *text(0, "x"), ended(input_tokens=100, output_tokens=20))
    assert reply.usage is not None and (reply.usage.input, reply.usage.output) == (100, 20)


def test_tc_043_thinking_keeps_its_signature_and_what_is_hidden_its_data() -> None:
    reply = stream(
        start(),
        began(0, type="thinking", thinking="", signature=""),
        added(0, type="thinking_delta", thinking="pl"),
        added(0, type="thinking_delta", thinking="an"),
        added(0, type="signature_delta", signature="sigA"),
        stopped(0),
        began(1, type="redacted_thinking", data="R1"),
        stopped(1),
        began(2, type="tool_use", id="c1", name="f", input={}),
        stopped(2),
        ended("tool_use"),
    )
    assert reply.parts == (
        Reasoning("plan", Payload("anthropic", '{"type":"thinking","thinking":"plan","signature":"sigA"}')),
        Reasoning("", Payload("anthropic", '{"type":"redacted_thinking","data":"R1"}')),
        Call(id="", name="f", arguments="{}", provider_id="c1"),
    )


def test_a_whole_answer_gives_the_same_parts_as_its_stream() -> None:
    thought = {"type": "thinking", "thinking": "plan", "signature": "sigA"}
    content = [thought, {"type": "text", "text": "a"}, {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}}]
    reader, assembly = MessagesReader(ANTHROPIC), Assembly()
    usage = {"input_tokens": 5, "output_tokens": 2}
    body = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": usage}
    for piece in [*reader.body(json.dumps(body).encode()), *reader.end()]:
        assembly.feed(piece)
    streamed = stream(
        start(input_tokens=5),
        began(0, type="thinking", thinking="", signature=""),
        added(0, type="thinking_delta", thinking="plan"),
        added(0, type="signature_delta", signature="sigA"),
        stopped(0),
        *text(1, "a"),
        began(2, type="tool_use", id="c1", name="f", input={}),
        added(2, type="input_json_delta", partial_json='{"x":1}'),
        stopped(2),
        ended("tool_use", output_tokens=2),
    )
    assert assembly.reply() == streamed


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "refused"),
        ("something_new", "end"),
    ],
)
def test_stop_reasons_are_one_set(reason: str, finish: str) -> None:
    reply = stream(start(), *text(0, "x"), ended(reason))
    assert (reply.finish, reply.raw) == (finish, reason)


def test_a_refusal_says_why_in_the_providers_words() -> None:
    event = ended("refusal")
    event["delta"]["stop_details"] = {"explanation": "No such things."}
    assert stream(start(), event).raw == "refusal: No such things."


def test_calls_are_calls_whatever_the_stop_reason_says() -> None:
    call = [began(0, type="tool_use", id="c", name="f"), added(0, type="input_json_delta", partial_json="{}")]
    assert stream(start(), *call, stopped(0), ended("end_turn")).finish == "calls"


def test_a_call_cut_off_by_the_limit_keeps_its_finish_and_its_half_arguments() -> None:
    call = [began(0, type="tool_use", id="c", name="f"), added(0, type="input_json_delta", partial_json='{"a')]
    reply = stream(start(), *call, stopped(0), ended("max_tokens"))
    assert reply.finish == "length" and reply.parts == (Call(id="", name="f", arguments='{"a', provider_id="c"),)


def test_a_call_of_a_program_keeps_who_called() -> None:
    caller = {"type": "code_execution_20260120", "tool_id": "srv1"}
    reply = stream(start(), began(0, type="tool_use", id="c", name="f", caller=caller), stopped(0), ended("tool_use"))
    (call,) = reply.parts
    assert isinstance(call, Call) and call.payload is not None and json.loads(call.payload.data) == {"caller": caller}


def test_blocks_that_are_not_known_are_kept_with_their_deltas() -> None:
    reply = stream(
        start(),
        began(0, type="compaction", content=""),
        added(0, type="compaction_delta", content="sum"),
        added(0, type="compaction_delta", content="mary", more=[1]),
        stopped(0),
        ended(),
    )
    (part,) = reply.parts
    assert isinstance(part, Opaque)
    assert json.loads(part.payload.data) == {"type": "compaction", "content": "summary", "more": [1]}


def test_pings_and_unknown_events_are_passed_over() -> None:
    assert stream({"type": "ping"}, start(), {"type": "news"}, *text(0, "x"), ended()).parts == (Text("x"),)


def test_what_a_first_start_brought_is_taken_back_by_a_second() -> None:
    first = [began(0, type="text", text=""), added(0, type="text_delta", text="old")]
    reply = stream(start(), *first, start(), *text(0, "new"), ended())
    assert reply.text == "new"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_start", "index": 0, "content_block": "x"},
        {"type": "content_block_delta", "index": "0", "delta": {}},
        {"type": "message_delta", "delta": {"stop_reason": 3}},
        [],
    ],
)
def test_an_event_of_another_shape_is_a_server_error_that_names_it(event: Any) -> None:
    reader = MessagesReader(ANTHROPIC)
    with pytest.raises(ProviderError, match="unknown shape") as caught:
        reader.event(Event("", json.dumps(event)))
    assert caught.value.kind == "server" and caught.value.raw == json.dumps(event)


def test_cached_input_stands_beside_the_rest() -> None:
    raw = {"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 7, "output_tokens": 2}
    usage = usage_of(raw)
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.tokens) == (3, 5, 7, 2, 17)
    assert json.loads(usage.raw) == raw
