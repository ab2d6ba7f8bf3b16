"""The wire of Gemini's generateContent (API reference, "Generating content"). No I/O.

Down: `body` says a `Request` in its words. Up: `GeminiReader` turns events, or one body, into pieces. A part with a
`thoughtSignature` is kept whole as JSON text in a payload and goes back where it stood: such parts are never merged
and never dropped, also when they are empty (page "Thought signatures").
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

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
from .media import bad_request, data_of, reachable
from .params import passed
from .reading import Reading


class Gemini:
    """Gemini's generateContent as a `Wire`."""

    def path(self, model: str, *, stream: bool) -> str:
        where = model if "/" in model else f"models/{model}"
        return f"/v1beta/{quote(where)}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"

    def body(self, request: Request, model: str, profile: Profile, *, stream: bool) -> Json:
        """The request's JSON body. What stays the same comes first and contents only grow, as for Chat Completions."""
        params = passed(request.params, profile, _OWN)
        out: dict[str, Json] = {}
        if words := [{"text": part.text} for part in request.instructions if part.text]:
            out["systemInstruction"] = {"parts": words}
        if request.tools:
            tools = [_tool(tool.name, tool.description, tool.parameters) for tool in request.tools]
            out["tools"] = [{"functionDeclarations": tools}]
        signed = re.match(profile.signed_models, model) is not None
        out["contents"] = list(_contents(request.messages, profile, signed=signed))
        out |= {name: value for name, value in params.items() if name in _BESIDE}
        config = {name: value for name, value in params.items() if name not in _BESIDE}
        config |= config.pop("generationConfig", None) or {}
        if request.output is not None:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": request.output.schema}
        out["generationConfig"] = config
        return out

    def reader(self, profile: Profile) -> GeminiReader:
        """A new reader for one answer."""
        return GeminiReader(profile)


# --- down: what is sent --------------------------------------------------------------------------------

_OWN = frozenset({"contents", "systemInstruction", "tools", "model", "stream"})

_BESIDE = frozenset({"safetySettings", "toolConfig", "cachedContent", "labels", "serviceTier", "modelArmorConfig"})
"""Parameters that stand beside `generationConfig`; every other one stands in it."""

_UNSIGNED = "skip_thought_signature_validator"
"""What the API takes for the signature of a call that another model made (page "Thought signatures", FAQ)."""


def _tool(name: str, description: str, parameters: Json) -> Json:
    # This field takes JSON Schema as it is; `parameters` knows a part of it only.
    return {"name": name, "description": description, "parametersJsonSchema": parameters}


def _contents(messages: Sequence[Message], profile: Profile, *, signed: bool) -> Iterator[Json]:
    """The conversation. All results of a message stand in the one content after it; their media follow."""
    ids = CallIds(profile)
    results: list[Json] = []
    media: list[Json] = []
    for message in repaired(messages):
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, Result):
                    results.append(_result(part, ids))
                    media += _result_media(part)
            continue
        yield from _user(results)
        yield from _user(media)
        results, media = [], []
        if message.role != "assistant":
            flat = [inner for part in message.parts for inner in (named(part) if isinstance(part, Result) else (part,))]
            yield from _user([said for part in flat if (said := _said(part, profile)) is not None])
        elif parts := _assistant(message.parts, ids, profile, signed=signed):
            yield {"role": "model", "parts": parts}
    yield from _user(results)
    yield from _user(media)


def _user(parts: list[Json]) -> Iterator[Json]:
    if parts:
        yield {"role": "user", "parts": parts}


def _said(part: Part, profile: Profile) -> Json | None:
    """One part other than a call, or None for what says nothing here."""
    if (own := _own(part, profile)) is not None:
        return own
    if isinstance(part, Text):
        return {"text": part.text} if part.text else None
    return _media(part) if isinstance(part, (Image, Document)) else None


def _own(part: Part, profile: Profile) -> dict[str, Json] | None:
    """The part that this family once sent; another family's payload means nothing here."""
    payload = part.payload
    if payload is None or payload.family != profile.family:
        return None
    raw: dict[str, Json] = json.loads(payload.data)
    return raw


def _media(part: Image | Document) -> Json:
    what = "image" if isinstance(part, Image) else "document"
    found = None if part.source.startswith("gs://") else data_of(reachable(part.source, what))
    if found is not None:
        return {"inlineData": {"mimeType": found[0], "data": found[1]}}
    kind = part.media_type or mimetypes.guess_type(part.source.partition("?")[0])[0] or ""
    if not kind:
        hint = "Give the part its media_type."
        raise bad_request(f'What kind of {what} "{part.source[:80]}" is cannot be told from its name.', hint)
    return {"fileData": {"mimeType": kind, "fileUri": part.source}}


