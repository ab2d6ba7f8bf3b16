"""What a wire is: it decides what is sent and what an answer means, and does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treadle.plugin import Json, Piece, Request
from treadle_http.profiles import Profile
from treadle_http.sse import Event


class Malformed(Exception):
    """An answer is not of the wire's shape. The text says what is wrong; the reader makes a `ProviderError` of it."""


class Reader(Protocol):
    """Reads one answer, as events or as one body. Every failure is a `ProviderError` that carries what had arrived."""

    done: bool
    """The answer said that it is over; nothing that follows matters."""

    def event(self, event: Event) -> Sequence[Piece]:
        """The pieces of one event."""
        ...

    def body(self, body: bytes) -> Sequence[Piece]:
        """The pieces of a whole answer."""
        ...

    def end(self, why: str = "") -> Sequence[Piece]:
        """The last pieces, `Finish` among them; `why` says how the connection was lost, if it was.

        An answer that had not finished is `ProviderError("interrupted")`.
        """
        ...

    def bad_stream(self, why: str) -> Exception:
        """The error for bytes that are no event stream."""
        ...


class Wire(Protocol):
    """One wire format."""

    def path(self, model: str, *, stream: bool) -> str:
        """What is appended to the base URL, which may hold the version that the path begins with."""
        ...

    def body(self, request: Request, model: str, profile: Profile, *, stream: bool) -> Json:
        """The JSON body to send. Raises `ProviderError` of kind bad_request for what the wire cannot say."""
        ...

    def reader(self, profile: Profile) -> Reader:
        """A new reader for one answer."""
        ...
