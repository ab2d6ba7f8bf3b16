"""One session, open: what `Store.open` returns."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from functools import partial

import anyio

from treadle.plugin import Conflict, Event, LeaseLost, NoSuchSession, Post, UsageError

from .database import Database
from .lease import ends_in, release
from .rows import EventRow, event_from_row, event_to_row, post_from_row

_LINE = """
with recursive line(key, last) as (
  select ?, 9223372036854775807
  union all
  select s.parent_key, min(line.last, s.parent_seq) from line join sessions s on s.key = line.key
  where s.parent_key is not null)
select key, last from line"""

_EVENTS = """
select seq, time, type, turn, step, owner, required, data from events
where session_key = ? and seq > ? and seq <= ? order by seq"""

_APPEND = """
insert into events (session_key, seq, time, type, turn, step, owner, required, data)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)"""

_HEAD = """
update sessions set head_seq = ?, updated = ?, lease_ends = ?
where key = ? and head_seq = ? and lease_token = ?"""


class SqliteLog:
    """The log of one session. With a lease token it is the writer's; without, it only reads."""

    def __init__(self, database: Database, session_id: str, key: int, token: int | None) -> None:
        self._database = database
        self._session_id, self._key, self._token = session_id, key, token
        self._closed = False
        self._where = f'{database.ref}, session "{session_id}"'
        # The session and those it forked from, the oldest first, each with the last seq that counts.
        self._line = [(int(line or 0), int(last or 0)) for line, last in self._database.read(_LINE, (key,))][::-1]

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def forked_from(self) -> tuple[str, int] | None:
        if len(self._line) < 2:
            return None
        key, shared = self._line[-2]
        ((parent, *_),) = self._database.read("select id from sessions where key = ?", (key,))
        return str(parent), shared

    @property
    def lease(self) -> tuple[int, int] | None:
        """The session's key and the token, while this log may write."""
        return None if self._closed or self._token is None else (self._key, self._token)

    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        events: list[Event] = []
        for key, last in self._line:
            if after_seq < last:
                rows = self._database.read(_EVENTS, (key, after_seq, last))
                events += [event_from_row(row, self._where) for row in rows]  # type: ignore[arg-type]
        return events

    async def append(self, events: Sequence[Event], expected_seq: int) -> None:
        if self._closed or self._token is None:
            self._refuse()
        if not events:
            return
        rows = [event_to_row(event, self._session_id) for event in events]
        head = expected_seq + len(events)
        if [row[0] for row in rows] != list(range(expected_seq + 1, head + 1)):
            raise UsageError(
                f'The events for session "{self._session_id}" are numbered {[row[0] for row in rows]}; after '
                f"{expected_seq} they must count on without a gap. Nothing was written."
            )
        await self._database.commit(partial(self._append, rows, expected_seq, head), self._session_id)
        self._database.tell(self._key)

    def _append(self, rows: list[EventRow], expected_seq: int, head: int, connection: sqlite3.Connection) -> None:
        ends = ends_in(self._database.settings.lease_seconds)
        found = connection.execute(_HEAD, (head, rows[-1][1], ends, self._key, expected_seq, self._token))
        if not found.rowcount:
            self._diagnose(connection, expected_seq)
        key = self._key
        connection.executemany(_APPEND, [(key, *row) for row in rows])

    def _diagnose(self, connection: sqlite3.Connection, expected_seq: int) -> None:
        query = "select head_seq, lease_token from sessions where key = ?"
        row = connection.execute(query, (self._key,)).fetchone()
        if row is None or row[1] != self._token:
            raise LeaseLost(self._session_id)
        raise Conflict(self._session_id, expected_seq, row[0])

    def _refuse(self) -> None:
        if self._token is None:
            raise UsageError(f'Session "{self._session_id}" was opened for reading. Open it with write=True to append.')
        raise LeaseLost(self._session_id)

    async def sync(self) -> None:
        # Each append is a commit: in the file for every process, and with durability "full" on the disk.
        return None

    async def tail(self, after_seq: int = 0) -> AsyncIterator[Event]:
        while not self._closed:
            version = self._database.version()
            events = await self.read(after_seq)
            for event in events:
                yield event
                after_seq = event.seq
            if not events:
                self._check_there()
                await self._wait(version)

    async def posted(self) -> AsyncIterator[Post]:
        query = "select key, id, kind, data from posts where session_key = ? and key > ? order by key"
        last = 0
        while not self._closed:
            version = self._database.version()
            rows = self._database.read(query, (self._key, last))
            for key, post_id, kind, text in rows:
                last = int(key or 0)
                yield post_from_row(str(post_id), str(kind), str(text), self._where)
            if not rows:
                self._check_there()
                await self._wait(version)

    def _check_there(self) -> None:
        if not self._database.read("select 1 from sessions where key = ?", (self._key,)):
            raise NoSuchSession(self._session_id, f"{self._database.ref} any more: it was deleted")

    async def _wait(self, version: int) -> None:
        """Return when this process wrote to the session, or another to the file since it stood at `version`."""
        news = self._database.news(self._key)
        while not self._closed and not news.is_set() and self._database.version() == version:
            with anyio.move_on_after(self._database.settings.poll_seconds):
                await news.wait()

    async def forget(self, post_ids: Sequence[str]) -> None:
        rows = [(self._key, post_id) for post_id in post_ids]
        query = "delete from posts where session_key = ? and id = ?"
        await self._database.write(lambda connection: connection.executemany(query, rows), self._session_id)

    async def close(self) -> None:
        if self._closed:
            return
        lease, self._closed = self.lease, True
        self._database.tell(self._key)
        if lease is not None:
            # Shielded: a lease that a cancel left behind would keep the session busy.
            with anyio.CancelScope(shield=True):
                await self._database.write(lambda connection: release(connection, *lease), self._session_id)


__all__ = ["SqliteLog"]