def _assistant(parts: Iterable[Part], ids: CallIds, profile: Profile, *, signed: bool) -> list[Json]:
    """Parts in the model's order. Where a model wants a signature, it wants one at the first call of a message."""
    out: list[Json] = []
    first = True
    for part in parts:
        if not isinstance(part, Call):
            said = None if isinstance(part, (Image, Document)) else _said(part, profile)
            out += [] if said is None else [said]
            continue
        own = _own(part, profile) or {}
        given = ids.of_call(part)
        asked = {"name": callable_name(part.name), "args": parsed(replayable(part.arguments))}
        asked |= {"id": given} if part.provider_id else {}
        sign = {"thoughtSignature": _UNSIGNED} if signed and first and "thoughtSignature" not in own else {}
        out.append({**own, "functionCall": asked, **sign})
        first = False
    return out


def _result(result: Result, ids: CallIds) -> Json:
    """A result, which pairs with its call by id where the call was sent with one, else by name and order."""
    given = ids.of_result(result)
    words = "\n".join(part.text for part in result.parts if isinstance(part, Text))
    if result.status not in ("ok", "error"):
        words = f"[{result.status}] {words}".rstrip()
    field = "output" if result.status in ("ok", "deferred") else "error"
    out = {"name": callable_name(result.name), "response": {field: words}}
    return {"functionResponse": {"id": given, **out} if ids.is_known(result) else out}


def _result_media(result: Result) -> list[Json]:
    media = [_media(part) for part in result.parts if isinstance(part, (Image, Document))]
    return [{"text": f"Returned by {result.name}:"}, *media] if media else []


# --- up: what is answered --------------------------------------------------------------------------------

_FINISH: Mapping[str, FinishReason | None] = {
    "STOP": None,
    "FINISH_REASON_UNSPECIFIED": None,
    "OTHER": None,
    "MAX_TOKENS": "length",
}
"""Stop reasons that are no refusal. Those not named here are its filters: SAFETY, RECITATION, SPII and more."""

_BROKEN = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
    }
)
"""Stop reasons of an answer that cannot be used."""


@attrs.define
class _Asked:
    """A call whose arguments come piece by piece."""

    key: str
    raw: dict[str, Json]
    name: str
    id: str
    arguments: dict[str, Json] = attrs.field(factory=dict)


