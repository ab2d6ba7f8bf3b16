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
from treadle_http.wires.responses import Responses

OPENAI = PROFILES["openai-responses"]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
HI = as_message("hi")
USER = {"role": "user", "content": "hi"}


def body(*messages: Message, model: str = "gpt-4o", profile: Any = OPENAI, **fields: Any) -> Any:
    return Responses().body(Request(messages=messages or (HI,), **fields), model, profile, stream=True)


def sent(*messages: Message) -> list[Any]:
    found: list[Any] = body(*messages)["input"]
    return found


def said(*parts: Part, id: str = "a") -> Message:
    return Message(id=id, role="assistant", parts=parts)


def kept(item: Any, family: str = "openai-responses") -> Payload:
    return Payload(family, json.dumps(item))


def answer(id: str = "k1", *parts: Part, status: Any = "ok") -> Message:
    return Message(id=f"r-{id}", role="tool", parts=(Result(call_id=id, name="look", status=status, parts=parts),))


def reasoning(id: str = "rs_1") -> dict[str, Any]:
    return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": "AbC"}


def call_item(id: str = "fc_1") -> dict[str, Any]:
    return {"type": "function_call", "id": id, "call_id": "call_1", "name": "look", "arguments": "{}"}


def message_item(*texts: str, id: str = "msg_1", **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content, **more}


THOUGHT = Reasoning("", kept(reasoning()))
CALL = Call(id="k1", name="look", arguments="{}", provider_id="call_1", payload=kept(call_item()))


def test_instructions_stand_apart_and_words_are_plain() -> None:
    request = body(HI, instructions=(Text("One."), Text("Two.")))
    assert (request["instructions"], request["input"]) == ("One.\n\nTwo.", [USER])


def test_images_and_files_are_content_parts() -> None:
    parts = (
        Text("see"),
        Image("https://x.example/a.png"),
        Document("https://x.example/a.pdf"),
        Document("data:application/pdf;base64,AA==", name="a.pdf"),
        Document("file-123"),
    )
    assert sent(Message(id="u", role="user", parts=parts))[0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://x.example/a.png"},
        {"type": "input_file", "file_url": "https://x.example/a.pdf"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
        {"type": "input_file", "file_id": "file-123"},
    ]


def test_media_that_cannot_be_sent_is_a_clear_error() -> None:
    with pytest.raises(ProviderError, match="is not a URL"):
        sent(Message(id="u", role="user", parts=(Image("sha256:ab"),)))


def test_a_call_and_its_result_are_two_items_with_one_id() -> None:
    call = Call(id="k1", name="look", arguments='{"a": 1}', provider_id="call_9")
    assert sent(HI, said(Text("ok"), call), answer("k1", Text("42")))[1:] == [
        {"role": "assistant", "content": "ok"},
        {"type": "function_call", "call_id": "call_9", "name": "look", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "call_9", "output": "42"},
    ]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    assert sent(HI, said(CALL), as_message("go on"))[2]["output"].startswith("[outcome_unknown]")


def test_a_result_with_a_picture_is_a_list_and_a_status_is_said_in_front() -> None:
    found = sent(HI, said(CALL), answer("k1", Text("x"), Image("https://x.example/a.png"), status="error"))
    assert found[-1]["output"] == [
        {"type": "input_text", "text": "[error] x"},
        {"type": "input_image", "image_url": "https://x.example/a.png"},
    ]
    assert sent(HI, said(CALL), answer("k1"))[-1]["output"] == "(no output)"


def test_items_of_this_provider_go_back_as_they_were_and_in_order() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    item = message_item("ok", phase="commentary")
    parts = (THOUGHT, Opaque(kept(search)), Text("ok", kept(item)), CALL)
    assert sent(HI, said(*parts), answer("k1"))[1:5] == [reasoning(), search, item, call_item()]


def test_the_pieces_of_one_message_item_are_that_item_again() -> None:
    parts = (
        THOUGHT,
        Text("a", kept(message_item("a"))),
        Text("b", kept(message_item("b"))),
        Text("c", kept(message_item("c", id="msg_2"))),
    )
    assert sent(HI, said(*parts))[2:] == [message_item("a", "b"), message_item("c", id="msg_2")]


def test_reasoning_without_what_followed_it_is_left_out() -> None:
    assert sent(HI, said(THOUGHT, Text("half an answer")), as_message("go on"))[1:] == [
        {"role": "assistant", "content": "half an answer"}, {"role": "user", "content": "go on"},
    ]  # fmt: skip
    assert sent(HI, said(Text("a"), THOUGHT), as_message("b"))[1:] == [
        {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"},
    ]  # fmt: skip


def test_an_id_that_names_lost_reasoning_is_not_sent() -> None:
    parts = (Reasoning("a summary"), Text("ok", kept(message_item("ok", phase="commentary"))), CALL)
    assert sent(HI, said(*parts), answer("k1"))[1:3] == [
        {"role": "assistant", "content": "ok", "phase": "commentary"},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
    ]


def test_payloads_of_others_are_left_out_and_the_words_stay() -> None:
    parts = (
        Reasoning("t", Payload("anthropic", "{}")),
        Opaque(Payload("gemini", "{}")),
        Text("x", Payload("xai-responses", "{}")),
    )
    assert sent(HI, said(*parts))[1:] == [{"role": "assistant", "content": "x"}]


def test_tools_are_flat_and_not_strict() -> None:
    tool = ToolSchema(name="look", description="", parameters=SCHEMA)
    assert body(HI, tools=(tool,))["tools"] == [
        {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}
    ]


@pytest.mark.parametrize(
    ("model", "asked"),
    [("gpt-5-nano", True), ("o4-mini", True), ("gpt-5-chat-latest", False), ("gpt-4o", False), ("gpt-4.1", False)],
)
def test_nothing_is_stored_and_models_that_reason_are_asked_for_their_reasoning(model: str, asked: bool) -> None:
    request = body(HI, model=model)
    assert request["store"] is False and ("include" in request) == asked


def test_an_application_that_wants_storage_gets_it() -> None:
    request = body(HI, model="gpt-5", params={"store": True})
    assert request["store"] is True and "include" not in request
    request = body(HI, model="gpt-5", params={"include": ["file_search_call.results"]})
    assert request["include"] == ["file_search_call.results", "reasoning.encrypted_content"]


def test_the_limit_has_its_name_here() -> None:
    assert body(HI, params={"max_tokens": 5})["max_output_tokens"] == 5


def test_an_output_schema_is_a_text_format_beside_other_wishes() -> None:
    request = body(HI, output=OutputSchema(name="My Type[int]", schema=SCHEMA), params={"text": {"verbosity": "low"}})
    form = {"type": "json_schema", "name": "My_Type_int_", "schema": SCHEMA}
    assert request["text"] == {"verbosity": "low", "format": form}


def test_each_steps_text_begins_with_the_step_before() -> None:
    history = [
        HI,
        said(THOUGHT, Text("a", kept(message_item("a"))), CALL, Call(id="k2", name="look", arguments='{"bad')),
        answer("k1", Image("https://x.example/a.png")),
        answer("k2", status="invalid_arguments"),
        said(Call(id="k3", name="look", arguments="{}", provider_id="call_1"), id="b"),
        answer("k3", Text("c")),
        as_message("steer"),
        said(Text("d"), id="c"),
        as_message("next turn"),
    ]
    texts = []
    for end in (1, 4, 6, 7, 9):  # where a step asks the model
        request = body(*history[:end], instructions=(Text("Be brief."),), params={"temperature": 0})
        text = _encoded(request)
        texts.append(text[: text.index(b'],"temperature"')])
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)
