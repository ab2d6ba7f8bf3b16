"""The wire of OpenAI's Chat Completions (API reference, "Chat") and of the servers that speak it. No I/O.

Down: `body` says a `Request` in its words. Up: `ChatReader` turns events, or one body, into pieces. The two halves
meet in the payload of a part: JSON text of what goes back, one content chunk (it has a `type`) or message fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
from treadle_http.errors import Kind
from treadle_http.history import named, repaired
from treadle_http.profiles import Profile

from . import Malformed
from .calls import CallIds, is_object, replayable
from .fields import count, dumped, of
from .media import bad_request, reachable
from .params import passed
from .reading import Reading


class Chat:
    """Chat Completions as a `Wire`."""

    def path(self, model: str, *, stream: bool) -> str:
        return "/chat/completions"

    def body(self, request: Request, model: str, profile: Profile, *, stream: bool) -> Json:
        """The request's JSON body.

        What stays the same from step to step comes first and messages only grow, so that the text up to the end of
        the messages is the beginning of the next step's text: providers cache by that prefix.
        """
        out: dict[str, Json] = {"model": model}
        if request.tools:
            out["tools"] = [
                {"type": "function", "function": _function(tool.name, tool.description, tool.parameters)}
                for tool in request.tools
            ]
        out["messages"] = [*_system(request, profile), *_messages(request.messages, profile)]
        out.update(passed(request.params, profile, _OWN))
        if request.output is not None:
            out["response_format"] = _response_format(request, profile)
        out["stream"] = stream
        if stream and profile.stream_usage:
            out["stream_options"] = {"include_usage": True}
        return out

    def reader(self, profile: Profile) -> ChatReader:
        """A new reader for one answer."""
        return ChatReader(profile)


# --- down: what is sent --------------------------------------------------------------------------------


def _function(name: str, description: str, parameters: Json) -> Json:
    out = {"name": name, "description": description, "parameters": parameters}
    return out if description else {"name": name, "parameters": parameters}


_OWN = frozenset({"model", "messages", "tools", "stream", "stream_options"})


def _response_format(request: Request, profile: Profile) -> Json:
    if profile.output == "json_object" or request.output is None:
        return {"type": "json_object"}
    # The name's alphabet is the API's: letters, digits, underscores and dashes, at most 64.
    name = re.sub(r"[^A-Za-z0-9_-]", "_", request.output.name)[:64] or "output"
    return {"type": "json_schema", "json_schema": {"name": name, "schema": request.output.schema}}


def _system(request: Request, profile: Profile) -> list[Json]:
    texts = [part.text for part in request.instructions if part.text]
    if request.output is not None and profile.output == "json_object":
        # The mode guarantees JSON but knows no schema, and asks for the word in the prompt (DeepSeek, "JSON Output").
        schema = json.dumps(request.output.schema, ensure_ascii=False, separators=(",", ":"))
        texts.append(f"Answer with one JSON object of this JSON schema: {schema}")
    return [{"role": profile.system_role, "content": "\n\n".join(texts)}] if texts else []


def _messages(messages: Sequence[Message], profile: Profile) -> Iterator[Json]:
    ids = CallIds(profile)
    pictures: list[Json] = []
    for message in repaired(messages):
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, Result):
                    yield {"role": "tool", "tool_call_id": ids.of_result(part), "content": _result_text(part)}
                    pictures += _result_pictures(part, profile)
            continue
        if pictures:
            yield {"role": "user", "content": pictures}
            pictures = []
        if message.role == "assistant":
            said = _assistant(message, ids, profile)
            if said is not None:
                yield said
        elif content := _user_content(message.parts, profile):
            yield {"role": "user", "content": content}
    if pictures:
        yield {"role": "user", "content": pictures}


def _user_content(parts: Iterable[Part], profile: Profile) -> str | list[Json]:
    """Content of a user message: plain text if it is only that, which every server takes, else a list of parts."""
    flat = [inner for part in parts for inner in (named(part) if isinstance(part, Result) else (part,))]
    if all(isinstance(part, Text) for part in flat):
        return "\n\n".join(part.text for part in flat if isinstance(part, Text) and part.text)
    return [chunk for part in flat if (chunk := _user_chunk(part, profile)) is not None]


def _user_chunk(part: Part, profile: Profile) -> Json | None:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text} if part.text else None
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": reachable(part.source, "image")}}
    if isinstance(part, Document):
        return _file(part, profile)
    if isinstance(part, Opaque) and part.payload.family == profile.family:
        return json.loads(part.payload.data)
    return None  # a user neither thinks nor calls; another family's payload means nothing here


def _file(part: Document, profile: Profile) -> Json:
    name = {"filename": part.name} if part.name else {}
    if part.source.startswith("file-"):
        return {"type": "file", "file": {"file_id": part.source}}
    source = reachable(part.source, "document")
    if source.startswith("data:") or profile.file_urls == "file_data":
        return {"type": "file", "file": {**name, "file_data": source}}
    if profile.file_urls == "document_url":
        return {"type": "document_url", "document_url": source}
    raise bad_request(f"{profile.name} takes no document by URL.", "Give it as a data URL or an uploaded file's id.")


def _assistant(message: Message, ids: CallIds, profile: Profile) -> Json | None:
    """An assistant message, or None if it says nothing that this provider may be sent: it refuses empty ones."""
    chunks: list[Json] = []
    fields: dict[str, Json] = {}
    calls: list[Json] = []
    for part in message.parts:
        if isinstance(part, Text):
            chunks += [{"type": "text", "text": part.text}] if part.text else []
        elif isinstance(part, Call):
            function = {"name": part.name, "arguments": replayable(part.arguments)}
            calls.append({"id": ids.of_call(part), "type": "function", "function": function})
        elif isinstance(part, (Reasoning, Opaque)) and part.payload and part.payload.family == profile.family:
            back = json.loads(part.payload.data)
            if "type" in back:
                chunks.append(back)
            else:
                for name, value in back.items():  # two stretches of reasoning are one field
                    fields[name] = fields[name] + value if name in fields else value
    content = _assistant_content(chunks)
    if calls:
        fields = dict.fromkeys(profile.echo_empty, "") | fields
        return {"role": "assistant", "content": content, **fields, "tool_calls": calls}
    return {"role": "assistant", "content": content, **fields} if content else None


def _assistant_content(chunks: list[Json]) -> Json:
    """Text if there is nothing else, null if there is only white space: an empty text beside calls is refused."""
    if any(chunk["type"] != "text" for chunk in chunks):
        return chunks
    text = "".join(chunk["text"] for chunk in chunks)
    return text if text.strip() else None


def _result_text(result: Result) -> str:
    """A result's words. There is no error flag on this wire, so a status other than ok is said in front."""
    text = "\n".join(part.text for part in result.parts if isinstance(part, Text))
    if any(isinstance(part, (Image, Document)) for part in result.parts):
        text = f"{text}\n(What else it returned follows as a user message.)".lstrip()
    if result.status != "ok":
        return f"[{result.status}] {text}".rstrip()
    return text if text.strip() else "(no output)"


