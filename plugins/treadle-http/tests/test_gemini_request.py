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
from treadle_http.profiles import PROFILES
from treadle_http.wires.gemini import Gemini

GEMINI = PROFILES["gemini"]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
HI = as_message("hi")
UNSIGNED = "skip_thought_signature_validator"


def body(*messages: Message, model: str = "gemini-2.5-flash", **fields: Any) -> Any:
    return Gemini().body(Request(messages=messages or (HI,), **fields), model, GEMINI, stream=True)


def sent(*messages: Message, model: str = "gemini-2.5-flash") -> list[Any]:
    found: list[Any] = body(*messages, model=model)["contents"]
    return found


def said(*parts: Part, id: str = "a") -> Message:
    return Message(id=id, role="assistant", parts=parts)


def user(*parts: Part) -> Message:
    return Message(id="u", role="user", parts=parts)


def asked(id: str = "k1", name: str = "look", signature: str = "", **fields: Any) -> Call:
    payload = Payload("gemini", json.dumps({"thoughtSignature": signature})) if signature else None
    return Call(id=id, name=name, arguments="{}", payload=payload, **fields)


def answer(id: str = "k1", *parts: Part, name: str = "look", status: Any = "ok") -> Message:
    result = Result(call_id=id, name=name, status=status, parts=parts)
    return Message(id=f"r-{id}", role="tool", parts=(result,))


@pytest.mark.parametrize(
    ("model", "stream", "path"),
    [
        ("gemini-3-pro", True, "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("gemini-3-pro", False, "/v1beta/models/gemini-3-pro:generateContent"),
        ("tunedModels/mine", False, "/v1beta/tunedModels/mine:generateContent"),
        ("a b", False, "/v1beta/models/a%20b:generateContent"),
    ],
)
def test_the_model_and_the_way_of_answering_stand_in_the_path(model: str, stream: bool, path: str) -> None:
    assert Gemini().path(model, stream=stream) == path


def test_instructions_stand_apart() -> None:
    request = body(HI, instructions=(Text("One."), Text("Two.")))
    assert request["systemInstruction"] == {"parts": [{"text": "One."}, {"text": "Two."}]}
    assert request["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


def test_images_and_documents_are_data_or_name_their_file() -> None:
    parts = (
        Image("data:image/png;base64,AA=="),
        Image("https://x.example/a.png?b=1"),
        Document("https://x.example/a", media_type="application/pdf"),
        Document("gs://bucket/a.pdf"),
    )
    assert sent(user(*parts))[0]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://x.example/a.png?b=1"}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://x.example/a"}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://bucket/a.pdf"}},
    ]


@pytest.mark.parametrize("part", [Image("sha256:ab"), Image("https://x.example/a")])
def test_media_that_cannot_be_sent_is_a_clear_error(part: Part) -> None:
    with pytest.raises(ProviderError) as caught:
        sent(user(part))
    assert caught.value.kind == "bad_request" and caught.value.hint


def test_tc_045_parallel_calls_stay_together_with_one_signature_and_so_do_their_results() -> None:
    history = (
        HI,
        said(asked("1", "f", "S1"), asked("2", "g")),
        answer("1", Text("a"), name="f"),
        answer("2", Text("b"), name="g"),
    )
    assert sent(*history, model="gemini-3-pro")[1:] == [
        {
            "role": "model",
            "parts": [
                {"thoughtSignature": "S1", "functionCall": {"name": "f", "args": {}}},
                {"functionCall": {"name": "g", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "a"}}},
                {"functionResponse": {"name": "g", "response": {"output": "b"}}},
            ],
        },
    ]


def test_an_id_that_was_given_is_given_back_with_the_result() -> None:
    found = sent(HI, said(asked(provider_id="abc")), answer("k1"))
    assert found[1]["parts"][0]["functionCall"]["id"] == "abc"
    assert found[2]["parts"][0]["functionResponse"]["id"] == "abc"