class GeminiReader(Reading):
    """Reads one answer. Feed it events and then `end`, or one `body` and then `end`.

    No event says that the stream is over: it is whole if a reason to stop came before the connection ended.
    """

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._finish = ""
        self._why = ""
        self._segment = ("", 0)
        self._asked: _Asked | None = None

    def _is_error(self, value: Json, *, whole: bool) -> bool:
        value = value[0] if isinstance(value, list) and value else value
        return isinstance(value, dict) and "error" in value

    def _last(self) -> tuple[Iterable[Piece], FinishReason, str] | None:
        if not self._finish or self._asked is not None:
            return None
        if self._finish in _BROKEN:
            raise self._fault(
                "tool_use_failed", self._why or f"The answer cannot be used ({self._finish}).", self._finish
            )
        raw = f"{self._finish}: {self._why}" if self._why and self._finish != "STOP" else self._finish
        return (), self._ending(_FINISH.get(self._finish, "refused")), raw

    def _whole(self, value: Json) -> Iterator[Piece]:
        """One object, or the list of them that a stream without `alt=sse` is."""
        for chunk in value if isinstance(value, list) else [value]:
            yield from self._pieces(chunk)

    def _pieces(self, value: Json) -> Iterator[Piece]:
        feedback = of(value, "promptFeedback", dict, "it")
        if blocked := of(feedback, "blockReason", str, "promptFeedback"):
            self._finish, self._why = blocked, of(feedback, "blockReasonMessage", str, "promptFeedback")
        usage = of(value, "usageMetadata", dict, "it")
        if any(isinstance(tokens, int) for tokens in usage.values()):
            self._counts = usage
        for candidate in of(value, "candidates", list, "it"):
            if of(candidate, "index", int, "a candidate") != 0:
                continue
            for part in of(of(candidate, "content", dict, "a candidate"), "parts", list, "the content"):
                yield from self._part(part)
            self._finish = of(candidate, "finishReason", str, "a candidate") or self._finish
            self._why = of(candidate, "finishMessage", str, "a candidate") or self._why

    def _usage_of(self, counts: Mapping[str, Json]) -> Usage:
        return usage_of(counts)

    def _quick(self, value: Json) -> Piece | None:
        (candidate,) = value["candidates"]
        (part,) = candidate["content"]["parts"]
        text, usage = part["text"], value.get("usageMetadata", {})
        other = candidate.get("finishReason") or candidate.get("index") or "promptFeedback" in value or "error" in value
        if other or len(part) != 1 or not text or type(text) is not str or type(usage) is not dict:
            return None
        if "promptTokenCount" in usage:
            self._counts = usage
        return TextDelta(text, self._key("text", alone=False))

    # --- parts ---

    def _part(self, part: Json) -> Iterator[Piece]:
        if of(part, "functionCall", dict, "a part") or "functionCall" in part:
            yield from self._called(part, of(part, "functionCall", dict, "a part"))
        elif "text" in part:
            yield from self._words(part, of(part, "text", str, "a part"))
        elif part:
            self._segment = ("", self._segment[1] + 1)
            yield Whole(Opaque(self._payload(part)))

    def _key(self, kind: str, *, alone: bool) -> str:
        """The part that words belong to: the last one if it is of that kind and neither stands for itself."""
        if alone or self._segment[0] != kind:
            self._segment = (kind, self._segment[1] + 1)
        return f"{kind}-{self._segment[1]}"

    def _words(self, part: Mapping[str, Json], text: str) -> Iterator[Piece]:
        thought, signature = part.get("thought") is True, of(part, "thoughtSignature", str, "a part")
        if not text and not signature:
            return
        key = self._key("thought" if thought else "text", alone=bool(signature))
        if text:
            yield ReasoningDelta(text, key) if thought else TextDelta(text, key)
        if signature:
            self._segment = ("", self._segment[1])
            payload = self._payload(part)
            yield Whole(Reasoning(text, payload) if thought else Text(text, payload), key)

    def _called(self, part: Mapping[str, Json], call: Mapping[str, Json]) -> Iterator[Piece]:
        """A call, whole or in pieces ("Streaming function call arguments"): what does not go on is its end."""
        name = of(call, "name", str, "a call")
        if name or self._asked is None:
            key = self._key("call", alone=True)
            self._asked = _Asked(key, dict(part), name, of(call, "id", str, "a call"))
            yield CallDelta(key=key, name=name, provider_id=self._asked.id)
        asked = self._asked
        asked.arguments.update(of(call, "args", dict, "a call"))
        for piece in of(call, "partialArgs", list, "a call"):
            _put(asked.arguments, piece)
        if call.get("willContinue") is not True:
            self._asked, arguments = None, dumped(asked.arguments)
            yield CallDelta(key=asked.key, arguments=arguments)
            if signature := of(asked.raw, "thoughtSignature", str, "a part"):
                payload = self._payload({"thoughtSignature": signature})
                made = Call(id="", name=asked.name, arguments=arguments, provider_id=asked.id, payload=payload)
                yield Whole(made, asked.key)

    def _payload(self, raw: Mapping[str, Json]) -> Payload:
        return Payload(self._profile.family, dumped(raw))


_STEP = re.compile(r"\.?([A-Za-z_][\w-]*)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")


def _put(arguments: dict[str, Json], piece: Json) -> None:
    """Put a piece of arguments where its JSON path says (RFC 9535, the part with names and indexes)."""
    path = of(piece, "jsonPath", str, "a piece of arguments")
    at, steps = 1, []
    while found := _STEP.match(path, at):
        index, name = found[2], found[1] or found[3] or found[4]
        steps.append(int(index) if index else name)
        at = found.end()
    if not path.startswith("$") or at != len(path) or not steps:
        raise Malformed(f'a call has arguments at "{path[:80]}", which is no path')
    value = next((piece[kind] for kind in ("stringValue", "numberValue", "boolValue") if kind in piece), None)
    place: Json = arguments
    for step, then in zip(steps, [*steps[1:], None], strict=True):
        place = _inside(place, step, value if then is None else {} if isinstance(then, str) else [])


def _inside(place: Json, step: str | int | None, new: Json) -> Json:
    """What stands at a step, made if nothing does; a text that stands there grows."""
    if isinstance(place, list) and isinstance(step, int) and step <= len(place):
        if step == len(place):
            place.append(new)
            return new
    elif not isinstance(place, dict) or not isinstance(step, str):
        raise Malformed("a call has arguments inside of what can hold none")
    elif step not in place:
        place[step] = new
        return new
    if isinstance(new, str) and isinstance(place[step], str):
        place[step] += new
    elif not isinstance(new, (dict, list)):
        place[step] = new
    return place[step]


def usage_of(raw: Mapping[str, Json]) -> Usage:
    """Usage with each token counted once. Cached input stands inside the input, thoughts beside the output.

    What server tools fed to the model is input that `promptTokenCount` does not hold.
    """
    read = count(raw, "promptTokenCount")
    cached = min(count(raw, "cachedContentTokenCount"), read)
    return Usage(
        input=read - cached + count(raw, "toolUsePromptTokenCount"),
        cache_read=cached,
        output=count(raw, "candidatesTokenCount"),
        reasoning=count(raw, "thoughtsTokenCount"),
        raw=dumped(raw),
    )