def _result_pictures(result: Result, profile: Profile) -> list[Json]:
    """Images and documents of a result. Tool messages hold text only, so they follow as a user message."""
    parts = [part for part in result.parts if isinstance(part, (Image, Document))]
    if not parts:
        return []
    words = {"type": "text", "text": f"Returned by {result.name}:"}
    return [words, *(chunk for part in parts if (chunk := _user_chunk(part, profile)) is not None)]


# --- up: what is answered --------------------------------------------------------------------------------

_FINISH: Mapping[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",  # Mistral
    "model_context_window_exceeded": "length",
    "content_filter": "refused",
    "refusal": "refused",
    "sensitive": "refused",  # z.ai
}
"""Stop reasons other than a normal end. Whether that is `end` or `calls` is told by the calls."""

_BROKEN: Mapping[str, Kind] = {
    "error": "server",
    "network_error": "server",  # z.ai
    "insufficient_system_resource": "overloaded",  # DeepSeek
    "abort": "interrupted",  # vLLM
}
"""Stop reasons of an answer that the provider broke off: no answer."""

_REASONING = ("reasoning_content", "reasoning")
"""Where reasoning text stands; some servers send the same text in both, so the first that has any counts."""


class ChatReader(Reading):
    """Reads one answer. Feed it events and then `end`, or one `body` and then `end`."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._finish = ""
        self._refused = False
        self._segment = ("", 0)
        self._thoughts: dict[str, _Thought] = {}
        self._details: list[dict[str, Json]] = []
        self._calls = _Calls()

    def _last(self) -> tuple[Iterable[Piece], FinishReason, str] | None:
        """Complete is what gave a stop reason, or said [DONE] after whole content without one."""
        if self._finish in _BROKEN:
            raise self._fault(_BROKEN[self._finish], f"The provider broke the answer off ({self._finish}).")
        parts = self._assembly.parts
        # A route of OpenRouter never sets finish_reason; its calls still have to be whole.
        whole = self.done and parts and all(is_object(part.arguments) for part in parts if isinstance(part, Call))
        if not self._finish and not whole:
            return None
        forced: FinishReason | None = "refused" if self._refused else _FINISH.get(self._finish)
        return self._payloads(), self._ending(forced), self._finish

    def _is_error(self, value: Json, *, whole: bool) -> bool:
        if not isinstance(value, dict):
            return False
        return bool(value.get("error") or value.get("object") == "error" or (whole and "choices" not in value))

    def _usage_of(self, counts: Mapping[str, Json]) -> Usage:
        return usage_of(counts)

    def _quick(self, value: Json) -> Piece | None:
        (choice,) = value["choices"]
        delta = choice["delta"]
        text = delta["content"]
        other = choice.get("finish_reason") or choice.get("index") or value.get("usage") or value.get("x_groq")
        if other or not text or type(text) is not str or value.get("error") or value.get("object") == "error":
            return None
        return TextDelta(text, self._key("text")) if len(delta) == 1 else None

    # --- one object ---

    def _whole(self, value: Json) -> Iterator[Piece]:
        return self._pieces(value)

    def _pieces(self, value: Json) -> Iterator[Piece]:
        """The pieces of a chunk or of a whole completion."""
        usage = of(value, "usage", dict, "it") or of(of(value, "x_groq", dict, "it"), "usage", dict, "x_groq")
        if usage:
            self._counts = usage
        for choice in of(value, "choices", list, "it"):
            if of(choice, "index", int, "a choice") != 0:
                continue
            self._finish = of(choice, "finish_reason", str, "a choice") or self._finish
            delta = of(choice, "delta", dict, "a choice")
            yield from self._said(delta or of(choice, "message", dict, "a choice"), whole=not delta)

    def _said(self, said: Mapping[str, Json], *, whole: bool) -> Iterator[Piece]:
        thought = next((said[name] for name in _REASONING if isinstance(said.get(name), str) and said[name]), "")
        if thought:
            yield self._thought(thought, next(name for name in _REASONING if said.get(name) == thought))
        if details := of(said, "reasoning_details", list, "the message"):
            yield from self._detailed(details, bool(thought))
        content = said.get("content")
        if isinstance(content, list):
            for chunk in content:
                yield from self._chunk(chunk)
        elif content is not None:
            yield from self._text(of(said, "content", str, "the message"))
        if refusal := of(said, "refusal", str, "the message"):
            self._refused = True
            yield from self._text(refusal)
        for at, entry in enumerate(of(said, "tool_calls", list, "the message")):
            yield self._calls.delta(entry, at if whole else None)
        if legacy := of(said, "function_call", dict, "the message"):
            yield self._calls.delta({"index": 0, "function": legacy}, None)

    # --- text and reasoning: a new part wherever the kind changes ---

    def _key(self, kind: str) -> str:
        if self._segment[0] != kind:
            self._segment = (kind, self._segment[1] + 1)
        return f"{kind}-{self._segment[1]}"

    def _text(self, text: str) -> Iterator[Piece]:
        if text:
            yield TextDelta(text, self._key("text"))

    def _thought(self, text: str, field: str, chunk: Mapping[str, Json] | None = None) -> Piece:
        key = self._key("reasoning")
        thought = self._thoughts.setdefault(key, _Thought(field))
        thought.texts.append(text)
        thought.chunk.update(chunk or {})
        return ReasoningDelta(text, key)

    def _chunk(self, chunk: Json) -> Iterator[Piece]:
        """One chunk of a content list: Mistral's text and thinking; any other is kept for the way back."""
        kind = of(chunk, "type", str, "a content chunk")
        if kind == "text":
            yield from self._text(of(chunk, "text", str, "a content chunk"))
        elif kind == "thinking":
            thinking = chunk.get("thinking")
            inner = [thinking] if isinstance(thinking, str) else of(chunk, "thinking", list, "a content chunk")
            words = (item if isinstance(item, str) else of(item, "text", str, "a thought") for item in inner)
            yield self._thought("".join(words), "thinking", chunk)
        else:
            self._segment = ("", self._segment[1])
            yield Whole(Opaque(Payload(self._profile.family, dumped(chunk))))

    def _detailed(self, details: Sequence[Json], shown: bool) -> Iterator[Piece]:
        """OpenRouter's reasoning_details: pieces of one index and type are one entry (page "Reasoning Tokens")."""
        for piece in details:
            index, kind = of(piece, "index", int, "a reasoning detail", -1), piece.get("type")
            entry = next((e for e in self._details if (e.get("index", -1), e.get("type")) == (index, kind)), None)
            if entry is None or index < 0:
                self._details.append(dict(piece))
            else:
                _grow(entry, piece)
            words = piece.get("text") or piece.get("summary")
            if not shown and (words or not self._thoughts):
                yield self._thought(words if isinstance(words, str) else "", "reasoning_details")

    def _payloads(self) -> Iterator[Piece]:
        """Each thought once more, whole, where the provider wants it back."""
        echo, family = self._profile.echo, self._profile.family
        details = self._details if "reasoning_details" in echo else []
        for key, thought in self._thoughts.items():
            text = "".join(thought.texts)
            if details:
                back: Json = {"reasoning_details": details}
                details = []
            elif thought.field not in echo or thought.field == "reasoning_details":
                continue
            elif thought.field == "thinking":
                back = {**thought.chunk, "thinking": [{"type": "text", "text": text}]}
            else:
                back = {thought.field: text}
            yield Whole(Reasoning(text, Payload(family, dumped(back))), key)


