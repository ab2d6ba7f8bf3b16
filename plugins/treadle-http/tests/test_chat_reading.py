from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from treadle.plugin import (
    Assembly,
    Call,
    Message,
    Opaque,
    Payload,
    ProviderError,
    Reasoning,
    Reply,
    Request,
    Result,
    Text,
    as_message,
)
from treadle_http.profiles import PROFILES, Profile
from treadle_http.sse import Event, EventReader
from treadle_http.wires.chat import Chat, ChatReader

ANY = Profile(name="any")


def stream(*chunks: Any, profile: Profile = ANY) -> Reply:
    reader, assembly = ChatReader(profile), Assembly()
    for chunk in chunks:
        text = chunk if isinstance(chunk, str) else json.dumps(chunk)
        for piece in reader.event(Event("", text)):
            assembly.feed(piece)
    for piece in reader.end():
        assembly.feed(piece)
    reply = assembly.reply()
    assert reply is not None
    return reply


def whole(value: Any, profile: Profile = ANY) -> Reply:
    reader, assembly = ChatReader(profile), Assembly()
    for piece in [*reader.body(json.dumps(value).encode()), *reader.end()]:
        assembly.feed(piece)
    reply = assembly.reply()
    assert reply is not None
    return reply


def delta(finish: str | None = None, usage: Any = None, **fields: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}
    return out | ({"usage": usage} if usage else {})


def call(index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None) -> Any:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    entry = {"index": index, "id": id, "function": function}
    return {key: value for key, value in entry.items() if value is not None}


def calls(reply: Reply) -> list[tuple[str, str, str]]:
    return [(found.name, found.arguments, found.provider_id) for found in reply.calls]


END = delta("stop")


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


