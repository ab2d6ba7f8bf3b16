from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.plugin import Assembly, Call, Opaque, ProviderError, Reasoning, Reply, Text
from treadle_http.profiles import PROFILES
from treadle_http.sse import Event
from treadle_http.wires.responses import ResponsesReader, usage_of

OPENAI = PROFILES["openai-responses"]


def added(at: int, **item: Any) -> Any:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def delta(kind: str, at: int, text: str, **more: Any) -> Any:
    return {"type": f"response.{kind}.delta", "output_index": at, "delta": text, **more}


def done(at: int, **item: Any) -> Any:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def ended(kind: str = "completed", *output: Any, **more: Any) -> Any:
    return {"type": f"response.{kind}", "response": {"status": kind, "output": list(output), **more}}


def message(*texts: str, **more: Any) -> Any:
    content = [{"type": "output_text", "text": text} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, **more}


def call(arguments: str = "{}", **more: Any) -> Any:
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": arguments, **more}


def stream(*events: Any, profile: Any = OPENAI) -> Reply:
    reader, assembly = ResponsesReader(profile), Assembly()
    for event in events:
        for piece in reader.event(Event(event["type"], json.dumps(event))):
            assembly.feed(piece)
    for piece in reader.end():
        assembly.feed(piece)
    reply = assembly.reply()
    assert reply is not None
    return reply


def whole(body: Any) -> Reply:
    reader, assembly = ResponsesReader(OPENAI), Assembly()
    for piece in [*reader.body(json.dumps(body).encode()), *reader.end()]:
        assembly.feed(piece)
    reply = assembly.reply()
    assert reply is not None
    return reply


def failure(*events: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        stream(*events)
    return caught.value


def test_tc_049_a_call_cut_off_by_the_limit_is_no_call_to_run_and_its_usage_counts() -> None:
    usage = {"input_tokens": 9, "output_tokens": 4}
    reply = stream(
        added(0, type="function_call", id="fc_1", call_id="c1", name="write_file", arguments=""),
        delta("function_call_arguments", 0, '{"path":"a","con'),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=usage),
    )
    assert (reply.finish, reply.raw) == ("length", "max_output_tokens")
    assert reply.parts == (Call(id="", name="write_file", arguments='{"path":"a","con', provider_id="c1"),)
    assert reply.usage is not None and (reply.usage.input, reply.usage.output) == (9, 4)


def test_a_stream_without_its_last_event_is_an_interrupted_error_with_what_had_arrived() -> None:
    item = message("The answer is 42.")
    error = failure(added(0, type="message"), delta("output_text", 0, "The answer is 42."), done(0, **item))
    assert (error.kind, error.partial) == ("interrupted", (Text("The answer is 42."),))


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "error": {"type": "server_error", "message": "boom"}},
        {"type": "error", "code": "server_error", "message": "boom", "param": None},
        ended("failed", error={"code": "server_error", "message": "boom"}, usage={"input_tokens": 3}),
    ],
)
def test_an_error_inside_a_stream_is_raised_with_the_text_so_far(event: Any) -> None:
    error = failure(added(0, type="message"), delta("output_text", 0, "Par"), event)
    assert (error.kind, error.message, error.partial) == ("server", "boom", (Text("Par"),))


def test_a_whole_answer_that_failed_is_an_error_with_its_usage() -> None:
    with pytest.raises(ProviderError, match="slow down") as caught:
        whole({
            "status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}, "output": [],
            "usage": {"input_tokens": 3, "output_tokens": 0},
        })  # fmt: skip
    assert caught.value.kind == "rate_limit" and caught.value.usage is not None and caught.value.usage.input == 3


@pytest.mark.parametrize("status", ["queued", "in_progress", ""])
def test_an_answer_that_is_still_being_made_is_not_whole(status: str) -> None:
    with pytest.raises(ProviderError, match="interrupted"):
        whole({"status": status, "output": [message("a")]})


@pytest.mark.parametrize(
    ("kind", "reason", "finish"),
    [
        ("completed", "", "end"),
        ("incomplete", "max_output_tokens", "length"),
        ("incomplete", "content_filter", "refused"),
        ("incomplete", "something_new", "length"),
    ],
)
def test_endings_are_one_set(kind: str, reason: str, finish: str) -> None:
    reply = stream(ended(kind, message("x"), incomplete_details={"reason": reason} if reason else None))
    assert (reply.finish, reply.raw, reply.text) == (finish, reason or kind, "x")


def test_a_refusal_is_text_and_the_finish_says_so() -> None:
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I won't"}]}
    reply = stream(added(0, type="message"), delta("refusal", 0, "I "), delta("refusal", 0, "won't"), done(0, **item),
                   ended("completed", item))  # fmt: skip
    assert (reply.finish, reply.parts) == ("refused", (Text("I won't"),))


