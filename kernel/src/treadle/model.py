"""Who answers: the provider seam.

A provider is a `Model`. It gets a `Request`, yields pieces, and the kernel assembles them into a `Reply`.
Nothing here knows a wire format, a log or a loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias, Union, runtime_checkable

import attrs

from .messages import Call, Json, Message, Part, Reasoning, Text, Usage, new_id

FinishReason = Literal["end", "calls", "length", "refused", "fault"]
"""Why the model stopped. Whether tools run is decided by the calls in the reply, never by this alone."""

Key: TypeAlias = Union[str, int]


@attrs.frozen(kw_only=True)
class ToolSchema:
    """What the model is told of a tool; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Json


@attrs.frozen(kw_only=True)
class OutputSchema:
    """The shape of a structured answer; `schema` is a JSON Schema object."""

    name: str
    schema: Json


@attrs.frozen(kw_only=True)
class Request:
    """All that one model call is given.

    `instructions` are ordered parts, apart from the messages. `messages` is a read-only sequence that may share
    the log's own; a provider iterates over it and keeps no reference. `params` are the model's own settings
    (temperature, max_tokens ...), passed on as they are.
    """

    instructions: tuple[Text, ...] = ()
    messages: Sequence[Message] = ()
    tools: tuple[ToolSchema, ...] = ()
    params: Mapping[str, Json] = attrs.field(factory=dict)
    output: OutputSchema | None = None


# --- pieces: what a stream is made of ----------------------------------------------------------------------


@attrs.frozen
class TextDelta:
    """More words of the text part `key`; the first delta of a key opens the part."""

    text: str
    key: Key = "text"


@attrs.frozen
class ReasoningDelta:
    """More thought of the reasoning part `key`."""

    text: str
    key: Key = "reasoning"


@attrs.frozen(kw_only=True)
class CallDelta:
    """More of the tool call `key`. The first non-empty name and provider id count; arguments are joined."""

    key: Key
    name: str = ""
    arguments: str = ""
    provider_id: str = ""


@attrs.frozen
class Whole:
    """A finished part. With a `key` it takes the place of what the deltas of that key built, payload and all."""

    part: Part
    key: Key | None = None


@attrs.frozen(kw_only=True)
class Finish:
    """The end of the reply, and what it cost. A stream without one was interrupted."""

    finish: FinishReason
    usage: Usage | None = None
    raw: str = ""


Piece: TypeAlias = Union[TextDelta, ReasoningDelta, CallDelta, Whole, Finish]


@attrs.frozen(kw_only=True)
class Reply:
    """One model's answer: parts in the order in which they began, and why it ended. `raw` is the provider's word."""

    parts: tuple[Part, ...]
    finish: FinishReason
    usage: Usage | None = None
    raw: str = ""

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls in it, in the model's order."""
        return tuple(part for part in self.parts if isinstance(part, Call))

    @property
    def text(self) -> str:
        """Its words, joined as they stand."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@runtime_checkable
class Model(Protocol):
    """A provider's model.

    `ref` is how a person names it, `family` whose opaque payloads it understands, `window_tokens` the size of its
    context or None if unknown. `stream` opens one call: a context manager over an iterator of pieces, the last of
    which is `Finish`. Leaving it early closes the connection at once. A provider that does not stream yields whole
    parts. Failures are `ProviderError`; anything else counts as the provider's bug and is reported as kind `server`.

    A model may have a `native_output` of True: it holds its answer to `Request.output`, which then comes without tools.
    Others never get an `output`; they are given a tool to answer with.
    """

    @property
    def ref(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def window_tokens(self) -> int | None: ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Piece]]: ...


# --- assembling --------------------------------------------------------------------------------------------


@attrs.define
class _Growing:
    """One part under construction."""

    kind: str
    texts: list[str] = attrs.field(factory=list)
    name: str = ""
    provider_id: str = ""
    whole: Part | None = None

    def part(self) -> Part:
        if self.whole is not None:
            return self.whole
        text = "".join(self.texts)
        if self.kind == "call":
            return Call(id="", name=self.name, arguments=text, provider_id=self.provider_id)
        return Text(text) if self.kind == "text" else Reasoning(text)


class Assembly:
    """Turns pieces into a reply. Parts keep the order in which they began; nothing is merged across keys."""

    __slots__ = ("_growing", "_parts", "end")

    def __init__(self) -> None:
        self._parts: list[_Growing] = []
        self._growing: dict[Key, _Growing] = {}
        self.end: Finish | None = None

    def feed(self, piece: Piece) -> None:
        """Take one piece."""
        if isinstance(piece, TextDelta):
            self._at(piece.key, "text").texts.append(piece.text)
        elif isinstance(piece, ReasoningDelta):
            self._at(piece.key, "reasoning").texts.append(piece.text)
        elif isinstance(piece, CallDelta):
            call = self._at(piece.key, "call")
            call.name = call.name or piece.name
            call.provider_id = call.provider_id or piece.provider_id
            if piece.arguments:
                call.texts.append(piece.arguments)
        elif isinstance(piece, Finish):
            self.end = piece
        else:
            known = piece.key is not None and piece.key in self._growing
            growing = self._growing[piece.key] if known and piece.key is not None else _Growing("whole")
            growing.whole = piece.part
            if not known:
                self._parts.append(growing)
                if piece.key is not None:
                    self._growing[piece.key] = growing

    def _at(self, key: Key, kind: str) -> _Growing:
        growing = self._growing.get(key)
        if growing is None:
            growing = self._growing[key] = _Growing(kind)
            self._parts.append(growing)
        return growing

    @property
    def parts(self) -> tuple[Part, ...]:
        """What has arrived so far, half-written parts included."""
        return tuple(growing.part() for growing in self._parts)

    @property
    def visible(self) -> tuple[Part, ...]:
        """What may be kept of a reply that was cut off: text, and parts that arrived whole; no half call or thought."""
        return tuple(
            part
            for growing in self._parts
            if not isinstance(part := growing.part(), Call)
            and (growing.whole is not None or growing.kind == "text")
            and part != Text("")
        )

    def reply(self) -> Reply | None:
        """The whole reply, or None if no `Finish` came."""
        if self.end is None:
            return None
        return Reply(parts=self.parts, finish=self.end.finish, usage=self.end.usage, raw=self.end.raw)


def own_calls(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with the kernel's own call ids.

    A call that repeats another's provider id, name and arguments is the same call sent twice and is left out.
    A provider id that stands on two different calls names neither, so the later one loses it.
    """
    seen: dict[str, Call] = {}
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Call):
            first = seen.get(part.provider_id) if part.provider_id else None
            if first is not None and (first.name, first.arguments) == (part.name, part.arguments):
                continue
            part = Call(
                id=new_id(),
                name=part.name,
                arguments=part.arguments,
                provider_id="" if first else part.provider_id,
                payload=part.payload,
            )
            if part.provider_id:
                seen[part.provider_id] = part
        out.append(part)
    return tuple(out)