# --- the project's case list -----------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [("", ""), (None, None)], ids=["empty", "missing"])
def test_tc_027_empty_call_ids_do_not_collide(ids: tuple[str | None, str | None]) -> None:
    message = {
        "role": "assistant",
        "tool_calls": [call(id=ids[0], name="f", arguments='{"n":1}'), call(id=ids[1], name="f", arguments='{"n":2}')],
    }
    reply = whole({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert calls(reply) == [("f", '{"n":1}', ""), ("f", '{"n":2}', "")]

    said = [attrs.evolve(found, id=f"kernel-{at}") for at, found in enumerate(reply.calls)]
    results = [
        Message(id=c.id, role="tool", parts=(Result(call_id=c.id, name="f", status="ok", parts=(Text(c.arguments),)),))
        for c in reversed(said)
    ]
    history = [as_message("go"), Message(id="a", role="assistant", parts=tuple(said)), *results]
    sent = [Chat().body(Request(messages=history), "m", ANY, stream=True)["messages"] for _ in range(2)]
    asked, first, second = sent[0][1:]
    assert [entry["id"] for entry in asked["tool_calls"]] == ["kernel-0", "kernel-1"]
    assert (first["tool_call_id"], first["content"]) == ("kernel-0", '{"n":1}')
    assert (second["tool_call_id"], second["content"]) == ("kernel-1", '{"n":2}')
    assert sent[0] == sent[1]


def test_tc_029_two_deltas_with_one_index_in_one_chunk_are_one_call() -> None:
    reply = stream(
        delta(tool_calls=[call(0, "c1", "ls"), call(0, arguments='{"p')]),
        delta(tool_calls=[call(0, arguments='": 1}')]),
        delta("tool_calls"),
    )
    assert calls(reply) == [("ls", '{"p": 1}', "c1")]


def test_tc_029_indexes_0_and_2_are_two_calls() -> None:
    reply = stream(
        delta(tool_calls=[call(0, "c1", "ls", "{}")]),
        delta(tool_calls=[call(2, "c2", "cat", "{}")]),
        delta("tool_calls"),
    )
    assert calls(reply) == [("ls", "{}", "c1"), ("cat", "{}", "c2")]


def test_tc_033_a_character_split_over_pieces_reaches_the_reply_whole() -> None:
    text = "日本🎉é"
    body = b"\xef\xbb\xbf" + b"".join(
        b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n" for chunk in (delta(content=text), END)
    )
    for cut in range(len(body)):
        events = EventReader(10_000)
        reader = ChatReader(ANY)
        pieces = [p for e in (*events.feed(body[:cut]), *events.feed(body[cut:])) for p in reader.event(e)]
        assert [piece.text for piece in pieces] == [text]  # type: ignore[union-attr]


def test_tc_035_meta_only_events_give_exactly_the_two_deltas() -> None:
    noise = b": ping\n\nretry: 3000\n\nid: 7\n\nevent: ping\ndata:\n\n"
    first, second = (b"data: " + json.dumps(delta(content=text)).encode() + b"\n\n" for text in ("a", "b"))
    events, reader = EventReader(10_000), ChatReader(ANY)
    pieces = [piece for event in events.feed(first + noise + second) for piece in reader.event(event)]
    assert [piece.text for piece in pieces] == ["a", "b"]  # type: ignore[union-attr]


def test_tc_037_an_error_inside_a_stream_is_raised_with_the_text_and_the_usage_so_far() -> None:
    reader = ChatReader(ANY)
    reader.event(Event("", json.dumps(delta(content="Par", usage=usage(7, 1)))))
    with pytest.raises(ProviderError) as caught:
        reader.event(Event("error", '{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'))
    error = caught.value
    assert (error.kind, error.message, error.partial) == ("overloaded", "busy", (Text("Par"),))
    assert error.usage is not None and error.usage.input == 7


def test_tc_039_the_last_usage_counts() -> None:
    reply = stream(
        delta(content="a", usage=usage(10, 1)),
        delta(content="b", usage=usage(10, 3)),
        delta(content="c", usage=usage(10, 5)),
        {"choices": [], "usage": usage(10, 5)},
        END,
    )
    assert reply.usage is not None and (reply.usage.input, reply.usage.output) == (10, 5)


def test_tc_049_a_call_cut_off_by_the_limit_keeps_its_finish_and_its_half_arguments() -> None:
    reply = stream(delta(tool_calls=[call(0, "c", "write_file", '{"path":"a","con')]), delta("length"))
    assert reply.finish == "length" and calls(reply) == [("write_file", '{"path":"a","con', "c")]


def test_tc_051_a_content_filter_stop_is_a_refusal() -> None:
    reply = whole({"choices": [{"message": {"role": "assistant", "content": None}, "finish_reason": "content_filter"}]})
    assert (reply.finish, reply.raw, reply.parts) == ("refused", "content_filter", ())


# --- calls ---------------------------------------------------------------------------------------------------


def test_calls_without_an_index_are_told_apart_by_id_and_name() -> None:
    reply = stream(
        delta(tool_calls=[call(None, "a", "f", "{")]),
        delta(tool_calls=[call(None, "a", None, "}")]),
        delta(tool_calls=[call(None, "b", "f", "{}"), call(None, None, "g", "{}"), call(None, None, None, " ")]),
        delta("tool_calls"),
    )
    assert calls(reply) == [("f", "{}", "a"), ("f", "{}", "b"), ("g", "{} ", "")]


def test_a_server_that_says_index_0_for_each_whole_call_made_two() -> None:
    reply = stream(delta(tool_calls=[call(0, "a", "f", "{}"), call(0, "b", "g", "{}")]), delta("tool_calls"))
    assert calls(reply) == [("f", "{}", "a"), ("g", "{}", "b")]


def test_an_id_that_comes_late_or_changes_to_empty_is_the_first_that_was_given() -> None:
    reply = stream(
        delta(tool_calls=[call(0, None, "f", "{")]),
        delta(tool_calls=[call(0, "late", "", "")]),
        delta(tool_calls=[call(0, "", None, "}")]),
        delta("tool_calls"),
    )
    assert calls(reply) == [("f", "{}", "late")]


def test_null_arguments_are_nothing_and_an_object_is_its_text() -> None:
    function = {"name": "f", "arguments": None}
    reply = stream(delta(tool_calls=[{"index": 0, "id": "a", "function": function}]), delta("tool_calls"))
    assert calls(reply) == [("f", "", "a")]
    reply = stream(delta(tool_calls=[call(0, "a", "f", {"x": "é"})]), delta("tool_calls"))
    assert calls(reply) == [("f", '{"x":"é"}', "a")]


def test_the_old_function_call_is_a_call() -> None:
    reply = stream(
        delta(function_call={"name": "f", "arguments": '{"a"'}), delta(function_call={"arguments": ":1}"}), END
    )
    assert calls(reply) == [("f", '{"a":1}', "")]


def test_calls_that_end_with_stop_are_still_calls() -> None:
    reply = stream(delta(tool_calls=[call(0, "a", "f", "{}")]), END)
    assert (reply.finish, reply.raw) == ("calls", "stop")


# --- text, reasoning, refusal ------------------------------------------------------------------------------------


def test_empty_texts_make_no_part() -> None:
    assert stream(delta(content="", role="assistant"), delta(content="", reasoning=None), END).parts == ()


def test_text_and_thought_keep_the_order_in_which_they_came() -> None:
    reply = stream(
        delta(reasoning_content="a"), delta(content="b"), delta(reasoning_content="c"), delta(content="d"), END
    )
    assert reply.parts == (Reasoning("a"), Text("b"), Reasoning("c"), Text("d"))


def test_reasoning_sent_under_two_names_counts_once() -> None:
    assert stream(delta(reasoning="a", reasoning_content="a"), END).parts == (Reasoning("a"),)


def test_a_refusal_is_text_and_the_finish_says_so() -> None:
    reply = stream(delta(refusal="I "), delta(refusal="won't"), END)
    assert (reply.finish, reply.parts) == ("refused", (Text("I won't"),))


def test_reasoning_that_must_go_back_carries_a_payload_of_its_family() -> None:
    reply = stream(delta(reasoning_content="a"), delta(reasoning_content="b"), END, profile=PROFILES["deepseek"])
    assert reply.parts == (Reasoning("ab", Payload("deepseek-chat", '{"reasoning_content":"ab"}')),)


def test_encrypted_reasoning_without_text_is_kept_where_it_stood() -> None:
    detail = {"type": "reasoning.encrypted", "data": "AbC+/=", "id": "r1", "index": 0}
    reply = stream(delta(reasoning_details=[detail]), delta(content="x"), END, profile=PROFILES["openrouter"])
    payload = Payload("openrouter-chat", json.dumps({"reasoning_details": [detail]}, separators=(",", ":")))
    assert reply.parts == (Reasoning("", payload), Text("x"))


def test_an_unknown_content_chunk_is_kept_as_it_is() -> None:
    chunk = {"type": "reference", "reference_ids": [1]}
    content = [{"type": "text", "text": "a"}, chunk, {"type": "text", "text": "b"}]
    reply = stream(delta(content=content), END, profile=PROFILES["mistral"])
    opaque = Opaque(Payload("mistral-chat", '{"type":"reference","reference_ids":[1]}'))
    assert reply.parts == (Text("a"), opaque, Text("b"))


# --- usage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (usage(10, 5), (10, 0, 0, 5, 0)),
        (usage(10, 5, prompt_tokens_details={"cached_tokens": 4}), (6, 4, 0, 5, 0)),
        (usage(10, 5, prompt_cache_hit_tokens=4), (6, 4, 0, 5, 0)),
        (usage(10, 5, prompt_tokens_details={"cached_tokens": 4, "cache_write_tokens": 3}), (3, 4, 3, 5, 0)),
        (usage(10, 5, completion_tokens_details={"reasoning_tokens": 2}), (10, 0, 0, 3, 2)),
        (usage(10, 5, total_tokens=17, completion_tokens_details={"reasoning_tokens": 2}), (10, 0, 0, 5, 2)),
        (usage(10, 5, total_tokens=15, completion_tokens_details={"reasoning_tokens": 2}), (10, 0, 0, 3, 2)),
        (usage(10, 5, completion_tokens_details={"reasoning_tokens": 9}), (10, 0, 0, 0, 5)),
        (usage(10, 5, prompt_tokens_details=None, completion_tokens_details=None), (10, 0, 0, 5, 0)),
        (usage(-3, 5, prompt_tokens_details={"cached_tokens": "x"}), (0, 0, 0, 5, 0)),
    ],
)
def test_usage_counts_each_token_once(raw: Any, expected: tuple[int, ...]) -> None:
    found = stream(delta(content="a"), END, {"choices": [], "usage": raw}).usage
    assert found is not None
    assert (found.input, found.cache_read, found.cache_write, found.output, found.reasoning) == expected
    assert json.loads(found.raw) == raw


