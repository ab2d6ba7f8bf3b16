"""The wire of Anthropic's Messages (API reference, "Messages") and of the servers that speak it. No I/O.

Down: `body` says a `Request` in its words. Up: `MessagesReader` turns events, or one body, into pieces. Blocks that
must come back as they were (thinking, server tools, citations) are kept whole as JSON text in a part's payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from treadle.plugin import (
    Call,
    CallDelta,
    Document,
    FinishReason,
    Image,
    Json,
    Message,
    Opaque,
    Part,
    Payload,
    Piece,
    Reasoning,
    ReasoningDelta,
    Request,
    Result,
    Text,
    TextDelta,
    Usage,
    Whole,
)
from treadle_http.history import named, repaired
from treadle_http.profiles import Profile

from . import Malformed
from .calls import CallIds, callable_name, replayable
from .fields import count, dumped, of, parsed
from .media import data_of, reachable, words_of
from .params import passed
from .reading import Reading


class Messages:
    """Anthropic's Messages as a `Wire`."""

    def path(self, model: str, *, stream: bool) -> str:
        return "/v1/messages"

    def body(self, request: Request, model: str, profile: Profile, *, stream: bool) -> Json:
        """The request's JSON body.

        What stays the same from step to step comes first and messages only grow, as for Chat Completions. The cache
        markers move on, which the provider does not count as a change of the prefix (page "Prompt caching").
        """
        params = passed(request.params, profile, _OWN)
        tools = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
        system: list[Json] = [{"type": "text", "text": part.text} for part in request.instructions if part.text.strip()]
        messages = list(_messages(request.messages, profile))
        if profile.cache_markers and "cache_control" not in params:
            _mark(tools, system, messages)
        out: dict[str, Json] = {"model": model}
        out |= {"tools": tools} if tools else {}
        out |= {"system": system} if system else {}
        out |= {"messages": messages, **params}
        if profile.output_tokens:
            out.setdefault(profile.max_tokens, profile.output_tokens)  # the API demands a limit
        if request.output is not None:
            form = {"type": "json_schema", "schema": _closed(request.output.schema)}
            out["output_config"] = {**out.get("output_config", {}), "format": form}
        out["stream"] = stream
        return out

    def reader(self, profile: Profile) -> MessagesReader:
        """A new reader for one answer."""
        return MessagesReader(profile)


# --- down: what is sent --------------------------------------------------------------------------------

_OWN = frozenset({"model", "messages", "system", "tools", "stream"})
_MARK: Json = {"type": "ephemeral"}


def _tool(name: str, description: str, parameters: Json) -> dict[str, Json]:
    out = {"name": name, "description": description, "input_schema": parameters}
    return out if description else {"name": name, "input_schema": parameters}


def _mark(tools: list[dict[str, Json]], system: list[Json], messages: list[Json]) -> None:
    """Mark what stays (tools and instructions) and where this request and the one before it end.

    The provider looks back from a mark over 20 blocks at most, so a step of many results needs the older mark too.
    """
    for still in (system or tools)[-1:]:
        still["cache_control"] = _MARK
    asked = [message for message in messages if message["role"] == "user"]
    for message in asked[-2:]:
        message["content"][-1] = {**message["content"][-1], "cache_control": _MARK}


