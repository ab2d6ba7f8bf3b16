"""A request as the body of a chat completion. llama.cpp reads OpenAI's format (its tools/server/README.md).

Half a surrogate pair has no bytes in UTF-8, so llama.cpp refuses it; the engine sends a question mark instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from treadle.plugin import Call, Document, Image, Json, Message, Part, ProviderError, Request, Result, Text

CALL_BIAS: Json = [["<", 0.8]]
"""How much more readily SmolLM2 begins a call (`<tool_call>`) when a person asks, in logits. Measured with our
template: of 22 questions for a tool the shyest begins its call 0.46 below the next best word, and of 7 remarks that
want none the closest 1.14 below; this stands between them."""


REPEAT_PENALTY = 1.15
"""Without tools a model this small says the same again until its limit; llama.cpp's `repeat_penalty` ends that. Of
three plain questions none ended by itself without it, and all with it. With tools it would keep arguments from
repeating what was asked."""


def chat_body(request: Request, max_tokens: int, *, tuned: bool = False) -> Json:
    """The body of one streamed call.

    The answer that repeats is the default: temperature 0. `max_tokens` bounds an answer that the request's own params
    do not bound; params go on as they are. `tuned` says that our template writes the prompt, which the bias fits.
    Reasoning and opaque parts are other providers' and stay behind; an image or document is `ProviderError` of kind
    bad_request, since this model reads only text.
    """
    body: dict[str, Json] = {"temperature": 0, **request.params}
    if not any(body.get(name) for name in ("max_tokens", "max_completion_tokens")):
        body["max_tokens"] = max_tokens
    body["messages"] = list(_messages(request))
    if request.tools:
        if tuned and body["messages"] and body["messages"][-1]["role"] == "user":
            body.setdefault("logit_bias", CALL_BIAS)
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
        body["parallel_tool_calls"] = False
    elif request.output is None:
        body.setdefault("repeat_penalty", REPEAT_PENALTY)
    if request.output is not None:
        schema = {"name": request.output.name, "schema": request.output.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    # Progress makes llama.cpp call back while it still reads the prompt, which is when a cancel can reach it.
    return body | {"stream": True, "stream_options": {"include_usage": True}, "return_progress": True}


def _messages(request: Request) -> Iterator[Json]:
    if request.instructions:
        yield {"role": "system", "content": "\n\n".join(part.text for part in request.instructions)}
    for message in request.messages:
        if message.role == "tool":
            yield from (_result(part) for part in message.parts if isinstance(part, Result))
        elif message.role == "assistant":
            yield _assistant(message)
        else:
            yield {"role": "user", "content": _words(message.parts)}


def _assistant(message: Message) -> Json:
    said: dict[str, Json] = {"role": "assistant", "content": _words(message.parts)}
    if message.calls:
        said["tool_calls"] = [_call(call) for call in message.calls]
    return said


def _call(call: Call) -> Json:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": json.dumps(_arguments(call.arguments), ensure_ascii=False)},
    }


def _arguments(raw: str) -> Json:
    """The arguments as an object, which the template needs; what is none is shown inside one."""
    try:
        given = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        given = None
    return given if isinstance(given, dict) else {"unreadable": raw}


def _result(result: Result) -> Json:
    words = _words(result.parts)
    return {
        "role": "tool",
        "tool_call_id": result.call_id,
        "name": result.name,
        "content": words or result.status,
    }


def _words(parts: Iterable[Part]) -> str:
    words: list[str] = []
    for part in parts:
        if isinstance(part, (Image, Document)):
            what = f"{type(part).__name__}({part.source!r})"
            raise ProviderError(
                "bad_request",
                f"The local model reads only text, and the messages hold {what}.",
                hint="Ask another model, or hide it with a transform_context hook.",
            )
        if isinstance(part, Text):
            words.append(part.text)
    return "".join(words)