# --- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "finish"),
    [("stop", "end"), ("length", "length"), ("model_length", "length"), ("sensitive", "refused"), ("new_word", "end")],
)
def test_a_stop_reason_becomes_one_of_the_kernels(word: str, finish: str) -> None:
    reply = stream(delta(content="a"), delta(word))
    assert (reply.finish, reply.raw) == (finish, word)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("error", "server"), ("insufficient_system_resource", "overloaded"), ("abort", "interrupted")],
)
def test_an_answer_that_the_provider_broke_off_is_no_answer(word: str, kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        stream(delta(content="a"), delta(word))
    assert (caught.value.kind, caught.value.partial) == (kind, (Text("a"),))


def test_done_after_content_is_an_end_where_no_reason_is_ever_given() -> None:
    assert stream(delta(content="a"), "[DONE]").finish == "end"


@pytest.mark.parametrize("chunks", [(), (delta(content=""),), (delta(tool_calls=[call(0, "a", "f", '{"a')]),)])
def test_done_without_a_reason_and_without_whole_content_is_interrupted(chunks: tuple[Any, ...]) -> None:
    with pytest.raises(ProviderError, match="interrupted"):
        stream(*chunks, "[DONE]")


@pytest.mark.parametrize(
    "text",
    ["{", "nonsense", "[]", "5", '{"choices": 3}', '{"choices": ["x"]}', '{"choices": [{"delta": "x"}]}',
     '{"choices": [{"delta": {"content": 5}}]}', '{"choices": [{"delta": {"tool_calls": [1]}}]}',
     '{"choices": [{"delta": {"tool_calls": [{"index": "0"}]}}]}', '{"usage": NaN}', "[" * 100_000],
)  # fmt: skip
def test_an_event_of_another_shape_is_a_server_error_that_keeps_the_text(text: str) -> None:
    with pytest.raises(ProviderError) as caught:
        stream(delta(content="kept"), text)
    assert (caught.value.kind, caught.value.partial) == ("server", (Text("kept"),))
    assert caught.value.raw == text


def test_an_error_in_a_whole_answer_of_status_200_is_raised() -> None:
    with pytest.raises(ProviderError) as caught:
        whole({"error": {"message": "slow down", "code": 429}})
    assert (caught.value.kind, caught.value.status) == ("rate_limit", 429)


@pytest.mark.parametrize("value", [{"detail": "broken"}, {"object": "error", "message": "broken"}])
def test_a_whole_answer_that_is_none_says_what_it_says(value: Any) -> None:
    with pytest.raises(ProviderError, match="broken"):
        whole(value)


def test_other_choices_than_the_first_are_left_alone() -> None:
    both = {"choices": [{"index": 1, "delta": {"content": "x"}}, {"index": 0, "delta": {"content": "a"}}]}
    assert stream(both, END).parts == (Text("a"),)


def test_a_call_part_has_no_id_of_the_kernels_yet() -> None:
    reply = stream(delta(tool_calls=[call(0, "a", "f", "{}")]), END)
    assert reply.parts == (Call(id="", name="f", arguments="{}", provider_id="a"),)
