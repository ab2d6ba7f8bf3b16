"""One session, open: what `Store.open` returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import anyio

from treadle.plugin import Conflict, Event, LeaseLost, NoSuchSession, Post, UsageError

from .connection import Connection
from .database import Database
from .lease import release
from .rows import EventRow, event_from_row, event_to_row, post_from_row

_COLUMNS = "e.seq, e.time, e.type, e.turn, e.step, e.owner, e.required, e.data::text"

# One statement, so one transaction and one round trip: the head moves if it stands where the writer believes and the
# token is the last one given out; only then are there rows to insert and somebody to tell.
_APPEND = """
with head as (
  update {schema}.sessions set head_seq = %s, updated = %s,
    lease_ends = clock_timestamp() + make_interval(secs => %s)
  where key = %s and head_seq = %s and lease_token = %s returning key),
added as (
  insert into {schema}.events (session_key, seq, time, type, turn, step, owner, required, data)
  select head.key, e.seq, e.time, e.type, e.turn, e.step, e.owner, e.required, e.data::json
  from head, unnest(%s::bigint[], %s::float8[], %s::text[], %s::int[], %s::int[], %s::text[], %s::bool[], %s::text[])
    as e(seq, time, type, turn, step, owner, required, data))
select pg_notify(%s, head.key::text) from head"""


class PostgresLog:
    """The log of one session. With a lease token it is the writer's; without, it only reads.

    `line` are the keys of the session and those it forked from, the oldest first, each with the last seq that counts;
    `parent` is the id and the seq of the one it forked from.
    """

    def __init__(
        self,
        database: Database,
        session_id: str,
        line: Sequence[tuple[int, int]],
        parent: tuple[str, int] | None,
        token: int | None,
    ) -> None:
        self._database, self._session_id = database, session_id
        self._line, self._key, self._token = line, line[-1][0], token
        self._parent = parent
        self._closed = False
        self._where = f'{database.ref}, session "{session_id}"'

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def forked_from(self) -> tuple[str, int] | None:
        return self._parent

    @property
    def lease(self) -> tuple[int, int] | None:
        """The session's key and the token, while this log may write."""
        return None if self._closed or self._token is None else (self._key, self._token)

    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        query = f"""
            select {_COLUMNS} from unnest(%s::bigint[], %s::bigint[]) as line(key, last)
            join {{schema}}.events e on e.session_key = line.key and e.seq <= line.last and e.seq > %s
            order by e.seq"""
        keys, lasts = [key for key, _ in self._line], [last for _, last in self._line]
        rows = await self._database.read(query, (keys, lasts, after_seq))
        return [event_from_row(row, self._where) for row in rows]

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

        async def work(connection: Connection) -> None:
            await self._append(connection, rows, expected_seq, head)

        await self._database.run(work, self._session_id, alone=True)
        self._database.tell(self._key)

    async def _append(self, connection: Connection, rows: list[EventRow], expected_seq: int, head: int) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        lease = (self._database.settings.lease_seconds, self._key, expected_seq, self._token)
        values = (head, rows[-1][1], *lease, *columns, self._database.channel)
        if not await self._database.rows(connection, _APPEND, values):
            query = "select head_seq, lease_token from {schema}.sessions where key = %s"
            found = await self._database.rows(connection, query, (self._key,))
            if not found or found[0][1] != self._token:
                raise LeaseLost(self._session_id)
            raise Conflict(self._session_id, expected_seq, found[0][0])

    def _refuse(self) -> None:
        if self._token is None:
            raise UsageError(f'Session "{self._session_id}" was opened for reading. Open it with write=True to append.')
        raise LeaseLost(self._session_id)

    async def sync(self) -> None:
        # Each append is a commit; what that survives is the server's synchronous_commit.
        return None

    async def tail(self, after_seq: int = 0) -> AsyncIterator[Event]:
        while not self._closed:
            await self._database.listen()  # before looking, so that nothing falls between
            news = self._database.news(self._key)
            events = await self.read(after_seq)
            for event in events:
                yield event
                after_seq = event.seq
            if not events:
                await self._wait(news)

    async def posted(self) -> AsyncIterator[Post]:
        query = "select key, id, kind, data::text from {schema}.posts where session_key = %s and key > %s order by key"
        last = 0
        while not self._closed:
            await self._database.listen()
            news = self._database.news(self._key)
            rows = await self._database.read(query, (self._key, last))
            for key, post_id, kind, text in rows:
                last = key
                yield post_from_row(post_id, kind, text, self._where)
            if not rows:
                await self._wait(news)

    async def _wait(self, news: anyio.Event) -> None:
        if not await self._database.read("select 1 from {schema}.sessions where key = %s", (self._key,)):
            raise NoSuchSession(self._session_id, f"{self._database.ref} any more: it was deleted")
        if not self._closed:
            await self._database.wait(news)

    async def forget(self, post_ids: Sequence[str]) -> None:
        query = "delete from {schema}.posts where session_key = %s and id = any(%s)"
        values = (self._key, list(post_ids))
        await self._database.run(lambda connection: self._database.rows(connection, query, values), self._session_id)

    async def close(self) -> None:
        if self._closed:
            return
        lease, self._closed = self.lease, True
        self._database.tell(self._key)
        if lease is not None:
            # Shielded: a lease that a cancel left behind would keep the session busy.
            with anyio.CancelScope(shield=True):
                await self._database.run(lambda c: release(self._database, c, *lease), self._session_id)


__all__ = ["PostgresLog"]