class _Thought:
    """One stretch of reasoning: the field it came in, its texts, and what else its chunk said."""

    __slots__ = ("chunk", "field", "texts")

    def __init__(self, field: str) -> None:
        self.field = field
        self.texts: list[str] = []
        self.chunk: dict[str, Json] = {}


class _Calls:
    """Which call a delta belongs to: its `index` says so, and where servers leave that out or repeat it, its id."""

    def __init__(self) -> None:
        self._slots: list[tuple[int, str, str]] = []  # index (-1: none), id, name; as far as they are known

    def delta(self, entry: Json, place: int | None) -> CallDelta:
        """The piece of one entry. `place` is its place in a whole message, where each entry is a call."""
        function = of(entry, "function", dict, "a tool call")
        index = of(entry, "index", int, "a tool call", -1)
        given, name = of(entry, "id", str, "a tool call"), of(function, "name", str, "a tool call")
        slot = len(self._slots) if place is not None else self._slot(index, given, name)
        if slot == len(self._slots):
            self._slots.append((index, given, name))
        _, known, called = self._slots[slot]
        self._slots[slot] = (index, known or given, called or name)
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # some servers send the object itself
            arguments = dumped(arguments)
        elif arguments is not None and not isinstance(arguments, str):
            raise Malformed('"arguments" of a tool call is no text')
        return CallDelta(key=f"call-{slot}", name=name, arguments=arguments or "", provider_id=given)

    def _slot(self, index: int, given: str, name: str) -> int:
        """The slot of a streamed entry; the number of slots if it begins a new call."""
        for slot in range(len(self._slots) - 1, -1, -1):
            at, known, called = self._slots[slot]
            # Servers that say index 0 for every call begin each with a name and an id of its own.
            other = bool(given and known and given != known and name and called)
            if index >= 0 and at == index and not other:
                return slot
            if index < 0 and (given == known if given else not name):
                return slot
        return len(self._slots)


