"""The store: sessions in one schema of a PostgreSQL database."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from treadle.plugin import (
    Capabilities,
    Json,
    NoSuchSession,
    Posted,
    PostMessage,
    SessionFilter,
    SessionInfo,
    TreadleError,
    UnreadableLog,
    UsageError,
    new_id,
)

from .connection import Connection, Row
from .database import Database
from .lease import check_free, renew, take
from .log import PostgresLog
from .rows import post_to_row
from .settings import PostgresSettings

DIALECT = "postgresql"
_ALL = SessionFilter()
_BIGGEST = 9223372036854775807

_LINE = f"""
with recursive line(key, last, depth) as (
  select key, {_BIGGEST}::bigint, 0 from {{schema}}.sessions where id = %s
  union all
  select s.parent_key, least(line.last, s.parent_seq), line.depth + 1
  from line join {{schema}}.sessions s on s.key = line.key where s.parent_key is not null)
select line.key, line.last, s.id from line join {{schema}}.sessions s on s.key = line.key order by line.depth desc"""

_SESSIONS = """
select s.key, s.id, s.head_seq, s.created, s.updated, s.archived, coalesce(p.id, ''), s.parent_seq
from {schema}.sessions s left join {schema}.sessions p on p.key = s.parent_key
where s.head_seq > 0 and s.archived = %s order by s.updated desc, s.id collate "C" desc"""

# What a session is called, a fork's inherited names included. A partial index holds nothing else.
_METAS = """
with recursive line(key, ancestor, last) as (
  select key, key, head_seq from {schema}.sessions where archived = %s
  union all
  select line.key, s.parent_key, least(line.last, s.parent_seq)
  from line join {schema}.sessions s on s.key = line.ancestor where s.parent_key is not null)
select line.key, e.data::text from line
join {schema}.events e on e.session_key = line.ancestor and e.seq <= line.last
where e.type = 'session/meta' order by line.key, e.seq"""

_DESCENDANTS = """
with recursive tree(key, depth) as (
  select key, 0 from {schema}.sessions where id = %s
  union all select s.key, tree.depth + 1 from tree join {schema}.sessions s on s.parent_key = tree.key)
select s.key, s.id from tree join {schema}.sessions s on s.key = tree.key order by tree.depth desc"""

_TIME_AT = """
with recursive line(key, parent_key, parent_seq) as (
  select key, parent_key, parent_seq from {schema}.sessions where key = %s
  union all
  select s.key, s.parent_key, s.parent_seq from line join {schema}.sessions s on s.key = line.parent_key
  where %s <= line.parent_seq)
select e.time from line join {schema}.events e on e.session_key = line.key and e.seq = %s"""

_MAKE = "insert into {schema}.sessions (id, created, updated) values (%s, %s, %s) on conflict (id) do nothing"

# The row is locked, so that it is not deleted between.
_POST = """
with target as (select key from {schema}.sessions where id = %s for key share),
added as (
  insert into {schema}.posts (session_key, id, time, kind, data)
  select key, %s, %s, %s, %s::json from target on conflict (session_key, id) do nothing)
