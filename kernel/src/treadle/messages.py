"""What is said: messages, their parts, and what they cost.

All values are immutable and compare by content. This module knows nothing of logs, loops or providers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, TypeAlias, Union

import attrs

Json: TypeAlias = Any
"""Plain data: None, bool, int, float, str, and lists and string-keyed dicts of them. Never changed once handed on."""

Role = Literal["user", "assistant", "tool", "context"]
"""Who speaks. `context` is text that a plugin adds; providers send it as user content."""

Status = Literal[
    "ok",
    "error",
    "unknown_tool",
    "invalid_arguments",
    "denied",
    "deferred",
    "timeout",
    "cancelled",
    "detached",
    "not_started",
    "outcome_unknown",
]
"""How a tool call ended."""


@attrs.frozen
class Payload:
    """Opaque data of one provider family (a signature, encrypted reasoning, a raw item), kept byte for byte.

    `data` is the text exactly as the provider sent it. It goes back to the same family and to no other.
    """

    family: str
    data: str


@attrs.frozen
class Text:
    """Words."""

    text: str
    payload: Payload | None = None


@attrs.frozen
class Image:
    """A picture by reference: a URL, or `sha256:HEX` of bytes in the store. Never the bytes themselves."""

    source: str
    media_type: str = ""
    payload: Payload | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Document:
    """A file by reference, as `Image`; `name` is what the user called it."""

    source: str
    media_type: str = ""
    name: str = attrs.field(default="", kw_only=True)
    payload: Payload | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Reasoning:
    """What the model thought, as far as its provider shows it."""

    text: str
    payload: Payload | None = None


@attrs.frozen(kw_only=True)
class Call:
    """The model asks for a tool. `arguments` is the raw text, parsed only when the call is run.

    `id` is the kernel's, unique for ever; `provider_id` what the provider calls it, empty if it gave none.
    """

    id: str
    name: str
    arguments: str
    provider_id: str = ""
    payload: Payload | None = None


@attrs.frozen(kw_only=True)
class Result:
    """A tool's answer to one call, as the model reads it."""

    call_id: str
    name: str
    status: Status
    parts: tuple[Part, ...]
    payload: Payload | None = None


@attrs.frozen
class Opaque:
    """A part only its provider understands, kept for the way back."""

    payload: Payload


Part: TypeAlias = Union[Text, Image, Document, Reasoning, Call, Result, Opaque]


@attrs.frozen(kw_only=True)
class Message:
    """One thing said. `origin` names who sent it: `application`, `plugin:NAME`, `call:ID`."""

    id: str
    role: Role
    parts: tuple[Part, ...]
    origin: str = "application"

    @property
    def text(self) -> str:
        """All its words, joined as they stand."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls in it, in the model's order."""
        return tuple(part for part in self.parts if isinstance(part, Call))


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens of one or more model calls, each counted once.

    `input` is what was read without the cache, `cache_read` and `cache_write` the rest of the input, `output` what
    was written without reasoning. `raw` is the provider's own report as JSON text. `estimated` marks a guess.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    raw: str = ""
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input + self.cache_read + self.cache_write + self.output + self.reasoning

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            estimated=self.estimated or other.estimated,
        )


# --- making them -------------------------------------------------------------------------------------------

_last_id = 0
_id_lock = Lock()


def new_id() -> str:
    """A UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, then a counter and random bits.

    Ids made in one process ascend, also within a millisecond. Threads may call it at once.
    """
    global _last_id
    stamp = (time.time_ns() // 1_000_000) << 80
    tail = int.from_bytes(os.urandom(10), "big")
    value = stamp | (0x7 << 76) | ((tail >> 66 & 0x3FF) << 66) | (0b10 << 62) | (tail & (1 << 62) - 1)
    with _id_lock:
        if value <= _last_id:
            value = _last_id + 1 + (tail & 0xFFFF)
            value = value & ~(0xF << 76) & ~(0b11 << 62) | (0x7 << 76) | (0b10 << 62)
        _last_id = value
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


Content: TypeAlias = Union[str, Part, Message, Sequence[Union[str, Part]]]
"""What a person may hand in where a message is wanted."""


def as_parts(content: str | Part | Sequence[str | Part]) -> tuple[Part, ...]:
    """Parts of whatever was handed in: text becomes `Text`, a part stands alone, a sequence keeps its order."""
    if isinstance(content, str):
        return (Text(content),)
    if isinstance(content, Sequence):
        return tuple(Text(part) if isinstance(part, str) else part for part in content)
    return (content,)


def as_message(content: Content, *, role: Role = "user", origin: str = "application") -> Message:
    """A message of `content`, with a new id; a `Message` is returned as it is, so that its id makes it once."""
    if isinstance(content, Message):
        return content
    return Message(id=new_id(), role=role, parts=as_parts(content), origin=origin)


def estimate_tokens(parts: Iterable[Part]) -> int:
    """A guess where no provider counted: a quarter of the UTF-8 bytes, at least 1."""
    size = sum(len(part.text.encode("utf-8", "surrogatepass")) for part in parts if isinstance(part, (Text, Reasoning)))
    return max(1, size // 4)


# --- one text per message, the same in every process -------------------------------------------------------


_FIELDS: Mapping[type, tuple[str, ...]] = {
    cls: tuple(field.name for field in attrs.fields(cls))
    for cls in (Text, Image, Document, Reasoning, Call, Result, Opaque, Payload)
}
_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make one for each message


def plain(value: Part | Payload) -> Json:
    """A part as a list of plain data, for digests: the class's name, then its fields in order."""
    out: list[Json] = [type(value).__name__]
    for name in _FIELDS[type(value)]:
        item = getattr(value, name)
        if item is None or isinstance(item, str):
            out.append(item)
        elif isinstance(item, tuple):
            out.append([plain(part) for part in item])
        else:
            out.append(plain(item))
    return out


def canonical(message: Message) -> bytes:
    """The bytes that stand for a message in digests. Equal messages give equal bytes, in every process."""
    return _encode([message.role, message.id, [plain(part) for part in message.parts]]).encode()
