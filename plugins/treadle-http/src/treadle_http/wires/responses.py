"""The wire of OpenAI's Responses (API reference, "Responses") and of the servers that speak it. No I/O.

It is used without a memory at the provider (`store` false): what the provider must get back goes back. Items that
have to return as they were are kept as JSON text in a part's payload; one part of a message item keeps its own piece.

Rules of the provider that are kept to here: a reasoning item is followed by the very item that followed it ("was
provided without its required following item"), and an item's id is only sent behind that reasoning ("was provided
without its required 'reasoning' item"). What cannot go back whole goes back as plain words.
"""

from __future__ import annotations

import json
import re
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

from .calls import CallIds, callable_name, replayable
from .fields import count, dumped, of
from .media import reachable
from .params import passed
from .reading import Reading


class Responses:
    """OpenAI's Responses as a `Wire`."""

    def path(self, model: str, *, stream: bool) -> str:
        return "/responses"

    def body(self, request: Request, model: str, profile: Profile, *, stream: bool) -> Json:
        """The request's JSON body. What stays the same comes first and items only grow, as for Chat Completions."""
        params = passed(request.params, profile, _OWN)
        out: dict[str, Json] = {"model": model}
        if words := [part.text for part in request.instructions if part.text]:
            out["instructions"] = "\n\n".join(words)
        if request.tools:
            out["tools"] = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
        out |= {"input": list(_items(request.messages, profile)), **params}
        out.setdefault("store", False)
        if not out["store"] and re.match(profile.encrypted_models, model):
            asked = out.get("include") or []
            out["include"] = [*asked, *(name for name in [_ENCRYPTED] if name not in asked)]
        if request.output is not None:
            # The name's alphabet is the API's: letters, digits, underscores and dashes, at most 64.
            form = {"type": "json_schema", "name": callable_name(request.output.name), "schema": request.output.schema}
            out["text"] = {**out.get("text", {}), "format": form}
        out["stream"] = stream
        return out

    def reader(self, profile: Profile) -> ResponsesReader:
        """A new reader for one answer."""
        return ResponsesReader(profile)


# --- down: what is sent --------------------------------------------------------------------------------

_OWN = frozenset({"model", "instructions", "input", "tools", "stream"})
_ENCRYPTED = "reasoning.encrypted_content"


def _tool(name: str, description: str, parameters: Json) -> Json:
    words = {"description": description} if description else {}
    # Without a word on it the API takes a schema as strict and changes it.
    return {"type": "function", "name": name, **words, "parameters": parameters, "strict": False}


def _items(messages: Sequence[Message], profile: Profile) -> Iterator[Json]:
    ids = CallIds(profile)
    for message in repaired(messages):
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, Result):
                    yield {"type": "function_call_output", "call_id": ids.of_result(part), "output": _output(part)}
        elif message.role == "assistant":
            yield from _assistant(message.parts, ids, profile)
        elif content := _content(message.parts, profile):
            yield {"role": "user", "content": content}


def _content(parts: Iterable[Part], profile: Profile) -> str | list[Json]:
    """Content of a user's message: plain text if it is only that, which every server takes, else a list of parts."""
    flat = [inner for part in parts for inner in (named(part) if isinstance(part, Result) else (part,))]
    if all(isinstance(part, Text) for part in flat):
        return "\n\n".join(part.text for part in flat if isinstance(part, Text) and part.text)
    return [chunk for part in flat if (chunk := _chunk(part)) is not None]


def _chunk(part: Part) -> Json | None:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text} if part.text else None
    if isinstance(part, Image):
        if part.source.startswith("file-"):
            return {"type": "input_image", "file_id": part.source}
        return {"type": "input_image", "image_url": reachable(part.source, "image")}
    if isinstance(part, Document):
        return _file(part)
    return None  # a user neither thinks nor calls


def _file(part: Document) -> Json:
    if part.source.startswith("file-"):
        return {"type": "input_file", "file_id": part.source}
    source = reachable(part.source, "document")
    if not source.startswith("data:"):
        return {"type": "input_file", "file_url": source}
    # Data without a name is refused.
    return {"type": "input_file", "filename": part.name or "document", "file_data": source}


