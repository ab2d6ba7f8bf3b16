"""Server-sent events: bytes in, events out. No I/O, no JSON, no provider.

The format is the HTML standard's, section 9.2.6 "Interpreting an event stream", with two departures. Servers end
streams without the last blank line, so `end` hands out the event that the standard would drop, marked not whole.
Text that is not UTF-8 is an error, where the standard puts in U+FFFD: a changed answer must not pass for the real one.
"""

from __future__ import annotations

import attrs

_BOM = b"\xef\xbb\xbf"


class BadStream(Exception):
    """The bytes are not an event stream that may be read on. The text says why."""


@attrs.frozen
class Event:
    """One event: its name (empty if the stream gave none) and its data. `whole` is False if its end is missing."""

    name: str
    data: str
    whole: bool = True


class EventReader:
    """Collects bytes and hands out the events that they complete, however the bytes were split.

    Lines end with LF, CR or CRLF and nothing else: U+2028 or U+0085 are text. Comments and events without data are
    left out. `limit_bytes` bounds what one event may hold; beyond it `BadStream` is raised.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._buffer = bytearray()
        self._scanned = 0
        self._after_cr = False
        self._first = True
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises `BadStream`."""
        buffer, start = self._buffer, 0
        buffer += data
        out: list[Event] = []
        while True:
            if self._after_cr and start < len(buffer):
                self._after_cr = False
                start += buffer[start] == 0x0A  # the LF of a CRLF, perhaps of an earlier piece
            end = _line_end(buffer, max(start, self._scanned))
            if end < 0:
                break
            self._after_cr = buffer[end] == 0x0D
            event = self._line(bytes(buffer[start:end]))
            start = end + 1
            if event is not None:
                out.append(event)
        del buffer[:start]
        self._scanned = len(buffer)
        if len(buffer) + self._size > self._limit:
            raise BadStream(f"one event is longer than {self._limit} bytes")
        return out

    def end(self) -> list[Event]:
        """What a stream that ended without a blank line leaves. The reader is done then."""
        line, self._buffer = bytes(self._buffer), bytearray()
        try:
            if line:
                self._line(line)
            event = self._dispatch()
        except BadStream:
            return []  # a character cut in two: the end is missing, which the caller sees by itself
        return [attrs.evolve(event, whole=False)] if event is not None else []

    def _line(self, line: bytes) -> Event | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._limit:
                raise BadStream(f"one event is longer than {self._limit} bytes")
        elif field == b"event":
            self._name = value
        return None

    def _dispatch(self) -> Event | None:
        name, data = self._name, b"\n".join(self._data)
        self._name, self._data, self._size = b"", [], 0
        if not data.strip(b"\n"):
            return None
        try:
            return Event(name.decode("utf-8", "replace"), data.decode())
        except UnicodeDecodeError as error:
            raise BadStream(f"the data of an event is not UTF-8 ({error.reason})") from None


def _line_end(buffer: bytearray, start: int) -> int:
    """Where the next line ends, or -1."""
    lf = buffer.find(b"\n", start)
    cr = buffer.find(b"\r", start, len(buffer) if lf < 0 else lf)
    return lf if cr < 0 else cr
