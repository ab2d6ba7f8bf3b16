from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.plugin import Assembly, Call, Opaque, Payload, ProviderError, Reasoning, Reply, Text
from treadle_http.profiles import PROFILES
from treadle_http.sse import Event
from treadle_http.wires.gemini import GeminiReader, usage_of

GEMINI = PROFILES["gemini"]


def chunk(*parts: Any, finish: str = "", **more: Any) -> Any:
    candidate = {"content": {"role": "model", "parts": list(parts)}, **({"finishReason": finish} if finish else {})}
    return {"candidates": [candidate], **more}


def words(text: str, **more: Any) -> Any:
    return {"text": text, **more}


def signed(text: str, signature: str) -> Payload:
    return Payload("gemini", json.dumps({"text": text, "thoughtSignature": signature}, separators=(",", ":")))


def stream(*events: Any) -> Reply:
    reader, assembly = GeminiReader(GEMINI), Assembly()
    for event in events:
        for piece in reader.event(Event("", json.dumps(event))):
            assembly.feed(piece)
    for piece in reader.end():
        assembly.feed(piece)
    reply = assembly.reply()
    assert reply is not None
    return reply


def whole(body: Any) -> Reply:
    reader, assembly = GeminiReader(GEMINI), Assembly()
    for piece in [*reader.body(json.dumps(body).encode()), *reader.end()]:
        assembly.feed(piece)
    reply = assembly.reply()
    assert reply is not None
    return reply


def failure(*events: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        stream(*events)
    return caught.value


def calls(reply: Reply) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in reply.calls]


def test_texts_of_a_stream_are_one_part_until_one_is_signed() -> None:
    reply = stream(chunk(words("a")), chunk(words("b")), chunk(words("c", thoughtSignature="S")), chunk(words("d")),
                   chunk(words("", thoughtSignature="T"), finish="STOP"))  # fmt: skip
    assert reply.parts == (Text("ab"), Text("c", signed("c", "S")), Text("d"), Text("", signed("", "T")))
    assert reply.finish == "end"


def test_thoughts_are_apart_from_text() -> None:
    reply = stream(chunk(words("a", thought=True)), chunk(words("b", thought=True), words("c")), chunk(finish="STOP"))
    assert reply.parts == (Reasoning("ab"), Text("c"))


def test_tc_045_only_the_first_of_parallel_calls_is_signed_and_both_stand_in_order() -> None:
    reply = stream(
        chunk({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "S1"}),
        chunk({"functionCall": {"name": "g", "args": {"x": 1}}}, finish="STOP"),
    )
    payload = Payload("gemini", '{"thoughtSignature":"S1"}')
    assert reply.parts == (
        Call(id="", name="f", arguments="{}", payload=payload), Call(id="", name="g", arguments='{"x":1}'),
    )  # fmt: skip
    assert reply.finish == "calls"


def test_arguments_that_come_in_pieces_are_put_where_their_path_says() -> None:
    pieces = [
        {"jsonPath": "$.city", "stringValue": "Bos", "willContinue": True},
        {"jsonPath": "$.city", "stringValue": "ton"},
        {"jsonPath": "$.days[0].hour", "numberValue": 7},
        {"jsonPath": "$.days[1]['is it']", "boolValue": True},
        {"jsonPath": "$.none", "nullValue": "NULL_VALUE"},
    ]
    reply = stream(
        chunk({"functionCall": {"name": "f", "willContinue": True}}),
        *(chunk({"functionCall": {"partialArgs": [piece], "willContinue": True}}) for piece in pieces),
        chunk({"functionCall": {}}, finish="STOP"),
    )
    assert calls(reply) == [("f", '{"city":"Boston","days":[{"hour":7},{"is it":true}],"none":null}')]