def _closed(schema: Json) -> Json:
    """The schema with `additionalProperties` false on each object, as the API demands (page "Structured outputs")."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: _closed(value) for name, value in schema.items()}
    return {**out, "additionalProperties": False} if out.get("type") == "object" and "properties" in out else out


def _messages(messages: Sequence[Message], profile: Profile) -> Iterator[Json]:
    """The conversation. All results of a message stand in the one user message after it, as the API wants them."""
    ids = CallIds(profile)
    results: list[Json] = []
    last = messages[-1] if messages else None
    for message in repaired(messages):
        if message.role == "tool":
            results += (_result(part, ids) for part in message.parts if isinstance(part, Result))
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        if message.role == "assistant":
            content = _valid(_assistant(message.parts, ids, profile))
            if message is last:
                content = _trimmed(content)  # a last assistant message is continued, and may not end in white space
        else:
            content = _user(message.parts, profile)
        if content:
            yield {"role": "assistant" if message.role == "assistant" else "user", "content": content}
    if results:
        yield {"role": "user", "content": results}


def _user(parts: Iterable[Part], profile: Profile) -> list[Json]:
    flat = [inner for part in parts for inner in (named(part) if isinstance(part, Result) else (part,))]
    return [block for part in flat if (block := _said(part, profile)) is not None]


def _said(part: Part, profile: Profile) -> Json | None:
    """A block of words or media, or None for what may not be sent: the API refuses texts of white space alone."""
    if isinstance(part, Text):
        back = _own(part.payload, profile)
        return back or ({"type": "text", "text": part.text} if part.text.strip() else None)
    if isinstance(part, (Image, Document)):
        return _media(part)
    return _own(part.payload, profile) if isinstance(part, (Reasoning, Opaque)) else None


def _own(payload: Payload | None, profile: Profile) -> Json | None:
    """The block that this family once sent; another family's payload means nothing here."""
    return json.loads(payload.data) if payload is not None and payload.family == profile.family else None


def _media(part: Image | Document) -> Json:
    what = "image" if isinstance(part, Image) else "document"
    title = {"title": part.name} if isinstance(part, Document) and part.name else {}
    return {"type": what, "source": _source(part.source, what), **title}


def _source(source: str, what: str) -> Json:
    if source.startswith("file_"):
        return {"type": "file", "file_id": source}
    found = data_of(reachable(source, what))
    if found is None:
        return {"type": "url", "url": source}
    kind, data = found
    if kind.startswith("text/") and what == "document":
        return {"type": "text", "media_type": "text/plain", "data": words_of(data)}
    return {"type": "base64", "media_type": kind, "data": data}


def _assistant(parts: Iterable[Part], ids: CallIds, profile: Profile) -> list[Json]:
    """Blocks in the model's order: thinking has to stand where it stood, byte for byte (page "Extended thinking")."""
    out: list[Json] = []
    for part in parts:
        if isinstance(part, Call):
            block = {"type": "tool_use", "id": ids.of_call(part), "name": callable_name(part.name)}
            extra = _own(part.payload, profile) or {}
            out.append({**block, "input": parsed(replayable(part.arguments)), **extra})
        elif not isinstance(part, (Image, Document)) and (said := _said(part, profile)) is not None:
            out.append(said)
    return out


_THINKING = ("thinking", "redacted_thinking")


def _valid(content: list[Json]) -> list[Json]:
    """The blocks without what an answer that was cut off leaves, and the API refuses.

    That is thinking at the end, and a call of a tool of the provider's own without its result, or the result without
    its call.
    """
    called = {block.get("id") for block in content if block["type"].endswith("tool_use")}
    answered = {block.get("tool_use_id") for block in content}
    out = [block for block in content if _is_paired(block, called, answered)]
    while out and out[-1]["type"] in _THINKING:
        out.pop()
    return out


def _is_paired(block: Json, called: set[str], answered: set[str]) -> bool:
    if block["type"] == "tool_use":
        return True  # its result stands in the next message
    if block["type"].endswith("tool_use"):
        return block.get("id") in answered
    return "tool_use_id" not in block or block["tool_use_id"] in called


def _trimmed(content: list[Json]) -> list[Json]:
    if content and content[-1]["type"] == "text":
        return [*content[:-1], {**content[-1], "text": content[-1]["text"].rstrip()}]
    return content


def _result(result: Result, ids: CallIds) -> Json:
    """A result with its media. The error flag has no word for other endings, so those are said in front."""
    blocks: list[Json] = []
    if result.status not in ("ok", "error"):
        blocks.append({"type": "text", "text": f"[{result.status}]"})
    for part in result.parts:
        if isinstance(part, (Image, Document)):
            blocks.append(_media(part))
        elif isinstance(part, Text) and part.text.strip():
            blocks.append({"type": "text", "text": part.text})
    out: dict[str, Json] = {"type": "tool_result", "tool_use_id": ids.of_result(result)}
    out["content"] = blocks or [{"type": "text", "text": "(no output)"}]
    return out if result.status in ("ok", "deferred") else {**out, "is_error": True}


