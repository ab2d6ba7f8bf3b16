from __future__ import annotations

import pytest

from treadle.plugin import (
    Call,
    Document,
    Image,
    Json,
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
)
from treadle_local.chat import chat_body


def said(role: Json, *parts: Part) -> Message:
    return Message(id="m", role=role, parts=parts)


def test_a_conversation_with_a_call_becomes_chat_messages() -> None:
    request = Request(
        instructions=(Text("Be brief."), Text("Use the tools.")),
        messages=(
            said("user", Text("What is 17 "), Text("plus 25?")),
            said("assistant", Text("One moment."), Call(id="c1", name="add", arguments='{"a": 17, "b": 25}')),
            said("tool", Result(call_id="c1", name="add", status="ok", parts=(Text("42"),))),
            said("context", Text("The user is in a hurry.")),
        ),
    )
    assert chat_body(request, 512)["messages"] == [
        {"role": "system", "content": "Be brief.\n\nUse the tools."},
        {"role": "user", "content": "What is 17 plus 25?"},
        {
            "role": "assistant",
            "content": "One moment.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 17, "b": 25}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "42"},
        {"role": "user", "content": "The user is in a hurry."},
    ]


def test_a_tool_becomes_a_function() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    body = chat_body(Request(tools=(ToolSchema(name="get_time", description="Tell it.", parameters=schema),)), 512)
    function = {"name": "get_time", "description": "Tell it.", "parameters": schema}
    assert body["tools"] == [{"type": "function", "function": function}]


def test_the_answer_that_repeats_is_the_default() -> None:
    assert chat_body(Request(), 512)["temperature"] == 0


def test_params_go_on_as_they_are() -> None:
    body = chat_body(Request(params={"temperature": 0.7, "top_k": 5, "max_tokens": 9}), 512)
    assert (body["temperature"], body["top_k"], body["max_tokens"]) == (0.7, 5, 9)


@pytest.mark.parametrize("params", [{}, {"max_tokens": None}, {"max_completion_tokens": 0}])
def test_an_answer_that_nobody_bounds_is_bounded(params: Json) -> None:
    assert chat_body(Request(params=params), 512)["max_tokens"] == 512


def test_an_answer_bounded_by_the_newer_name_keeps_its_bound() -> None:
    body = chat_body(Request(params={"max_completion_tokens": 9}), 512)
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


def test_the_stream_cannot_be_turned_off_by_a_param() -> None:
    assert chat_body(Request(params={"stream": False}), 512)["stream"] is True


def test_an_output_schema_becomes_a_response_format() -> None:
    body = chat_body(Request(output=OutputSchema(name="person", schema={"type": "object"})), 512)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "person", "schema": {"type": "object"}},
    }


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ('{"a": 1', '{"unreadable": "{\\"a\\": 1"}'),
        ("[1]", '{"unreadable": "[1]"}'),
    ],
)
def test_arguments_that_are_no_object_are_shown_inside_one(raw: str, sent: str) -> None:
    request = Request(messages=(said("assistant", Call(id="c1", name="add", arguments=raw)),))
    assert chat_body(request, 512)["messages"][0]["tool_calls"][0]["function"]["arguments"] == sent


def test_a_result_without_words_says_its_status() -> None:
    request = Request(messages=(said("tool", Result(call_id="c1", name="add", status="denied", parts=())),))
    assert chat_body(request, 512)["messages"][0]["content"] == "denied"


def test_other_providers_thoughts_and_opaque_parts_stay_behind() -> None:
    other = Payload("anthropic", "signature")
    message = said("assistant", Reasoning("Hm.", other), Opaque(other), Text("Yes."))
    assert chat_body(Request(messages=(message,)), 512)["messages"] == [{"role": "assistant", "content": "Yes."}]


@pytest.mark.parametrize("part", [Image("https://example.org/cat.png"), Document("sha256:00", name="a.pdf")])
def test_what_is_not_text_is_refused_by_name(part: Part) -> None:
    with pytest.raises(ProviderError, match=type(part).__name__) as caught:
        chat_body(Request(messages=(said("user", Text("Look:"), part),)), 512)
    assert caught.value.kind == "bad_request"


def test_a_tuned_model_begins_a_call_more_readily_when_a_person_asks() -> None:
    tools = (ToolSchema(name="add", description="", parameters={}),)
    user, result = said("user", Text("Hi")), said("tool", Result(call_id="c", name="add", status="ok", parts=()))
    assert chat_body(Request(messages=(user,), tools=tools), 512, tuned=True)["logit_bias"] == [["<", 0.8]]
    assert "logit_bias" not in chat_body(Request(messages=(user, result), tools=tools), 512, tuned=True)
    assert "logit_bias" not in chat_body(Request(messages=(user,)), 512, tuned=True)
    assert "logit_bias" not in chat_body(Request(messages=(user,), tools=tools), 512)


def test_a_bias_of_the_agents_own_stays() -> None:
    tools = (ToolSchema(name="add", description="", parameters={}),)
    request = Request(messages=(said("user", Text("Hi")),), tools=tools, params={"logit_bias": []})
    assert chat_body(request, 512, tuned=True)["logit_bias"] == []
