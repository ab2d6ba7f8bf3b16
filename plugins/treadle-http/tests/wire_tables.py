"""What the tables of recorded answers are written in, and how an answer is held against them.

Usage is written as the subtraction that the recording asks for. A long text is given by its beginning and its end.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeAlias, Union

import attrs

from treadle.plugin import Call, Message, Opaque, Part, ProviderError, Reasoning, Reply, Text


@attrs.frozen
class Words:
    """A text or thought, whole or by its two ends; `kept` stands in the payload that goes back to the provider."""

    kind: type
    begin: str
    end: str = ""
    kept: str = ""

    def fits(self, part: Part) -> bool:
        if not isinstance(part, (Text, Reasoning)) or type(part) is not self.kind:
            return False
        if self.kept and (part.payload is None or self.kept not in part.payload.data):
            return False
        if not self.end:
            return part.text == self.begin
        return part.text.startswith(self.begin) and part.text.endswith(self.end)


@attrs.frozen
class Asked:
    """A call: name, raw arguments, the provider's id."""

    name: str
    arguments: str
    id: str
    kept: str = ""

    def fits(self, part: Part) -> bool:
        if not isinstance(part, Call) or (self.kept and (part.payload is None or self.kept not in part.payload.data)):
            return False
        return (part.name, part.arguments, part.provider_id) == (self.name, self.arguments, self.id)


@attrs.frozen
class Kept:
    """A part that only its provider understands, by words that stand in it."""

    words: str

    def fits(self, part: Part) -> bool:
        return isinstance(part, Opaque) and self.words in part.payload.data


Want: TypeAlias = Union[Words, Asked, Kept]


@attrs.frozen
class Said:
    """A good answer."""

    finish: str
    parts: tuple[Want, ...]
    usage: tuple[int, int, int, int, int] | None = None


@attrs.frozen
class Failed:
    """A failure: kind, status, words of the message, retry hint, and what had arrived."""

    kind: str
    status: int | None
    words: str
    retry_after_seconds: float | None = None
    partial: tuple[Want, ...] = ()


def T(begin: str, end: str = "", kept: str = "") -> Words:
    return Words(Text, begin, end, kept)


def R(begin: str, end: str = "", kept: str = "") -> Words:
    return Words(Reasoning, begin, end, kept)


def U(read: int, written: int, *, cached: int = 0, thought: int = 0) -> tuple[int, int, int, int, int]:
    """Usage as these providers report it: cached inside what was read, thought inside what was written."""
    return (read - cached, cached, 0, written - thought, thought)


C = Asked
K = Kept


def fits(wanted: tuple[Want, ...], parts: tuple[Part, ...]) -> bool:
    return len(wanted) == len(parts) and all(want.fits(part) for want, part in zip(wanted, parts, strict=True))


def check_said(wanted: Said | Failed, reply: Reply) -> None:
    assert isinstance(wanted, Said), f"a failure was expected, not {reply}"
    assert fits(wanted.parts, reply.parts), reply.parts
    assert reply.finish == wanted.finish
    if wanted.usage is None:
        assert reply.usage is None
    else:
        usage = reply.usage
        assert usage is not None and json.loads(usage.raw)
        assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning) == wanted.usage


def check_failed(wanted: Said | Failed, error: ProviderError) -> None:
    assert isinstance(wanted, Failed), f"an answer was expected, not {error!r}"
    assert (error.kind, error.status) == (wanted.kind, wanted.status)
    assert wanted.words in error.message
    assert error.retry_after_seconds == wanted.retry_after_seconds
    assert fits(wanted.partial, error.partial), error.partial
    assert error.raw


def with_ids(history: list[Message], number: int) -> list[Message]:
    """The last message with ids for its calls, as the kernel gives them."""
    parts = [
        attrs.evolve(p, id=f"k{number}-{n}") if isinstance(p, Call) else p for n, p in enumerate(history[-1].parts)
    ]
    return [*history[:-1], attrs.evolve(history[-1], parts=tuple(parts))]


def called(history: list[Message], provider_id: str) -> Call | None:
    return next((call for message in history for call in message.calls if call.provider_id == provider_id), None)


def shared_folder() -> Path:
    given = os.environ.get("TREADLE_SHARED")
    return Path(given) if given else Path(__file__).resolve().parents[3].parent / "shared"
