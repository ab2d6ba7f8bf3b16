"""The lines of a session's file: how they are written, and how they are read, whole or torn.

The first line is an object: the format, the session's id, when it began, and for a fork its parent. Every further line
is one commit: a list of events. A line counts when it is whole. What stands behind the last newline is the rest of a
write that was cut off, unless it is a whole line that lacks only its newline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from treadle.codec import event_from_plain, event_to_plain
from treadle.plugin import Event, Json, TreadleError, UnreadableLog, UsageError

FORMAT = 1
KERNEL = "treadle"
_BLOCK = 16384


@attrs.frozen(kw_only=True)
class Header:
    """A file's first line. `created` is seconds since 1970."""

    session: str
    created: float
    parent: str = ""
    parent_seq: int = 0

    def to_line(self) -> bytes:
        """As it stands in the file."""
        plain = {"treadle": FORMAT, "session": self.session, "created": self.created}
        if self.parent:
            plain |= {"parent": self.parent, "parent_seq": self.parent_seq}
        return json.dumps(plain, separators=(",", ":")).encode("ascii") + b"\n"


def to_line(events: Sequence[Event], session_id: str) -> bytes:
    """One commit as one line. Raises `UsageError` if data is not JSON (NaN, an object, a circle)."""
    return b"[" + b",".join(_encoded(event, session_id) for event in events) + b"]\n"


def _encoded(event: Event, session_id: str) -> bytes:
    try:
        plain = event_to_plain(event)
        if event.owner == KERNEL and not event.required:
            plain["required"] = False
        return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode("ascii")
    except TreadleError:
        raise
    except Exception as error:
        raise UsageError(
            f'Event {event.seq} ({event.type}) of session "{session_id}" cannot be stored: its data is not JSON '
            f"({type(error).__name__}: {error}). Nothing of its batch was written."
        ) from error


# --- reading ----------------------------------------------------------------------------------------------


def header_of(path: Path, session_id: str | None = None) -> Header | None:
    """A file's header; None if there is no file, or none of it was written whole.

    Raises `UnreadableLog` if the line is damaged, or is that of another session than `session_id`.
    """
    try:
        with path.open("rb") as file:
            raw = file.readline()
    except FileNotFoundError:
        return None
    header = _header(raw, path)
    if header is not None and session_id not in (None, header.session):
        reason = f'it holds the session "{header.session}", not "{session_id}"'
        raise UnreadableLog(str(path), reason, "This file system takes both names for one. Choose another name.")
    return header


def _header(raw: bytes, path: Path) -> Header | None:
    try:
        plain = json.loads(raw)
        if plain["treadle"] > FORMAT:
            reason = f"a newer treadle-jsonl wrote it (format {plain['treadle']})"
            raise UnreadableLog(str(path), reason, "Install that release: pip install --upgrade treadle-jsonl")
        return Header(
            session=plain["session"],
            created=plain["created"],
            parent=plain.get("parent", ""),
            parent_seq=plain.get("parent_seq", 0),
        )
    except (ValueError, KeyError, TypeError) as error:
        if not raw.endswith(b"\n"):
            return None
        remedy = "Restore the file from a copy; the other lines hold its events."
        raise UnreadableLog(f"{path}, line 1", f"it is not a session's first line ({error})", remedy) from error


@attrs.frozen(kw_only=True)
class Ending:
    """How a file ends: its last `seq` and that event's time, the bytes that count, and the `torn` ones behind them.

    `closed` is False if the last line that counts lacks its newline.
    """

    seq: int
    time: float
    size: int
    torn: bytes = b""
    closed: bool = True


def ending_of(path: Path, header: Header) -> Ending:
    """Look at the end of a file only. Raises `UnreadableLog` if its last whole line is damaged."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        block = _BLOCK
        while True:
            start = max(0, size - block)
            file.seek(start)
            *lines, rest = file.read(size - start).split(b"\n")
            if start == 0 or len(lines) > 1:
                break
            block *= 4
    events = _whole(rest)
    if events is not None:
        return Ending(seq=events[-1]["seq"], time=events[-1]["time"], size=size, closed=False)
    size -= len(rest)
    if start == 0 and len(lines) < 2:  # nothing but the header
        closed = bool(lines)
        kept = size if closed else size + len(rest)
        return Ending(
            seq=header.parent_seq, time=header.created, size=kept, torn=rest if closed else b"", closed=closed
        )
    events = _whole(lines[-1])
    if events is None:
        number = path.read_bytes()[:size].count(b"\n")
        raise damage(path, number, "it is not a list of events")
    return Ending(seq=events[-1]["seq"], time=events[-1]["time"], size=size, torn=rest)


def _whole(raw: bytes) -> list[Json] | None:
    """The events of a line that may be torn; None if it is. The first line of a file holds none."""
    if not raw.startswith(b"["):
        return None
    try:
        events = json.loads(raw)
        return events if events[-1]["seq"] and events[-1]["time"] is not None else None
    except (ValueError, LookupError, TypeError):
        return None


def damage(path: Path, line: int, reason: str) -> UnreadableLog:
    """The error about a line inside a file."""
    remedy = (
        f"Restore the file from a copy, or keep what stands before it: "
        f"head -n {line - 1} '{path.name}' > whole && mv whole '{path.name}'"
    )
    return UnreadableLog(f"{path}, line {line}", reason, remedy)


class Cursor:
    """Reads a file's events in order, each once, from where it stopped before. Line 1 is the header."""

    def __init__(self, path: Path, after_seq: int) -> None:
        self.path = path
        self.seq = after_seq
        self._offset = self._line = 0
        self._closed = True

    def read(self, last: int | None = None) -> Iterator[Event]:
        """The events that came since, up to event `last`. Raises `UnreadableLog` at a damaged line, behind what is
        whole before it.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offset)
            for raw in file:
                if last is not None and self.seq >= last:
                    return
                if not self._closed and raw == b"\n":
                    self._closed, self._offset = True, self._offset + 1
                    continue
                events = self._events(raw)
                if events is None:  # torn, or still being written
                    return
                self._offset, self._closed = self._offset + len(raw), raw.endswith(b"\n")
                self._line += 1
                for event in events:
                    if last is None or event.seq <= last:
                        yield event

    def _events(self, raw: bytes) -> Sequence[Event] | None:
        line = self._line + 1
        if line == 1:
            return () if raw.endswith(b"\n") else None
        try:
            plain = json.loads(raw)
        except ValueError as error:
            if raw.endswith(b"\n"):
                raise damage(self.path, line, f"it is not valid JSON ({error})") from error
            return None
        if not isinstance(plain, list) or not plain:
            raise damage(self.path, line, "it is not a list of events")
        where = f"{self.path}, line {line}"
        events = [self._event(each, where, line) for each in plain]
        due = list(range(self.seq + 1, self.seq + 1 + len(events)))
        if [event.seq for event in events] != due:
            raise damage(self.path, line, f"it holds the events {[e.seq for e in events]} where {due[0]} is due")
        self.seq = due[-1]
        return events

    def _event(self, plain: Json, where: str, line: int) -> Event:
        try:
            return event_from_plain(plain, where=where)
        except TreadleError:
            raise
        except Exception as error:
            raise damage(self.path, line, f"an event is damaged ({type(error).__name__}: {error})") from error


__all__ = ["Cursor", "Ending", "Header", "damage", "ending_of", "header_of", "to_line"]
