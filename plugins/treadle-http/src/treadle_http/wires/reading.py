"""What the readers of all wires share: what has arrived so far, and what a failure carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from treadle.plugin import Assembly, Call, Finish, FinishReason, Json, Piece, ProviderError, Usage
from treadle_http.errors import Kind, error_in_answer
from treadle_http.profiles import Profile
from treadle_http.sse import Event

from . import Malformed
from .fields import parsed


class Reading:
    """Reads one answer. A wire fills in `_pieces`, `_whole`, `_is_error` and `_last`."""

    def __init__(self, profile: Profile) -> None:
        self.done = False
        self._profile = profile
        self._assembly = Assembly()
        self._counts: Mapping[str, Json] = {}

    # --- what a wire knows ---

    def _pieces(self, value: Json) -> Iterable[Piece]:
        """The pieces of one event. Raises `Malformed`."""
        raise NotImplementedError

    def _whole(self, value: Json) -> Iterable[Piece]:
        """The pieces of a whole answer. Raises `Malformed`."""
        raise NotImplementedError

    def _is_error(self, value: Json, *, whole: bool) -> bool:
        """Whether an event, or a whole answer, is an error."""
        raise NotImplementedError

    def _error_of(self, value: Json) -> Json:
        """The object that says what went wrong."""
        return value

    def _usage_of(self, counts: Mapping[str, Json]) -> Usage:
        """The provider's last report as usage."""
        raise NotImplementedError

    def _quick(self, value: Json) -> Piece | None:
        """The words of the plainest event, which nearly all are; None leaves it to `_pieces`. Any fault is None too."""
        return None

    def _last(self) -> tuple[Iterable[Piece], FinishReason, str] | None:
        """The last parts, why the answer ended, and the provider's word for it; None if it had not ended."""
        raise NotImplementedError

    # --- the reader's face ---

    def event(self, event: Event) -> Sequence[Piece]:
        """The pieces of one event."""
        if event.data.strip() == "[DONE]":
            self.done = True
            return ()
        try:
            value = parsed(event.data)
        except ValueError:
            if not event.whole:
                return ()  # cut off in the middle; `end` tells whether that matters
            raise self._fault("server", "The stream holds an event that is not JSON.", event.data) from None
        try:
            piece = self._quick(value) if event.name != "error" else None
        except (TypeError, KeyError, ValueError, AttributeError, IndexError):
            piece = None
        if piece is not None:
            self._assembly.feed(piece)
            return (piece,)
        failed = event.name == "error" or self._is_error(value, whole=False)
        return self._taken(self._pieces(value), value, event.data, failed=failed)

    def body(self, body: bytes) -> Sequence[Piece]:
        """The pieces of a whole answer."""
        text = body.decode("utf-8", "replace")
        try:
            value = parsed(body)
        except ValueError:
            if not body.strip() or body.lstrip()[:1] in b"{[":
                raise self._fault("interrupted", "The answer ends in the middle.", text) from None
            raise self._fault("server", "The answer is not JSON.", text) from None
        pieces = self._taken(self._whole(value), value, text, failed=self._is_error(value, whole=True))
        self.done = True
        return pieces

    def end(self, why: str = "") -> Sequence[Piece]:
        """The last pieces; an answer that had not said why it stopped is interrupted."""
        last = self._last()
        if last is None:
            raise self._fault("interrupted", f"The stream ended before the answer did{f' ({why})' if why else ''}.")
        pieces, finish, raw = last
        return [*self._kept(pieces), Finish(finish=finish, usage=self._usage, raw=raw)]

    def bad_stream(self, why: str) -> ProviderError:
        """The error for bytes that are no event stream."""
        return self._fault("server", f"The stream cannot be read: {why}.")

    # --- for the wire ---

    @property
    def _usage(self) -> Usage | None:
        """What was counted so far: running totals, of which the last report counts; they are never summed."""
        return self._usage_of(self._counts) if self._counts else None

    def _fault(self, kind: Kind, message: str, raw: str = "") -> ProviderError:
        return ProviderError(kind, message, partial=self._assembly.parts, usage=self._usage, raw=raw)

    def _ending(self, forced: FinishReason | None) -> FinishReason:
        """Why the answer ended, where a normal end is told from calls by the calls."""
        return forced or ("calls" if any(isinstance(part, Call) for part in self._assembly.parts) else "end")

    def _kept(self, pieces: Iterable[Piece]) -> Iterable[Piece]:
        """The pieces, assembled here too, for the error that may come."""
        for piece in pieces:
            self._assembly.feed(piece)
            yield piece

    def _taken(self, found: Iterable[Piece], value: Json, raw: str, *, failed: bool) -> Sequence[Piece]:
        pieces: list[Piece] = []
        try:
            pieces += self._kept(found)  # an error may come with the last words and the usage
        except Malformed as problem:
            if not failed:
                raise self._fault("server", f"The answer has an unknown shape: {problem}.", raw) from None
        if failed:
            raise error_in_answer(self._error_of(value), raw, partial=self._assembly.parts, usage=self._usage)
        return pieces