select key, pg_notify(%s, key::text) from target"""


class PostgresStore:
    """Sessions in one schema, shared by any number of processes and hosts."""

    def __init__(self, ref: str, *, settings: PostgresSettings | None = None) -> None:
        self.settings = settings or PostgresSettings()
        self.database = Database(ref, self.settings)
        self._writers: list[PostgresLog] = []

    @property
    def ref(self) -> str:
        """The reference, its password left out."""
        return self.database.ref

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(processes=True, hosts=True, push=True, transaction=True, durable=True, suspends=True)

    # --- opening ------------------------------------------------------------------------------------

    async def open(self, session_id: str, write: bool) -> PostgresLog:
        if not write:
            return self._log(session_id, await self.database.read(_LINE, (session_id,)), None)
        backend = (await self.database.listen()).info.backend_pid

        async def work(connection: Connection) -> tuple[list[Row], int]:
            await self._present(connection, session_id)
            _, token = await take(self.database, connection, session_id, backend)
            return await self.database.rows(connection, _LINE, (session_id,)), token

        line, token = await self.database.write(work, session_id)
        log = self._log(session_id, line, token)
        self._writers = [*(each for each in self._writers if each.lease is not None), log]
        return log

    def _log(self, session_id: str, rows: Sequence[Row], token: int | None) -> PostgresLog:
        if not rows:
            raise NoSuchSession(session_id, self.ref)
        line = [(key, last) for key, last, _ in rows]
        parent = (rows[-2][2], line[-2][1]) if len(rows) > 1 else None
        return PostgresLog(self.database, session_id, line, parent, token)

    async def _present(self, connection: Connection, session_id: str) -> None:
        now = time.time()
        await self.database.rows(connection, _MAKE, (session_id, now, now))

    async def renew_leases(self) -> None:
        """Renew the leases of all open writers. One that was lost stays so: its next append says it."""
        leases = [log.lease for log in self._writers if log.lease is not None]
        if not leases:
            return
        try:
            await self.database.run(lambda connection: renew(self.database, connection, leases))
        except TreadleError:
            # The next renewal tries again, and an append renews too. If neither comes in time, whoever takes the
            # lease over is told apart by its token: no write is lost or mixed.
            pass

    # --- sessions -------------------------------------------------------------------------------------

    async def list(self, filter: SessionFilter = _ALL) -> Sequence[SessionInfo]:
        names: dict[int, dict[str, Json]] = {}
        for key, text in await self.database.read(_METAS, (filter.archived,)):
            said = _loaded(text, f"{self.ref}, session/meta")
            names.setdefault(key, {}).update((k, v) for k, v in said.items() if v is not None)
        rows = await self.database.read(_SESSIONS, (filter.archived,))
        infos = [_info(row, names.get(row[0], {})) for row in rows]
        wanted = [
            info for info in infos if set(filter.labels) <= set(info.labels) and filter.parent in (None, info.parent)
        ]
        return wanted[: filter.limit]

    async def _key(self, session_id: str) -> int:
        rows = await self.database.read("select key from {schema}.sessions where id = %s", (session_id,))
        if not rows:
            raise NoSuchSession(session_id, self.ref)
        return int(rows[0][0])

    async def fork(self, session_id: str, at_seq: int, new_id: str) -> None:
        parent = await self._key(session_id)

        async def work(connection: Connection) -> None:
            query = "select head_seq from {schema}.sessions where key = %s for key share"
            found = await self.database.rows(connection, query, (parent,))
            if not found:
                raise NoSuchSession(session_id, self.ref)
            if not 1 <= at_seq <= found[0][0]:
                raise UsageError(f'Session "{session_id}" has events 1 to {found[0][0]}; {at_seq} is none of them.')
            ((updated,),) = await self.database.rows(connection, _TIME_AT, (parent, at_seq, at_seq))
            insert = """
                insert into {schema}.sessions (id, parent_key, parent_seq, head_seq, created, updated)
                values (%s, %s, %s, %s, %s, %s) on conflict (id) do nothing returning key"""
            values = (new_id, parent, at_seq, at_seq, time.time(), updated)
            if not await self.database.rows(connection, insert, values):
                raise UsageError(f'Session "{new_id}" is there already. Fork under another name.')

        await self.database.write(work, session_id)

    async def archive(self, session_id: str, archived: bool = True) -> None:
        key = await self._key(session_id)
        query = "update {schema}.sessions set archived = %s where key = %s"
        await self.database.run(lambda connection: self.database.rows(connection, query, (archived, key)), session_id)

    async def delete(self, session_id: str, *, with_forks: bool = False) -> None:
        await self._key(session_id)

        async def work(connection: Connection) -> list[int]:
            # The lock keeps forks and writers off: a fork that came first is seen by the next statement.
            lock = "select key from {schema}.sessions where id = %s for update"
            await self.database.rows(connection, lock, (session_id,))
            tree = await self.database.rows(connection, _DESCENDANTS, (session_id,))
            forks = sorted(each for _, each in tree if each != session_id)
            if forks and not with_forks:
                raise UsageError(
                    f'Session "{session_id}" has forks that begin with its events: {", ".join(forks)}. '
                    f"Delete them first, or say with_forks=True."
                )
            keys = [key for key, _ in tree]
            await self.database.rows(
                connection, "select key from {schema}.sessions where key = any(%s) order by key for update", (keys,)
            )
            await check_free(self.database, connection, keys)
            await self.database.rows(connection, "delete from {schema}.events where session_key = any(%s)", (keys,))
            await self.database.rows(connection, "delete from {schema}.sessions where key = any(%s)", (keys,))
            for key in keys:
                await self.database.rows(connection, "select pg_notify(%s, %s)", (self.database.channel, str(key)))
            return keys

        self.database.tell(*await self.database.write(work, session_id))

    # --- posts ----------------------------------------------------------------------------------------

    async def post(self, session_id: str, what: Posted) -> str:
        kind, text = post_to_row(what)
        # The same message posted again, because nobody knew whether it arrived, is there once.
        post_id = what.message.id if isinstance(what, PostMessage) else new_id()
        values = (session_id, post_id, time.time(), kind, text, self.database.channel)

        async def work(connection: Connection) -> int:
            found = await self.database.rows(connection, _POST, values)
            while not found:
                await self._present(connection, session_id)
                found = await self.database.rows(connection, _POST, values)
            return int(found[0][0])

        self.database.tell(await self.database.write(work, session_id))
        return post_id

    # --- other plugins' tables ----------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Connection, str]]:
        """A psycopg connection in a transaction, and the dialect's name, for tables that must commit together.

        It is committed at the end and undone by whatever is raised; never commit it yourself. Posts, forks and appends
        made through this store by the same task inside the block are part of it. Use it from that task alone.
        """
        async with self.database.transaction() as connection:
            yield connection, DIALECT
        self.database.tell()

    async def close(self) -> None:
        """Close what is open, leases first. Safe to call twice."""
        with anyio.CancelScope(shield=True):
            for log in self._writers:
                try:
                    await log.close()
                except TreadleError:
                    pass  # the server is gone, and with it the connection that the lease hangs on
            await self.database.close()


def _loaded(text: str, where: str) -> dict[str, Json]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise UnreadableLog(where, f"it is damaged ({error})", "Restore the database from a copy.") from error


def _info(row: Row, names: dict[str, Json]) -> SessionInfo:
    _, session_id, head, created, updated, archived, parent, parent_seq = row
    return SessionInfo(
        id=session_id,
        head_seq=head,
        created=created,
        updated=updated,
        title=names.get("title", ""),
        labels=tuple(names.get("labels", ())),
        metadata=names.get("metadata", {}),
        parent=parent,
        parent_seq=parent_seq,
        archived=archived,
    )


__all__ = ["PostgresStore"]
