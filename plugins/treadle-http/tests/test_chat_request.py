from __future__ import annotations

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
from treadle_http.wires.calls import replayable
from treadle_http.wires.chat import Chat

ANY = Profile(name="any")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def body(*messages: Message, profile: Profile = ANY, stream: bool = True, **fields: Any) -> Any:
    request = Request(messages=messages or (as_message("hi"),), **fields)
    return Chat().body(request, "model-1", profile, stream=stream)


def sent(*messages: Message, profile: Profile = ANY) -> list[Any]:
    found: list[Any] = body(*messages, profile=profile)["messages"]
    return found


def said(*parts: Part, id: str = "a") -> Message:
    return Message(id=id, role="assistant", parts=parts)


def asked(id: str = "k1", provider_id: str = "", arguments: str = "{}") -> Call:
    return Call(id=id, name="look", arguments=arguments, provider_id=provider_id)


def answer(id: str = "k1", *parts: Part, status: Any = "ok") -> Message:
    result = Result(call_id=id, name="look", status=status, parts=parts)
    return Message(id=f"r-{id}", role="tool", parts=(result,))


HI = as_message("hi")


def test_instructions_are_one_system_message_in_front() -> None:
    request = body(HI, instructions=(Text("One."), Text(""), Text("Two.")))
    assert request["messages"] == [{"role": "system", "content": "One.\n\nTwo."}, {"role": "user", "content": "hi"}]


def test_the_profile_says_who_speaks_the_instructions() -> None:
    request = body(HI, instructions=(Text("One."),), profile=Profile(name="x", system_role="developer"))
    assert request["messages"][0]["role"] == "developer"


def test_context_is_user_content() -> None:
    assert sent(Message(id="c", role="context", parts=(Text("note"),))) == [{"role": "user", "content": "note"}]


def test_images_and_files_are_content_parts() -> None:
    parts: tuple[Part, ...] = (
        Text("see"),
        Image("https://x.example/a.png"),
        Document("data:application/pdf;base64,AA==", name="a.pdf"),
        Document("file-123"),
    )
    assert sent(Message(id="u", role="user", parts=parts))[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
        {"type": "file", "file": {"file_id": "file-123"}},
    ]


@pytest.mark.parametrize("part", [Image("sha256:ab"), Document("sha256:ab"), Document("https://x.example/a.pdf")])
def test_what_the_wire_cannot_carry_is_a_clear_error(part: Part) -> None:
    with pytest.raises(ProviderError) as caught:
        sent(Message(id="u", role="user", parts=(part,)))
    assert caught.value.kind == "bad_request" and "URL" in str(caught.value)


def test_a_document_by_url_goes_where_the_provider_takes_it() -> None:
    message = Message(id="u", role="user", parts=(Document("https://x.example/a.pdf"),))
    assert sent(message, profile=PROFILES["mistral"])[0]["content"] == [
        {"type": "document_url", "document_url": "https://x.example/a.pdf"}
    ]