def test_a_call_that_another_model_made_is_marked_so_for_models_that_want_a_signature() -> None:
    history = (HI, said(asked("1", "f"), asked("2", "g")), answer("1", name="f"), answer("2", name="g"))
    parts = sent(*history, model="gemini-3-pro")[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [UNSIGNED, None]
    assert UNSIGNED not in json.dumps(sent(*history, model="gemini-2.5-pro"))


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    found = sent(HI, said(asked()), as_message("go on"))
    assert found[2]["parts"][0]["functionResponse"]["response"]["error"].startswith("[outcome_unknown]")


@pytest.mark.parametrize(
    ("status", "response"),
    [
        ("ok", {"output": "x"}),
        ("error", {"error": "x"}),
        ("denied", {"error": "[denied] x"}),
        ("deferred", {"output": "[deferred] x"}),
    ],
)
def test_a_result_says_how_its_call_ended(status: Any, response: Any) -> None:
    found = sent(HI, said(asked()), answer("k1", Text("x"), status=status))
    assert found[2]["parts"][0]["functionResponse"]["response"] == response


def test_pictures_of_results_follow_all_results() -> None:
    history = (HI, said(asked("1"), asked("2")), answer("1", Image("data:image/png;base64,AA==")), answer("2"))
    found = sent(*history)
    assert [len(content["parts"]) for content in found] == [1, 2, 2, 2]
    assert found[3]["parts"][0] == {"text": "Returned by look:"} and "inlineData" in found[3]["parts"][1]


def test_parts_with_a_signature_go_back_as_they_were_also_when_they_are_empty() -> None:
    end = {"text": "", "thoughtSignature": "S2"}
    code = {"executableCode": {"code": "1"}, "thoughtSignature": "S1"}
    parts = (
        Reasoning("a summary"),
        Opaque(Payload("gemini", json.dumps(code))),
        Text("a"),
        Text("", Payload("gemini", json.dumps(end))),
    )
    assert sent(HI, said(*parts))[1]["parts"] == [code, {"text": "a"}, end]


def test_payloads_of_others_are_left_out_and_the_words_stay() -> None:
    parts = (Reasoning("t", Payload("anthropic", "{}")), Text("x", Payload("openai-responses", "{}")))
    assert sent(HI, said(*parts))[1:] == [{"role": "model", "parts": [{"text": "x"}]}]


def test_a_message_that_says_nothing_is_left_out() -> None:
    assert [content["role"] for content in sent(HI, said(Text("")), as_message("more"))] == ["user", "user"]


def test_tools_are_declarations_with_their_schema_as_it_is() -> None:
    tool = ToolSchema(name="look", description="Look.", parameters=SCHEMA)
    declared = {"name": "look", "description": "Look.", "parametersJsonSchema": SCHEMA}
    assert body(HI, tools=(tool,))["tools"] == [{"functionDeclarations": [declared]}]


def test_parameters_stand_in_the_configuration_or_beside_it() -> None:
    settings = [{"category": "C", "threshold": "T"}]
    params = {"max_tokens": 5, "stop": ["x"], "temperature": 0, "safetySettings": settings}
    request = body(HI, params={**params, "generationConfig": {"seed": 1}})
    config = {"maxOutputTokens": 5, "stopSequences": ["x"], "temperature": 0, "seed": 1}
    assert (request["generationConfig"], request["safetySettings"]) == (config, settings)


def test_an_output_schema_is_part_of_the_configuration() -> None:
    config = body(HI, output=OutputSchema(name="T", schema=SCHEMA))["generationConfig"]
    assert config == {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}


def test_each_steps_text_begins_with_the_step_before() -> None:
    history = [
        HI,
        said(Text("a"), asked("k1", signature="S1"), asked("k2", provider_id="x")),
        answer("k1", Image("data:image/png;base64,AA==")),
        answer("k2", status="invalid_arguments"),
        said(asked("k3", provider_id="x"), id="b"),
        answer("k3", Text("c")),
        as_message("steer"),
        said(Text("d"), id="c"),
        as_message("next turn"),
    ]
    texts = []
    for end in (1, 4, 6, 7, 9):  # where a step asks the model
        request = body(*history[:end], instructions=(Text("Be brief."),), params={"temperature": 0})
        text = _encoded(request)
        texts.append(text[: text.index(b'],"generationConfig"')])
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)
