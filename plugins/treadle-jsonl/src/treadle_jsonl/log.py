"""One session, open: what `Store.open` returns."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from treadle.plugin import Conflict, Event, LeaseLost, NoSuchSession, Post, StoreFault, TreadleError, UsageError

from .lines import Cursor, Ending, Header, ending_of, header_of, to_line
from .locks import SessionLock
from .posts import Posts

if TYPE_CHECKING:
    from .store import JsonlStore

LOGGER = logging.getLogger("treadle_jsonl")


class JsonlLog:
    """The log of one session. With a lock it is the writer's; without, it only reads.

    `line` are the session and those it forked from, the oldest first, each with the last seq that counts.
    """

    def __init__(
        self, store: JsonlStore, session_id: str, line: Sequence[tuple[Header, int | None]], lock: SessionLock | None
    ) -> None:
        self._store, self._session_id, self._lock = store, session_id, lock
        self._line = line
        self._path = store.places.session(session_id)
        self._posts = Posts(store.places.posts(session_id), store.settings.busy_seconds)
        self._closed = False
        self._file = -1
        self._unsynced = False
        self._ending = (
            ending_of(self._path, line[-1][0]) if line and lock is not None else Ending(seq=0, time=0, size=0)
        )
        self._head = self._ending.seq

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def forked_from(self) -> tuple[str, int] | None:
        if not self._line or not self._line[-1][0].parent:
            return None
        return self._line[-1][0].parent, self._line[-1][0].parent_seq

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def _inherited_seq(self) -> int:
        return self._line[-1][0].parent_seq if self._line else 0

    # --- reading ------------------------------------------------------------------------------------

    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        events = self._inherited(after_seq)
        own = Cursor(self._path, self._inherited_seq)
        events += [event for event in own.read() if event.seq > after_seq]
        return events

    def _inherited(self, after_seq: int) -> list[Event]:
        events: list[Event] = []
        for header, last in self._line[:-1]:
            if last is not None and after_seq < last:
                cursor = Cursor(self._store.places.session(header.session), header.parent_seq)
                events += [event for event in cursor.read(last) if event.seq > after_seq]
        return events

    async def tail(self, after_seq: int = 0) -> AsyncIterator[Event]:
        for event in self._inherited(after_seq):
            yield event
        cursor = Cursor(self._path, self._inherited_seq)
        while not self._closed:
            news, size = self._store.news(self._session_id), self._size()
            events, fault = _taken(cursor)
            if events:
                await self._store.make_durable(self._path)  # what a reader is shown was synced
            for event in events:
                if event.seq > after_seq:
                    yield event
            if fault is not None:
                raise fault
            if not events:
                self._check_there()
                while not self._closed and not news.is_set() and self._size() == size:
                    await self._store.wait(news)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return -1

    def _check_there(self) -> None:
        if self._line and header_of(self._path) != self._line[-1][0]:
            raise NoSuchSession(self._session_id, f"{self._store.ref} any more: it was deleted")

    # --- writing ------------------------------------------------------------------------------------

    async def append(self, events: Sequence[Event], expected_seq: int) -> None:
        lock = self._checked()
        if not events:
            return
        line = to_line(events, self._session_id)
        head = expected_seq + len(events)
        if [event.seq for event in events] != list(range(expected_seq + 1, head + 1)):
            raise UsageError(
                f'The events for session "{self._session_id}" are numbered {[event.seq for event in events]}; after '
                f"{expected_seq} they must count on without a gap. Nothing was written."
            )
        if not lock.is_held:
            raise LeaseLost(self._session_id)
        if expected_seq != self._head:
            raise Conflict(self._session_id, expected_seq, self._head)
        if self._file < 0:
            self._begin(expected_seq)
        self._write(line)
        self._head, self._unsynced = head, True
        self._store.tell(self._session_id)

    def _checked(self) -> SessionLock:
        if self._lock is None:
            raise UsageError(f'Session "{self._session_id}" was opened for reading. Open it with write=True to append.')
        if self._closed:
            raise LeaseLost(self._session_id)
        return self._lock

    def _begin(self, expected_seq: int) -> None:
        """Open the file for the first append: cut off what a killed writer left torn, or begin a new one."""
        flags = os.O_WRONLY | os.O_APPEND
        try:
            if self._line:
                self._file = os.open(self._path, flags)
                self._cut()
            else:
                if (header := header_of(self._path)) is not None:
                    raise Conflict(self._session_id, expected_seq, ending_of(self._path, header).seq)
                # Also over the torn first line of a writer that was killed: nothing of that session was ever whole.
                self._file = os.open(self._path, flags | os.O_CREAT | os.O_TRUNC, 0o666)
                self._line = [(Header(session=self._session_id, created=time.time()), None)]
                self._ending = Ending(seq=0, time=0, size=0)
        except OSError as error:
            raise self._failed(error) from error

    def _cut(self) -> None:
        ending = self._ending
        if os.fstat(self._file).st_size != ending.size + len(ending.torn):
            raise StoreFault(self._session_id, f"{self._path} was changed by hand while it was open")
        if ending.torn:
            kept = self._store.places.torn(self._session_id, ending.seq)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(ending.torn)
            os.ftruncate(self._file, ending.size)
            LOGGER.warning(
                "%s ended in %d bytes of a write that was cut off behind event %d; they were moved to %s",
                self._path, len(ending.torn), ending.seq, kept,
            )  # fmt: skip

    def _write(self, line: bytes) -> None:
        """One write, behind what is missing before it: the first line, or the last one's newline."""
        ending, size = self._ending, os.fstat(self._file).st_size
        if size != ending.size:
            raise StoreFault(self._session_id, f"{self._path} was changed by hand while it was open")
        before = b"" if ending.closed else b"\n"
        if not size:
            before = self._line[-1][0].to_line()
        try:
            written = os.write(self._file, before + line)
            if written < len(before + line):
                raise OSError(f"only {written} of {len(before + line)} bytes found room")
        except OSError as error:
            with suppress(OSError):  # then its size is wrong, and whoever appends next finds that
                os.ftruncate(self._file, size)
            raise self._failed(error) from error
        self._ending = Ending(seq=0, time=0, size=size + written)

    def _failed(self, error: OSError) -> StoreFault:
        return StoreFault(self._session_id, f"{self._path}: {error.strerror or error}; nothing of this write was kept")

    async def sync(self) -> None:
        if self._unsynced:
            self._unsynced = False
            await self._store.make_durable(self._path)

    # --- posts --------------------------------------------------------------------------------------

    async def posted(self) -> AsyncIterator[Post]:
        seen: set[str] = set()
        while not self._closed:
            news, stamp = self._store.news(self._session_id), self._posts.stamp()
            pending = self._posts.pending()
            fresh = [post for post in pending if post.id not in seen]
            seen = {post.id for post in pending}
            for post in fresh:
                yield post
            if not fresh:
                self._check_there()
                while not self._closed and not news.is_set() and self._posts.stamp() == stamp:
                    await self._store.wait(news)

    async def forget(self, post_ids: Sequence[str]) -> None:
        await self._posts.forget(post_ids)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._file >= 0:
            os.close(self._file)
        if self._lock is not None:
            self._lock.release()
        self._store.tell(self._session_id)


def _taken(cursor: Cursor) -> tuple[list[Event], TreadleError | None]:
    """What a cursor finds, and the damage that it stopped at."""
    events: list[Event] = []
    try:
        events.extend(cursor.read())
    except TreadleError as error:
        return events, error
    return events, None


__all__ = ["JsonlLog"]