def test_a_call_and_its_result_share_the_providers_id() -> None:
    assert sent(HI, said(Text("ok"), asked(provider_id="call_9")), answer("k1", Text("42")))[1:] == [
        {
            "role": "assistant",
            "content": "ok",
            "tool_calls": [{"id": "call_9", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_9", "content": "42"},
    ]


def test_mistral_gets_ids_of_nine_letters_and_digits_that_pair_and_stay() -> None:
    history = (HI, said(asked("k1", "call_of_another_provider"), asked("k2")), answer("k1"), answer("k2"))
    first, again = sent(*history, profile=PROFILES["mistral"]), sent(*history, profile=PROFILES["mistral"])
    ids = [call["id"] for call in first[1]["tool_calls"]]
    assert all(len(id) == 9 and id.isalnum() for id in ids) and len(set(ids)) == 2
    assert [message["tool_call_id"] for message in first[2:]] == ids
    assert first == again


def test_mistrals_own_id_is_kept() -> None:
    found = sent(HI, said(asked("k1", "vAKGXGFZD")), answer("k1"), profile=PROFILES["mistral"])
    assert found[1]["tool_calls"][0]["id"] == "vAKGXGFZD"


def test_an_id_longer_than_openai_takes_gives_way_to_the_kernels() -> None:
    found = sent(HI, said(asked("k1", "fc_" + "x" * 60)), answer("k1"), profile=PROFILES["openai"])
    assert found[1]["tool_calls"][0]["id"] == found[2]["tool_call_id"] == "k1"


def test_an_id_that_a_server_gives_every_time_names_one_call_only() -> None:
    found = sent(HI, said(asked("k1", "0")), answer("k1"), said(asked("k2", "0"), id="b"), answer("k2"))
    assert [found[1]["tool_calls"][0]["id"], found[3]["tool_calls"][0]["id"]] == ["0", "k2"]
    assert [found[2]["tool_call_id"], found[4]["tool_call_id"]] == ["0", "k2"]


@pytest.mark.parametrize(
    ("raw", "replayed"),
    [
        ("", "{}"),
        (" \n", "{}"),
        ('{"a": 1}', '{"a": 1}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ('{"a', '{"invalid_json": "{\\"a"}'),
        ("[1]", '{"invalid_json": "[1]"}'),
        ('{"a": NaN}', '{"invalid_json": "{\\"a\\": NaN}"}'),
    ],
)
def test_arguments_are_replayed_as_an_object_whatever_they_were(raw: str, replayed: str) -> None:
    assert replayable(raw) == replayed
    assert isinstance(json.loads(replayed), dict)


def test_a_status_other_than_ok_is_said_in_the_text() -> None:
    found = sent(
        HI, said(asked("k1"), asked("k2")), answer("k1", Text("boom"), status="error"), answer("k2", status="denied")
    )
    assert [message["content"] for message in found[2:]] == ["[error] boom", "[denied]"]


def test_a_result_without_words_says_so() -> None:
    assert sent(HI, said(asked()), answer("k1"))[2]["content"] == "(no output)"


def test_pictures_of_results_follow_all_results_as_a_user_message() -> None:
    history = (
        HI,
        said(asked("k1"), asked("k2")),
        answer("k1", Image("https://x.example/a.png")),
        answer("k2", Text("b")),
    )
    assert [message["role"] for message in sent(*history)] == ["user", "assistant", "tool", "tool", "user"]
    assert sent(*history)[4]["content"][1] == {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}


def test_white_space_beside_calls_is_no_content() -> None:
    assert sent(HI, said(Text(" \n"), asked()), answer("k1"))[1]["content"] is None


def test_an_assistant_message_that_says_nothing_is_left_out() -> None:
    assert [message["role"] for message in sent(HI, said(Text("")), as_message("more"))] == ["user", "user"]


def test_a_payload_goes_back_to_its_own_family_only() -> None:
    mine = Reasoning("t", Payload("deepseek-chat", '{"reasoning_content":"t"}'))
    other = Reasoning("u", Payload("anthropic", '{"signature":"s"}'))
    opaque = Opaque(Payload("gemini", "{}"))
    (_, found) = sent(HI, said(mine, other, opaque, Text("x")), profile=PROFILES["deepseek"])
    assert found == {"role": "assistant", "content": "x", "reasoning_content": "t"}
    (_, found) = sent(HI, said(mine, other, opaque, Text("x")), profile=PROFILES["groq"])
    assert found == {"role": "assistant", "content": "x"}


def test_deepseek_gets_empty_reasoning_with_calls_that_another_model_made() -> None:
    found = sent(HI, said(asked()), answer("k1"), profile=PROFILES["deepseek"])
    assert found[1]["reasoning_content"] == ""


def test_mistral_gets_its_thinking_back_in_place() -> None:
    chunk = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    thought = Reasoning("hm", Payload("mistral-chat", json.dumps(chunk)))
    (_, found) = sent(HI, said(thought, Text("4")), profile=PROFILES["mistral"])
    assert found["content"] == [chunk, {"type": "text", "text": "4"}]


def test_tools_are_functions_and_no_tools_are_no_key() -> None:
    tool = ToolSchema(name="look", description="Look.", parameters=SCHEMA)
    assert body(HI, tools=(tool,))["tools"] == [
        {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}
    ]
    assert "tools" not in body(HI)


@pytest.mark.parametrize(
    ("provider", "given", "expected"),
    [
        ("openai", {"max_tokens": 5}, {"max_completion_tokens": 5}),
        ("deepseek", {"max_completion_tokens": 5}, {"max_tokens": 5}),
        ("mistral", {"seed": 1, "temperature": 0}, {"random_seed": 1, "temperature": 0}),
    ],
)
def test_params_take_the_names_of_the_provider(provider: str, given: Any, expected: Any) -> None:
    request = body(HI, params=given, profile=PROFILES[provider])
    assert {name: request[name] for name in expected} == expected
    assert not (given.keys() - expected.keys()) & request.keys()


@pytest.mark.parametrize(("name", "provider"), [("messages", "openai"), ("logit_bias", "groq"), ("n", "openai")])
def test_a_parameter_that_cannot_be_sent_is_named(name: str, provider: str) -> None:
    with pytest.raises(ProviderError, match="n must be 1" if name == "n" else name):
        body(HI, params={name: 2}, profile=PROFILES[provider])


def test_an_output_schema_is_a_response_format() -> None:
    request = body(HI, output=OutputSchema(name="My Type[int]", schema=SCHEMA))
    assert request["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "My_Type_int_", "schema": SCHEMA},
    }


def test_a_provider_without_schemas_gets_json_mode_and_the_schema_in_words() -> None:
    request = body(HI, output=OutputSchema(name="Town", schema=SCHEMA), profile=PROFILES["deepseek"])
    assert request["response_format"] == {"type": "json_object"}
    assert '{"type":"object","properties":{"city":{"type":"string"}}}' in request["messages"][0]["content"]


def test_usage_is_asked_for_only_where_that_is_known() -> None:
    assert body(HI)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in body(HI, profile=PROFILES["mistral"])
    assert "stream_options" not in body(HI, stream=False)


@pytest.mark.parametrize("provider", sorted(PROFILES))
def test_each_steps_text_begins_with_the_step_before(provider: str) -> None:
    profile = PROFILES[provider]
    thought = Reasoning("t", Payload(profile.family, '{"reasoning_content":"t"}'))
    history = [
        HI,
        said(thought, Text("a"), asked("k1", "0"), asked("k2", "call_x", '{"bad')),
        answer("k1", Image("https://x.example/a.png")),
        answer("k2", status="invalid_arguments"),
        said(asked("k3", "0"), id="b"),
        answer("k3", Text("c")),
        as_message("steer"),
        said(Text("d"), id="c"),
        as_message("next turn"),
    ]
    ends = [1, 4, 6, 7, 9]  # where a step asks the model
    texts = []
    for end in ends:
        request = body(*history[:end], profile=profile, instructions=(Text("Be brief."),), params={"temperature": 0})
        text = _encoded(request)
        texts.append(text[: text.index(b'],"temperature"')])
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)


def test_half_a_surrogate_pair_does_not_break_the_body() -> None:
    assert json.loads(_encoded(body(as_message("a\ud83cb\x00"))))["messages"][0]["content"] == "a?b\x00"


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_is_no_json_is_named(value: Any) -> None:
    with pytest.raises(ProviderError, match="cannot be written as JSON"):
        _encoded(body(HI, params={"x": value}))