def _output(result: Result) -> str | list[Json]:
    """A result's words, or a list of parts if it holds more. A status other than ok is said in front."""
    parts = [part for part in result.parts if isinstance(part, (Text, Image, Document))]
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    text = f"[{result.status}] {text}".rstrip() if result.status != "ok" else text
    media = [part for part in parts if not isinstance(part, Text)]
    if not media:
        return text if text.strip() else "(no output)"
    return [chunk for part in (Text(text), *media) if (chunk := _chunk(part)) is not None]


def _assistant(parts: Sequence[Part], ids: CallIds, profile: Profile) -> Iterator[Json]:
    """The items of an assistant message. Pieces of one message item become that item again."""
    raw = _returning([_own(part, profile) for part in parts])
    lost = False  # a reasoning item does not go back, so what follows it goes without the id that names it
    open_item: dict[str, Json] | None = None
    for part, own in zip(parts, raw, strict=True):
        if open_item is not None and (own is None or not _continues(open_item, own)):
            yield open_item
            open_item = None
        if isinstance(part, Reasoning):
            lost = own is None
        if isinstance(part, Call):
            kept = {"type": "function_call"} if own is None or lost else own
            call = {"call_id": ids.of_call(part), "name": callable_name(part.name)}
            yield {**kept, **call, "arguments": replayable(part.arguments)}
        elif own is None or (lost and own.get("type") == "message"):
            yield from _plain(part, own or {})
        elif own.get("type") != "message":
            yield own
        elif open_item is not None:
            open_item = {**open_item, "content": [*open_item["content"], *own["content"]]}
        else:
            open_item = own
    if open_item is not None:
        yield open_item


def _returning(raw: list[dict[str, Json] | None]) -> list[dict[str, Json] | None]:
    """The items without reasoning whose follower does not return, as in a message that was cut off."""
    out: list[dict[str, Json] | None] = []
    for own in reversed(raw):
        lost = own is not None and own.get("type") == "reasoning" and not (out and out[-1] is not None)
        out.append(None if lost else own)
    return out[::-1]


def _own(part: Part, profile: Profile) -> dict[str, Json] | None:
    """The item that this family once sent; another family's payload means nothing here."""
    payload = part.payload
    if payload is None or payload.family != profile.family:
        return None
    item: dict[str, Json] = json.loads(payload.data)
    return item


def _continues(item: Mapping[str, Json], own: Mapping[str, Json]) -> bool:
    return own.get("type") == "message" and own.get("id") == item.get("id")


def _plain(part: Part, own: Mapping[str, Json]) -> Iterator[Json]:
    if isinstance(part, Text) and part.text.strip():
        phase = {"phase": own["phase"]} if own.get("phase") else {}
        yield {"role": "assistant", "content": part.text, **phase}


# --- up: what is answered --------------------------------------------------------------------------------


@attrs.define
class _Item:
    """An output item that is being written: its kind, and the texts so far by the key of their part."""

    key: str
    kind: str
    id: str = ""
    texts: dict[str, list[str]] = attrs.field(factory=dict)
    places: dict[int, int] = attrs.field(factory=dict)
    done: bool = False

    def place(self, index: int) -> str:
        """The key of a content part. Its index is not always its place: Bedrock begins with 1."""
        return f"{self.key}-{self.places.setdefault(index, len(self.places))}"

    def add(self, key: str, text: str) -> None:
        self.texts.setdefault(key, []).append(text)

    def text(self, key: str) -> str:
        return "".join(self.texts.get(key, ()))


