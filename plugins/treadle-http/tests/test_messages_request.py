from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

import pytest

from treadle.plugin import (
    Call,
    Document,
    Image,
    Message,
    Opaque,
    OutputSchema,
    Part,
    Payload,
    ProviderError,
    Reasoning,
    Request,
    Result,
    Text,
    ToolSchema,
    as_message,
)
from treadle_http.client import _encoded
from treadle_http.profiles import PROFILES, Profile
from treadle_http.wires.messages import Messages

ANTHROPIC = PROFILES["anthropic"]
PLAIN = Profile(name="any", wire="messages", id_pattern=r"[a-zA-Z0-9_-]+")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
MARK = {"type": "ephemeral"}
HI = as_message("hi")


def body(*messages: Message, profile: Profile = PLAIN, stream: bool = True, **fields: Any) -> Any:
    return Messages().body(Request(messages=messages or (HI,), **fields), "model-1", profile, stream=stream)


def sent(*messages: Message, profile: Profile = PLAIN) -> list[Any]:
    found: list[Any] = body(*messages, profile=profile)["messages"]
    return found


def said(*parts: Part, id: str = "a") -> Message:
    return Message(id=id, role="assistant", parts=parts)


def asked(id: str = "k1", provider_id: str = "", arguments: str = "{}", name: str = "look") -> Call:
    return Call(id=id, name=name, arguments=arguments, provider_id=provider_id)


def answer(id: str = "k1", *parts: Part, status: Any = "ok") -> Message:
    result = Result(call_id=id, name="look", status=status, parts=parts)
    return Message(id=f"r-{id}", role="tool", parts=(result,))


def user(*parts: Part) -> Message:
    return Message(id="u", role="user", parts=parts)


def kept(block: Any, family: str = "anthropic") -> Payload:
    return Payload(family, json.dumps(block))


# --- instructions, words, media ---------------------------------------------------------------------------


def test_instructions_are_system_blocks_in_their_order() -> None:
    request = body(HI, instructions=(Text("One."), Text(" "), Text("Two.")))
    assert request["system"] == [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert "system" not in body(HI)


def test_context_is_user_content() -> None:
    assert sent(Message(id="c", role="context", parts=(Text("note"),))) == [
        {"role": "user", "content": [{"type": "text", "text": "note"}]}
    ]


def test_white_space_alone_is_no_block_and_no_message() -> None:
    assert [message["role"] for message in sent(HI, said(Text(" \n")), user(Text("")), as_message("more"))] == [
        "user", "user",
    ]  # fmt: skip


def test_images_and_documents_name_their_source() -> None:
    text = base64.b64encode("Größe".encode()).decode()
    parts = (
        Image("https://x.example/a.png"),
        Image("data:image/png;base64,AA=="),
        Document("https://x.example/a.pdf", name="a.pdf"),
        Document("data:application/pdf;base64,AA=="),
        Document(f"data:text/markdown;base64,{text}"),
        Document("data:,a%20b"),
        Document("file_123"),
    )
    assert sent(user(*parts))[0]["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"type": "document", "source": {"type": "url", "url": "https://x.example/a.pdf"}, "title": "a.pdf"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Größe"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a b"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_123"}},
    ]


@pytest.mark.parametrize("part", [Image("sha256:ab"), Document("data:no-comma"), Document("data:text/plain;base64,!")])
def test_media_that_cannot_be_sent_is_a_clear_error(part: Part) -> None:
    with pytest.raises(ProviderError) as caught:
        sent(user(part))
    assert caught.value.kind == "bad_request" and caught.value.hint


# --- calls and results ------------------------------------------------------------------------------------


def test_a_call_is_a_block_with_its_arguments_as_an_object_and_shares_its_id_with_the_result() -> None:
    history = (HI, said(Text("ok"), asked(provider_id="toolu_9", arguments='{"a": 1}')), answer("k1", Text("42")))
    assert sent(*history)[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "toolu_9", "name": "look", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_9", "content": [{"type": "text", "text": "42"}]}],
        },
    ]