def _grow(entry: dict[str, Json], piece: Mapping[str, Json]) -> None:
    for name, value in piece.items():
        if name in ("text", "summary", "data") and isinstance(value, str) and isinstance(entry.get(name), str):
            entry[name] += value
        elif value is not None:
            entry[name] = value


def usage_of(raw: Mapping[str, Json]) -> Usage:
    """Usage with each token counted once. Here cached input stands inside the input, reasoning inside the output.

    xAI alone counts reasoning beside the output; the total tells (recorded: 496 + 77 + 121 reasoning = 694).
    """
    prompt, completion = count(raw, "prompt_tokens"), count(raw, "completion_tokens")
    read = count(raw, "prompt_tokens_details", "cached_tokens") or count(raw, "prompt_cache_hit_tokens")
    written = count(raw, "prompt_tokens_details", "cache_write_tokens")
    reasoning = count(raw, "completion_tokens_details", "reasoning_tokens")
    if not (reasoning and count(raw, "total_tokens") == prompt + completion + reasoning):
        reasoning = min(reasoning, completion)
        completion -= reasoning
    read = min(read, prompt)
    written = min(written, prompt - read)
    return Usage(
        input=prompt - read - written,
        cache_read=read,
        cache_write=written,
        output=completion,
        reasoning=reasoning,
        raw=dumped(raw),
    )