_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesReader(Reading):
    """Reads one answer. Feed it events and then `end`, or one `body` and then `end`."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._status = ""
        self._reason = ""
        self._refused = False
        self._items: dict[int, _Item] = {}
        self._thought = False  # a reasoning item came that can go back; what follows goes back with it
        self._summary = -1

    def _is_error(self, value: Json, *, whole: bool) -> bool:
        if not isinstance(value, dict):
            return False
        if whole:
            return bool(value.get("error")) or "output" not in value or value.get("status") == "failed"
        return value.get("type") in ("error", "response.failed")

    def _error_of(self, value: Json) -> Json:
        response = value.get("response") if isinstance(value, dict) else None
        return response if isinstance(response, dict) and response.get("error") else value

    def _last(self) -> tuple[Iterable[Piece], FinishReason, str] | None:
        if self._status not in ("completed", "incomplete"):
            return None
        forced: FinishReason | None = None
        if self._refused or self._reason == "content_filter":
            forced = "refused"
        elif self._status == "incomplete":
            forced = "length"
        return (), self._ending(forced), self._reason or self._status

    def _whole(self, value: Json) -> Iterator[Piece]:
        for at, item in enumerate(of(value, "output", list, "the response")):
            if at not in self._items or not self._items[at].done:
                yield from self._finished(at, item)
        self._status = of(value, "status", str, "the response")
        self._reason = of(of(value, "incomplete_details", dict, "the response"), "reason", str, "incomplete_details")
        if usage := of(value, "usage", dict, "the response"):
            self._counts = usage

    def _pieces(self, value: Json) -> Iterator[Piece]:
        kind = of(value, "type", str, "an event")
        if kind == "response.output_item.added":
            yield from self._began(self._place(value, new=True), of(value, "item", dict, "an event"))
        elif kind == "response.output_item.done":
            yield from self._finished(self._place(value), of(value, "item", dict, "an event"))
        elif kind in _ENDS:
            yield from self._whole(of(value, "response", dict, "an event"))
            self.done = kind != "response.failed"
        elif kind.endswith(".delta"):
            yield from self._added(kind, value)
        elif kind == "response.content_part.added" and (item := self._items.get(self._place(value))):
            item.place(of(value, "content_index", int, "an event"))

    def _usage_of(self, counts: Mapping[str, Json]) -> Usage:
        return usage_of(counts)

    def _quick(self, value: Json) -> Piece | None:
        if value["type"] != "response.output_text.delta":
            return None
        item, text = self._items[value["output_index"]], value["delta"]
        if item.kind != "message" or not text or type(text) is not str or type(value["content_index"]) is not int:
            return None
        key = item.place(value["content_index"])
        item.add(key, text)
        return TextDelta(text, key)

    # --- items ---

    def _place(self, value: Mapping[str, Json], *, new: bool = False) -> int:
        """Where an item stands: by `output_index`, since ids change between events (GitHub Copilot, OpenRouter).

        llama.cpp sends no index: an item that is added is the next, any other event's is found by its id.
        """
        if value.get("output_index") is not None:
            return int(of(value, "output_index", int, "an event"))
        if new:
            return len(self._items)
        item = of(value, "item", dict, "an event")
        wanted = of(value, "item_id", str, "an event") or of(item, "id", str, "an item")
        found = [at for at, known in self._items.items() if wanted and known.id == wanted]
        return found[-1] if found else max(self._items, default=0)

    def _began(self, at: int, raw: Mapping[str, Json]) -> Iterator[Piece]:
        kind = of(raw, "type", str, "an item")
        item = self._items[at] = _Item(f"{at}", kind, of(raw, "id", str, "an item"))
        if kind == "function_call":
            name, given = of(raw, "name", str, "an item"), of(raw, "call_id", str, "an item")
            yield CallDelta(key=item.key, name=name, provider_id=given)
            yield from self._grown(item, item.key, of(raw, "arguments", str, "an item"))
        elif kind != "message":
            yield ReasoningDelta("", item.key)  # holds its place among the parts until it is whole

    def _added(self, kind: str, value: Mapping[str, Json]) -> Iterator[Piece]:
        at, text = self._place(value), value.get("delta")
        if not isinstance(text, str):
            return  # audio and the like: it comes whole with its item
        item = self._items.get(at)
        if item is None:
            item = self._items[at] = _Item(f"{at}", _KINDS.get(kind, ""), of(value, "item_id", str, "an event"))
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._refused = self._refused or kind == "response.refusal.delta"
            yield from self._grown(item, item.place(of(value, "content_index", int, "an event")), text)
        elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            summary = of(value, "summary_index", int, "an event")
            if item.texts and summary != self._summary:
                text = f"\n\n{text}"
            self._summary = summary
            yield from self._grown(item, item.key, text)
        elif kind == "response.function_call_arguments.delta":
            yield from self._grown(item, item.key, text)

    def _grown(self, item: _Item, key: str, text: str) -> Iterator[Piece]:
        if not text:
            return
        item.add(key, text)
        if item.kind == "message":
            yield TextDelta(text, key)
        elif item.kind == "reasoning":
            yield ReasoningDelta(text, key)
        elif item.kind == "function_call":
            yield CallDelta(key=key, arguments=text)

    # --- whole items ---

    def _finished(self, at: int, raw: Json) -> Iterator[Piece]:
        """An item once more and whole: it counts more than its deltas, and goes back as it is where it must."""
        item = self._items.get(at)
        if item is None:
            yield from self._began(at, raw)
            item = self._items[at]
        item.done = True
        item.kind = of(raw, "type", str, "an item")
        if item.kind == "message":
            for place, chunk in enumerate(of(raw, "content", list, "an item")):
                yield from self._said(item, f"{item.key}-{place}", raw, chunk)
        elif item.kind == "reasoning":
            yield self._reasoned(item, raw)
        elif item.kind == "function_call":
            yield from self._called(item, raw)
        else:
            yield Whole(Opaque(self._payload(raw)), item.key)

    def _said(self, item: _Item, key: str, raw: Mapping[str, Json], chunk: Json) -> Iterator[Piece]:
        kind = of(chunk, "type", str, "a content part")
        own = {name: value for name, value in chunk.items() if name != "logprobs"}
        payload = self._payload({**raw, "content": [own]})
        if kind not in ("output_text", "refusal"):
            yield Whole(Opaque(payload), key)
            return
        self._refused = self._refused or kind == "refusal"
        text = of(chunk, "refusal" if kind == "refusal" else "text", str, "a content part")
        if not item.text(key):
            yield from self._grown(item, key, text)
        must_return = self._thought or raw.get("phase") or chunk.get("annotations")
        if text and (must_return or item.text(key) != text):
            yield Whole(Text(text, payload if must_return else None), key)

    def _reasoned(self, item: _Item, raw: Mapping[str, Json]) -> Piece:
        thoughts = [of(part, "text", str, "a thought") for part in of(raw, "content", list, "an item")]
        summary = [of(part, "text", str, "a summary") for part in of(raw, "summary", list, "an item")]
        text = "".join(thoughts) or "\n\n".join(summary) or item.text(item.key)
        returns = bool(of(raw, "encrypted_content", str, "an item") or thoughts)
        self._thought = self._thought or returns
        return Whole(Reasoning(text, self._payload(raw) if returns else None), item.key)

    def _called(self, item: _Item, raw: Mapping[str, Json]) -> Iterator[Piece]:
        arguments = of(raw, "arguments", str, "an item")
        if not item.text(item.key):
            yield from self._grown(item, item.key, arguments)
        if self._thought or item.text(item.key) != arguments:
            name, given = of(raw, "name", str, "an item"), of(raw, "call_id", str, "an item")
            payload = self._payload(raw) if self._thought else None
            yield Whole(Call(id="", name=name, arguments=arguments, provider_id=given, payload=payload), item.key)

    def _payload(self, raw: Mapping[str, Json]) -> Payload:
        return Payload(self._profile.family, dumped(raw))


_KINDS = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
}
"""What an item is whose beginning was not sent."""


def usage_of(raw: Mapping[str, Json]) -> Usage:
    """Usage with each token counted once. Cached input stands inside the input, reasoning inside the output."""
    read, written = count(raw, "input_tokens"), count(raw, "output_tokens")
    cached = min(count(raw, "input_tokens_details", "cached_tokens"), read)
    kept = min(count(raw, "input_tokens_details", "cache_write_tokens"), read - cached)
    reasoning = min(count(raw, "output_tokens_details", "reasoning_tokens"), written)
    return Usage(
        input=read - cached - kept,
        cache_read=cached,
        cache_write=kept,
        output=written - reasoning,
        reasoning=reasoning,
        raw=dumped(raw),
    )