def test_all_results_of_a_message_stand_in_one_user_message_and_words_follow() -> None:
    history = (
        HI,
        said(asked("k1"), asked("k2")),
        answer("k2", Text("b")),
        answer("k1", Text("a")),
        as_message("go on"),
    )
    found = sent(*history)
    assert [message["role"] for message in found] == ["user", "assistant", "user", "user"]
    assert [block["tool_use_id"] for block in found[2]["content"]] == ["k1", "k2"]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    found = sent(HI, said(asked("k1")), as_message("go on"))
    assert found[2]["content"][0]["content"][0]["text"] == "[outcome_unknown]"


@pytest.mark.parametrize(
    ("status", "texts", "flag"),
    [
        ("ok", ["x"], None),
        ("error", ["x"], True),
        ("denied", ["[denied]", "x"], True),
        ("deferred", ["[deferred]", "x"], None),
    ],
)
def test_the_error_flag_and_words_say_how_a_call_ended(status: Any, texts: list[str], flag: bool | None) -> None:
    block = sent(HI, said(asked()), answer("k1", Text("x"), status=status))[2]["content"][0]
    assert [inner["text"] for inner in block["content"]] == texts and block.get("is_error") == flag


def test_a_result_without_words_says_so_and_one_with_a_picture_holds_it() -> None:
    history = (HI, said(asked("k1"), asked("k2")), answer("k1"), answer("k2", Image("https://x.example/a.png")))
    empty, picture = sent(*history)[2]["content"]
    assert empty["content"] == [{"type": "text", "text": "(no output)"}]
    assert picture["content"][0]["source"]["url"] == "https://x.example/a.png"


@pytest.mark.parametrize("given", ["functions.add:0", "", "a" * 65, "ü"])
def test_an_id_or_name_that_the_api_refuses_gives_way(given: str) -> None:
    found = sent(HI, said(asked("k1", given, name="web.search")), answer("k1"), profile=ANTHROPIC)
    block = found[1]["content"][0]
    assert (block["id"], block["name"]) == ("k1", "web_search")


def test_tc_047_empty_blocks_are_left_out_and_a_last_answer_has_no_white_space_behind_it() -> None:
    assert sent(HI, said(Text(" \n"), asked("c1")), answer("c1"))[1]["content"] == [
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    ]
    assert sent(HI, said(Text("Working on it. \n")))[1]["content"] == [{"type": "text", "text": "Working on it."}]


# --- payloads ---------------------------------------------------------------------------------------------