@pytest.mark.parametrize("path", ["", "city", "$", "$..a", "$.a[", "$[9]", "$.a.b"])
def test_arguments_at_an_impossible_path_are_a_server_error(path: str) -> None:
    pieces = [{"jsonPath": "$.a", "stringValue": "x"}, {"jsonPath": path, "stringValue": "y"}]
    error = failure(chunk({"functionCall": {"name": "f", "partialArgs": pieces}}))
    assert error.kind == "server" and "unknown shape" in error.message


def test_a_call_that_was_not_finished_is_interrupted() -> None:
    error = failure(chunk({"functionCall": {"name": "f", "willContinue": True}}, finish="STOP"))
    assert (error.kind, error.partial) == ("interrupted", (Call(id="", name="f", arguments=""),))


def test_a_stream_without_a_reason_to_stop_is_an_interrupted_error_with_what_had_arrived() -> None:
    error = failure(chunk(words("The answer is")))
    assert (error.kind, error.partial) == ("interrupted", (Text("The answer is"),))


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refused"),
        ("RECITATION", "refused"),
        ("PROHIBITED_CONTENT", "refused"),
        ("BLOCKLIST", "refused"),
        ("SPII", "refused"),
        ("MODEL_ARMOR", "refused"),
        ("OTHER", "end"),
    ],
)
def test_reasons_to_stop_are_one_set(reason: str, finish: str) -> None:
    reply = stream(chunk(words("x"), finish=reason))
    assert (reply.finish, reply.raw) == (finish, reason)


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE"])
def test_a_call_that_the_model_got_wrong_is_a_failed_use_of_tools(reason: str) -> None:
    event = chunk(words("a"), finish=reason, usageMetadata={"promptTokenCount": 3})
    event["candidates"][0]["finishMessage"] = "f(x"
    error = failure(event)
    assert (error.kind, error.message, error.raw, error.partial) == ("tool_use_failed", "f(x", reason, (Text("a"),))
    assert error.usage is not None and error.usage.input == 3


def test_a_blocked_prompt_is_a_refusal_that_says_why() -> None:
    reply = whole({"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "Not that."}})
    assert (reply.finish, reply.raw, reply.parts) == ("refused", "SAFETY: Not that.", ())


def test_an_answer_of_which_nothing_is_known_is_not_whole() -> None:
    with pytest.raises(ProviderError, match="interrupted"):
        whole({"usageMetadata": {"promptTokenCount": 3}})


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_inside_an_answer_has_its_kind_and_status(wrapped: bool) -> None:
    body: Any = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}
    with pytest.raises(ProviderError) as caught:
        whole([body] if wrapped else body)
    assert (caught.value.kind, caught.value.status, caught.value.message) == ("overloaded", 503, "busy")


def test_a_stream_that_came_as_one_list_is_read() -> None:
    assert whole([chunk(words("a")), chunk(words("b"), finish="STOP")]).parts == (Text("ab"),)


def test_parts_that_are_not_known_are_kept_as_they_are() -> None:
    part = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    (found,) = stream(chunk(part, finish="STOP")).parts
    assert isinstance(found, Opaque) and json.loads(found.payload.data) == part


@pytest.mark.parametrize(
    "event", [{"candidates": "x"}, {"candidates": [{"content": {"parts": ["x"]}}]}, {"promptFeedback": 1}, "x", 7]
)
def test_an_event_of_another_shape_is_a_server_error_that_names_it(event: Any) -> None:
    reader = GeminiReader(GEMINI)
    with pytest.raises(ProviderError, match="unknown shape") as caught:
        reader.event(Event("", json.dumps(event)))
    assert caught.value.kind == "server" and caught.value.raw == json.dumps(event)


def test_thoughts_stand_beside_the_output_and_what_tools_fed_beside_the_input() -> None:
    usage = usage_of({
        "promptTokenCount": 10, "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 2,
        "candidatesTokenCount": 8, "thoughtsTokenCount": 5,
    })  # fmt: skip
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning, usage.tokens) == (8, 4, 8, 5, 25)