def test_items_that_overlap_keep_the_order_in_which_they_began() -> None:
    reply = stream(
        added(0, type="reasoning", id="r"),
        added(1, type="message", id="m"),
        delta("output_text", 1, "4"),
        done(1, **message("4")),
        delta("reasoning_text", 0, "2+2"),
        done(0, type="reasoning", id="r", content=[{"type": "reasoning_text", "text": "2+2"}]),
        ended(),
    )
    assert [type(part) for part in reply.parts] == [Reasoning, Text] and reply.text == "4"


def test_items_without_an_index_are_told_apart_by_their_ids() -> None:
    reply = stream(
        {"type": "response.output_item.added", "item": call("", id="a", call_id="c1")},
        {"type": "response.output_item.added", "item": call("", id="b", call_id="c2")},
        {"type": "response.function_call_arguments.delta", "item_id": "a", "delta": '{"x":1}'},
        {"type": "response.function_call_arguments.delta", "item_id": "b", "delta": '{"x":2}'},
        ended(),
    )
    assert [(each.provider_id, each.arguments) for each in reply.calls] == [("c1", '{"x":1}'), ("c2", '{"x":2}')]


def test_ids_that_change_between_events_do_not_matter_where_there_is_an_index() -> None:
    reply = stream(
        added(0, **call("", id="a")),
        delta("function_call_arguments", 0, "{}", item_id="other"),
        done(0, **call("{}", id="third")),
        ended(),
    )
    assert [(each.name, each.arguments) for each in reply.calls] == [("f", "{}")]


def test_the_whole_item_counts_more_than_its_deltas() -> None:
    reply = stream(
        added(0, type="message"),
        delta("output_text", 0, "Hel"),
        done(0, **message("Hello")),
        added(1, **call("")),
        delta("function_call_arguments", 1, '{"a'),
        done(1, **call('{"a":1}')),
        ended(),
    )
    assert reply.text == "Hello" and reply.calls[0].arguments == '{"a":1}'


def test_what_came_only_in_the_last_event_is_not_lost() -> None:
    assert stream(ended("completed", message("a"), call())).parts == (
        Text("a"), Call(id="", name="f", arguments="{}", provider_id="c1"),
    )  # fmt: skip


def test_encrypted_reasoning_goes_back_with_all_that_follows_it() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "AbC+/="}
    reply = stream(ended("completed", thought, message("a"), call()))
    assert [part.payload is not None and json.loads(part.payload.data)["id"] for part in reply.parts] == [
        "rs_1", "msg_1", "fc_1",
    ]  # fmt: skip
    assert {part.payload.family for part in reply.parts if part.payload} == {"openai-responses"}


def test_a_summary_alone_cannot_go_back_so_nothing_is_kept_for_it() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    reply = stream(ended("completed", thought, message("a"), call()))
    assert [part.payload for part in reply.parts] == [None, None, None]


def test_parts_of_a_summary_are_paragraphs() -> None:
    reply = stream(
        added(0, type="reasoning", id="r"),
        delta("reasoning_summary_text", 0, "a", summary_index=0),
        delta("reasoning_summary_text", 0, "b", summary_index=1),
        ended(),
    )
    assert reply.parts == (Reasoning("a\n\nb"),)


def test_items_that_are_not_known_are_kept_as_they_are() -> None:
    item = {"type": "image_generation_call", "id": "ig_1", "result": "AAAA"}
    (part,) = stream(ended("completed", item)).parts
    assert isinstance(part, Opaque) and json.loads(part.payload.data) == item


def test_probabilities_of_tokens_are_not_kept() -> None:
    item = message(phase="commentary")
    item["content"] = [{"type": "output_text", "text": "a", "logprobs": [{"token": "a"}]}]
    (part,) = stream(ended("completed", item)).parts
    assert part.payload is not None and "logprobs" not in part.payload.data


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_item.added", "output_index": "0", "item": {}},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "content": "x"}},
        {"type": "response.completed", "response": {"output": {}}},
        {"type": 7},
    ],
)
def test_an_event_of_another_shape_is_a_server_error_that_names_it(event: Any) -> None:
    reader = ResponsesReader(OPENAI)
    with pytest.raises(ProviderError, match="unknown shape") as caught:
        reader.event(Event("", json.dumps(event)))
    assert caught.value.kind == "server" and caught.value.raw == json.dumps(event)


def test_cached_input_stands_inside_the_input_and_reasoning_inside_the_output() -> None:
    usage = usage_of({
        "input_tokens": 10, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
        "output_tokens": 8, "output_tokens_details": {"reasoning_tokens": 5},
    })  # fmt: skip
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == (3, 4, 3, 3, 5)
    assert usage.tokens == 18