def test_tc_043_thinking_goes_back_as_it_was_and_where_it_was() -> None:
    thought = {"type": "thinking", "thinking": "plan", "signature": "sigA"}
    hidden = {"type": "redacted_thinking", "data": "R1"}
    parts = (Reasoning("plan", kept(thought)), Reasoning("", kept(hidden)), asked("k1", "c1"))
    assert sent(HI, said(*parts), answer("k1"), profile=ANTHROPIC)[1]["content"] == [
        thought, hidden, {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    ]  # fmt: skip


def test_thinking_at_the_end_of_an_answer_that_was_cut_off_is_left_out() -> None:
    thought = Reasoning("plan", kept({"type": "thinking", "thinking": "plan", "signature": "s"}))
    assert sent(HI, said(Text("a"), thought), as_message("b"), profile=ANTHROPIC)[1]["content"] == [
        {"type": "text", "text": "a"}
    ]
    assert [message["role"] for message in sent(HI, said(thought), as_message("b"), profile=ANTHROPIC)] == [
        "user", "user",
    ]  # fmt: skip


def test_a_tool_of_the_providers_own_goes_back_with_its_result_or_not_at_all() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    words = {"type": "text", "text": "a"}
    pair = (Opaque(kept(use)), Opaque(kept(found)), Text("a"))
    assert sent(HI, said(*pair), as_message("b"), profile=ANTHROPIC)[1]["content"] == [use, found, words]
    for lonely in (use, found):
        half = said(Opaque(kept(lonely)), Text("a"))
        assert sent(HI, half, as_message("b"), profile=ANTHROPIC)[1]["content"] == [words]


def test_payloads_of_others_are_left_out_and_the_words_stay() -> None:
    parts = (
        Reasoning("t", Payload("gemini", "{}")),
        Opaque(Payload("openai-responses", "{}")),
        Text("x", Payload("gemini", "{}")),
        Reasoning("u"),
    )
    assert sent(HI, said(*parts), profile=ANTHROPIC)[1]["content"] == [{"type": "text", "text": "x"}]


# --- tools, parameters, output, cache -----------------------------------------------------------------------


def test_tools_have_an_input_schema() -> None:
    tool = ToolSchema(name="look", description="Look.", parameters=SCHEMA)
    assert body(HI, tools=(tool,))["tools"] == [{"name": "look", "description": "Look.", "input_schema": SCHEMA}]
    assert "tools" not in body(HI)


def test_the_limit_that_the_api_demands_is_sent_unless_a_parameter_names_one() -> None:
    assert body(HI, profile=ANTHROPIC)["max_tokens"] == 32_000
    assert body(HI, profile=ANTHROPIC, params={"max_completion_tokens": 5})["max_tokens"] == 5


def test_parameters_are_passed_on_and_stop_has_its_name() -> None:
    request = body(HI, profile=ANTHROPIC, params={"stop": ["x"], "thinking": {"type": "adaptive"}})
    assert (request["stop_sequences"], request["thinking"]) == (["x"], {"type": "adaptive"})


def test_a_parameter_that_the_request_fills_is_refused_by_name() -> None:
    with pytest.raises(ProviderError, match='"system"'):
        body(HI, params={"system": "x"})


def test_an_output_schema_is_an_output_format_whose_objects_are_closed() -> None:
    nested = {"type": "object", "properties": {"all": {"type": "array", "items": SCHEMA}}}
    request = body(HI, output=OutputSchema(name="T", schema=nested), params={"output_config": {"effort": "low"}})
    closed = {**SCHEMA, "additionalProperties": False}
    schema = {
        "type": "object",
        "properties": {"all": {"type": "array", "items": closed}},
        "additionalProperties": False,
    }
    assert request["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}


def test_what_stays_and_the_last_two_requests_are_marked_for_the_cache() -> None:
    history = (HI, said(Text("a"), id="1"), as_message("b"), said(Text("c"), id="2"), as_message("d"))
    request = body(*history, profile=ANTHROPIC, instructions=(Text("One."), Text("Two.")))
    assert ["cache_control" in block for block in request["system"]] == [False, True]
    assert ["cache_control" in message["content"][-1] for message in request["messages"]] == [
        False, False, True, False, True,
    ]  # fmt: skip
    assert json.dumps(request).count("cache_control") == 3


def test_tools_are_marked_where_there_are_no_instructions() -> None:
    tools = (ToolSchema(name="a", description="", parameters={}), ToolSchema(name="b", description="", parameters={}))
    assert [tool.get("cache_control") for tool in body(HI, tools=tools, profile=ANTHROPIC)["tools"]] == [None, MARK]


def test_nothing_is_marked_where_the_application_or_the_profile_says_so() -> None:
    assert "cache_control" not in json.dumps(body(HI, profile=PLAIN))
    assert json.dumps(body(HI, profile=ANTHROPIC, params={"cache_control": MARK})).count("cache_control") == 1


def test_each_steps_text_begins_with_the_step_before() -> None:
    thought = Reasoning("t", kept({"type": "thinking", "thinking": "t", "signature": "s"}))
    history = [
        HI,
        said(thought, Text("a"), asked("k1", "0"), asked("k2", "toolu_x", '{"bad')),
        answer("k1", Image("https://x.example/a.png")),
        answer("k2", status="invalid_arguments"),
        said(asked("k3", "0"), id="b"),
        answer("k3", Text("c")),
        as_message("steer"),
        said(Text("d \n"), id="c"),
        as_message("next turn"),
    ]
    texts = []
    for end in (1, 4, 6, 7, 9):  # where a step asks the model
        request = body(*history[:end], profile=ANTHROPIC, instructions=(Text("Be brief."),), params={"temperature": 0})
        text = _encoded(request).replace(b',"cache_control":{"type":"ephemeral"}', b"")
        texts.append(text[: text.index(b'],"temperature"')])
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)