# --- up: what is answered --------------------------------------------------------------------------------

_FINISH: Mapping[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # Its own tools ran into the limit of one answer, which is to be sent back to be gone on with: it is not the end.
    "pause_turn": "length",
    "refusal": "refused",
}
"""Stop reasons other than a normal end. Whether that is `end` or `calls` is told by the calls."""


@attrs.define
class _Block:
    """A content block that is being written: what it began with, and the texts that were added, by field."""

    key: str
    kind: str
    raw: dict[str, Json]
    texts: dict[str, list[str]] = attrs.field(factory=dict)

    def add(self, field: str, text: str) -> None:
        self.texts.setdefault(field, []).append(text)

    def text(self, field: str) -> str:
        return "".join(self.texts.get(field, ()))


class MessagesReader(Reading):
    """Reads one answer. Feed it events and then `end`, or one `body` and then `end`."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._stop = ""
        self._why = ""
        self._starts = 0
        self._open: dict[int, _Block] = {}
        self._begun: list[str] = []

    def _is_error(self, value: Json, *, whole: bool) -> bool:
        return isinstance(value, dict) and (value.get("type") == "error" or (whole and "content" not in value))

    def _last(self) -> tuple[Iterable[Piece], FinishReason, str] | None:
        if not self._stop:
            return None
        left = [piece for index in list(self._open) for piece in self._closed(index)]
        return left, self._ending(_FINISH.get(self._stop)), f"{self._stop}: {self._why}" if self._why else self._stop

    def _whole(self, value: Json) -> Iterator[Piece]:
        for index, block in enumerate(of(value, "content", list, "the message")):
            yield from self._began(index, block)
            yield from self._closed(index)
        self._stopped(value)
        self._counted(of(value, "usage", dict, "the message"))

    def _pieces(self, value: Json) -> Iterator[Piece]:
        kind = of(value, "type", str, "an event")
        if kind == "message_start":
            yield from self._started(of(value, "message", dict, "an event"))
        elif kind == "content_block_start":
            yield from self._began(of(value, "index", int, "an event"), of(value, "content_block", dict, "an event"))
        elif kind == "content_block_delta":
            yield from self._added(of(value, "index", int, "an event"), of(value, "delta", dict, "an event"))
        elif kind == "content_block_stop":
            yield from self._closed(of(value, "index", int, "an event"))
        elif kind == "message_delta":
            self._stopped(of(value, "delta", dict, "an event"))
            self._counted(of(value, "usage", dict, "an event"))
        elif kind == "message_stop":
            self.done = True

    def _started(self, message: Mapping[str, Json]) -> Iterator[Piece]:
        """A second start comes from gateways that tried again: what the first one brought is taken back."""
        for key in self._begun:
            yield Whole(Text(""), key)
        self._starts += 1
        self._open, self._begun = {}, []
        self._counted(of(message, "usage", dict, "the message"))

    def _stopped(self, delta: Mapping[str, Json]) -> None:
        self._stop = of(delta, "stop_reason", str, "the message") or self._stop
        details = of(delta, "stop_details", dict, "the message")
        self._why = of(details, "explanation", str, "stop_details") or self._why

    def _counted(self, usage: Mapping[str, Json]) -> None:
        """Counts are running totals and an event holds some of them: the last of each counts, none is added."""
        self._counts = {**self._counts, **{name: value for name, value in usage.items() if value is not None}}

    def _usage_of(self, counts: Mapping[str, Json]) -> Usage:
        return usage_of(counts)

    def _quick(self, value: Json) -> Piece | None:
        if value["type"] != "content_block_delta" or value["delta"]["type"] != "text_delta":
            return None
        delta, block = value["delta"], self._open[value["index"]]
        text = delta["text"]
        if block.kind != "text" or len(delta) != 2 or not text or type(text) is not str:
            return None
        block.add("text", text)
        return TextDelta(text, block.key)

    # --- blocks ---

    def _began(self, index: int, raw: Mapping[str, Json]) -> Iterator[Piece]:
        kind = of(raw, "type", str, "a block")
        if not kind:
            raise Malformed("a block has no type")
        block = self._open[index] = _Block(f"{self._starts}-{index}", kind, dict(raw))
        self._begun.append(block.key)
        if kind == "text":
            yield from self._grown(block, "text", of(raw, "text", str, "a block"))
        elif kind == "thinking":
            yield from self._grown(block, "thinking", of(raw, "thinking", str, "a block"))
            block.add("signature", of(raw, "signature", str, "a block"))
        elif kind == "tool_use":
            name, given = of(raw, "name", str, "a block"), of(raw, "id", str, "a block")
            yield CallDelta(key=block.key, name=name, provider_id=given)

    def _grown(self, block: _Block, field: str, text: str) -> Iterator[Piece]:
        block.add(field, text)
        if text:
            yield TextDelta(text, block.key) if field == "text" else ReasoningDelta(text, block.key)

    def _added(self, index: int, delta: Mapping[str, Json]) -> Iterator[Piece]:
        block = self._open.get(index)
        if block is None:
            return  # a delta of no block; what it belongs to is not known
        own = block.kind
        for field, value in delta.items():
            if field == "type":
                continue
            if field == own and own in ("text", "thinking") and isinstance(value, str):
                yield from self._grown(block, field, value)
            elif field == "partial_json":
                block.add(field, of(delta, field, str, "a delta"))
                if own == "tool_use" and value:
                    yield CallDelta(key=block.key, arguments=value)
            elif field == "citation":
                block.raw["citations"] = [*(block.raw.get("citations") or ()), value]
            elif isinstance(value, str):
                block.add(field, value)
            else:
                block.raw[field] = value

    def _closed(self, index: int) -> Iterator[Piece]:
        """The end of a block: it once more and whole, where it must go back as it is."""
        block = self._open.pop(index, None)
        if block is None:
            return
        kind, key = block.kind, block.key
        if kind == "tool_use":
            yield from self._called(block)
        elif kind == "text":
            if block.raw.get("citations"):
                yield Whole(Text(block.text("text"), self._payload(block)), key)
        elif kind in ("thinking", "redacted_thinking"):
            yield Whole(Reasoning(block.text("thinking"), self._payload(block)), key)
        else:
            yield Whole(Opaque(self._payload(block)), key)

    def _called(self, block: _Block) -> Iterator[Piece]:
        arguments, key = block.text("partial_json"), block.key
        if not arguments:  # no deltas: the whole input stood in the start, and llama.cpp leaves an empty one out
            arguments = dumped(of(block.raw, "input", dict, "a block"))
            yield CallDelta(key=key, arguments=arguments)
        caller = block.raw.get("caller")
        if isinstance(caller, dict) and caller.get("type", "direct") != "direct":
            payload = Payload(self._profile.family, dumped({"caller": caller}))
            name, given = of(block.raw, "name", str, "a block"), of(block.raw, "id", str, "a block")
            yield Whole(Call(id="", name=name, arguments=arguments, provider_id=given, payload=payload), key)

    def _payload(self, block: _Block) -> Payload:
        raw = dict(block.raw)
        for field in block.texts:
            if field != "partial_json":
                raw[field] = block.text(field)
            elif block.text(field):
                raw["input"] = parsed(replayable(block.text(field)))
        return Payload(self._profile.family, dumped(raw))


def usage_of(raw: Mapping[str, Json]) -> Usage:
    """Usage with each token counted once. Cached input stands beside the input here; thinking is not shown apart."""
    return Usage(
        input=count(raw, "input_tokens"),
        cache_read=count(raw, "cache_read_input_tokens"),
        cache_write=count(raw, "cache_creation_input_tokens"),
        output=count(raw, "output_tokens"),
        raw=dumped(raw),
    )
