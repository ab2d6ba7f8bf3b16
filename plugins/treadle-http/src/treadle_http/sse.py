"""Server-sent events: bytes in, events out. No I/O, no JSON, no provider.

The format is the HTML standard's, section 9.2.6 "Interpreting an event stream", with two departures. Servers end
streams without the last blank line, so `end` hands out the event that the standard would drop, marked not whole.
Text that is not UTF-8 is an error, where the standard puts in U+FFFD: a changed answer must not pass for the real one.
"""

from __future__ import annotations

from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"


class BadStream(Exception):
    """The bytes are not an event stream that may be read on. The text says why."""


class Event(NamedTuple):
    """One event: its name (empty if the stream gave none) and its data. `whole` is False if its end is missing.

    A tuple, since one is made for every few words of an answer.
    """

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
        self._after_cr = False
        self._first = True
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises `BadStream`."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")  # the LF of a CRLF that two pieces share
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end:
            self._buffer += data
            self._check(len(self._buffer))
            return []
        self._after_cr = data[end - 1] == 0x0D
        lines = (bytes(self._buffer) + data[:end] if self._buffer else data[:end]).splitlines()
        self._buffer = bytearray(data[end:])
        out: list[Event] = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                out.append(event)
        self._check(len(self._buffer))
        return out

    def _check(self, more: int) -> None:
        if self._size + more > self._limit:
            raise BadStream(f"one event is longer than {self._limit} bytes")

    def end(self) -> list[Event]:
        """What a stream that ended without a blank line leaves. The reader is done then."""
        line, self._buffer = bytes(self._buffer), bytearray()
        try:
            if line:
                self._line(line)
            event = self._dispatch()
        except BadStream:
            return []  # a character cut in two: the end is missing, which the caller sees by itself
        return [event._replace(whole=False)] if event is not None else []

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
            self._check(0)
        elif field == b"event":
            self._name = value
        return None

    def _dispatch(self) -> Event | None:
        name, lines = self._name, self._data
        data = lines[0] if len(lines) == 1 else b"\n".join(lines)
        self._name, self._data, self._size = b"", [], 0
        if not data.strip(b"\n"):
            return None
        try:
            return Event(name.decode("utf-8", "replace"), data.decode())
        except UnicodeDecodeError as error:
            raise BadStream(f"the data of an event is not UTF-8 ({error.reason})") from None
