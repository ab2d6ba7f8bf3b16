"""The store: sessions in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel

from treadle.plugin import (
    Capabilities,
    Found,
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

from .database import Column, Database
from .lease import check_free, renew, take
from .log import SqliteLog
from .rows import post_to_row
from .search import find, take_up
from .settings import SqliteSettings

DIALECT = "sqlite"
_ALL = SessionFilter()

_SESSIONS = """
select s.key, s.id, s.head_seq, s.created, s.updated, s.archived, ifnull(p.id, ''), s.parent_seq
from sessions s left join sessions p on p.key = s.parent_key
where s.head_seq > 0 and s.archived = ? order by s.updated desc, s.id desc"""

# What a session is called, a fork's inherited names included. The index `events_meta` holds nothing else.
_METAS = """
with recursive line(key, ancestor, last) as (
  select key, key, head_seq from sessions where archived = ?
  union all
  select line.key, s.parent_key, min(line.last, s.parent_seq) from line join sessions s on s.key = line.ancestor
  where s.parent_key is not null)
select line.key, e.data from line join events e on e.session_key = line.ancestor and e.seq <= line.last
where e.type = 'session/meta' order by line.key, e.seq"""

_DESCENDANTS = """
with recursive tree(key, depth) as (
  select ?, 0 union all select s.key, tree.depth + 1 from tree join sessions s on s.parent_key = tree.key)
select s.key, s.id, s.lease_ends, s.lease_holder from tree join sessions s on s.key = tree.key
order by tree.depth desc"""

_TIME_AT = """
with recursive line(key, parent_key, parent_seq) as (
  select key, parent_key, parent_seq from sessions where key = ?
  union all
  select s.key, s.parent_key, s.parent_seq from line join sessions s on s.key = line.parent_key
  where ? <= line.parent_seq)
select e.time from line join events e on e.session_key = line.key and e.seq = ?"""


class SqliteStore:
    """Sessions in one file, shared by the processes of one host."""

    def __init__(self, path: Path, *, ref: str, settings: SqliteSettings | None = None) -> None:
        self.settings = settings or SqliteSettings()
        self.database = Database(path, ref, self.settings)
        self._ref = ref
        self._writers: Sequence[SqliteLog] = ()

    @property
    def ref(self) -> str:
        return self._ref

    @property
    def capabilities(self) -> Capabilities:
        full = self.settings.durability == "full"
        return Capabilities(processes=True, transaction=True, durable=True, suspends=full)

    # --- opening ------------------------------------------------------------------------------------

    async def open(self, session_id: str, write: bool) -> SqliteLog:
        if not write:
            return SqliteLog(self.database, session_id, self._find(session_id), None)
        await self.database.make()
        key, token = await self.database.write(partial(self._take, session_id), session_id)
        log = SqliteLog(self.database, session_id, key, token)
        self._writers = [*self._open_writers(), log]
        return log

    def _take(self, session_id: str, connection: sqlite3.Connection) -> tuple[int, int]:
        key = _present(connection, session_id)
        return key, take(connection, session_id, key, self.settings.lease_seconds)

    def _open_writers(self) -> Iterable[SqliteLog]:
        return [log for log in self._writers if log.lease is not None]

    def _find(self, session_id: str) -> int:
        rows = self.database.read("select key from sessions where id = ?", (session_id,))
        if rows:
            return int(rows[0][0] or 0)
        missing = "" if self.database.exists else f" (there is no file {self.database.path})"
        raise NoSuchSession(session_id, self._ref + missing)

    async def renew_leases(self) -> None:
        """Renew the leases of all open writers. One that was lost stays so: its next append says it."""
        leases = [log.lease for log in self._writers if log.lease is not None]
        # One plugin in two stacks hands both lifespans its stores; each renews those of its own event loop.
        if not leases or not self.database.is_of_this_loop:
            return
        try:
            await self.database.write(lambda connection: renew(connection, leases, self.settings.lease_seconds))
        except TreadleError:
            # The next renewal tries again, and an append renews too. If neither comes in time, whoever takes the
            # lease over is told apart by its token: no write is lost or mixed.
            pass

    # --- sessions -------------------------------------------------------------------------------------

    async def list(self, filter: SessionFilter = _ALL) -> Sequence[SessionInfo]:
        archived = int(filter.archived)
        names: dict[int, dict[str, Json]] = {}
        for key, text in self.database.read(_METAS, (archived,)):
            said = _loaded(str(text), f"{self._ref}, session/meta")
            names.setdefault(int(key or 0), {}).update((k, v) for k, v in said.items() if v is not None)
        infos = [_info(row, names.get(int(row[0] or 0), {})) for row in self.database.read(_SESSIONS, (archived,))]
        wanted = [
            info for info in infos if set(filter.labels) <= set(info.labels) and filter.parent in (None, info.parent)
        ]
        return wanted[: filter.limit]

    async def fork(self, session_id: str, at_seq: int, new_id: str) -> None:
        parent = self._find(session_id)
        await self.database.make()
        await self.database.write(partial(self._fork, session_id, parent, at_seq, new_id), session_id)

    def _fork(self, session_id: str, parent: int, at_seq: int, new_id: str, connection: sqlite3.Connection) -> None:
        row = connection.execute("select head_seq from sessions where key = ?", (parent,)).fetchone()
        if row is None:
            raise NoSuchSession(session_id, self._ref)
        if not 1 <= at_seq <= row[0]:
            raise UsageError(f'Session "{session_id}" has events 1 to {row[0]}; {at_seq} is none of them.')
        if connection.execute("select 1 from sessions where id = ?", (new_id,)).fetchone():
            raise UsageError(f'Session "{new_id}" is there already. Fork under another name.')
        (updated,) = connection.execute(_TIME_AT, (parent, at_seq, at_seq)).fetchone()
        columns = "id, parent_key, parent_seq, head_seq, created, updated"
        values = (new_id, parent, at_seq, at_seq, time.time(), updated)
        connection.execute(f"insert into sessions ({columns}) values (?, ?, ?, ?, ?, ?)", values)

    async def archive(self, session_id: str, archived: bool = True) -> None:
        key = self._find(session_id)
        await self.database.make()
        query, values = "update sessions set archived = ? where key = ?", (int(archived), key)
        await self.database.write(lambda connection: connection.execute(query, values), session_id)

    async def delete(self, session_id: str, *, with_forks: bool = False) -> None:
        key = self._find(session_id)
        await self.database.make()
        gone = await self.database.write(partial(_delete, session_id, key, with_forks), session_id)
        self.database.tell(*gone)

    # --- posts ----------------------------------------------------------------------------------------

    async def post(self, session_id: str, what: Posted) -> str:
        kind, text = post_to_row(what)
        post_id = what.message.id if isinstance(what, PostMessage) else new_id()
        await self.database.make()
        key = await self.database.write(partial(_post, session_id, post_id, kind, text), session_id)
        self.database.tell(key)
        return post_id

    # --- search -----------------------------------------------------------------------------------------

    async def search(self, words: Sequence[str], limit: int | None) -> Sequence[Found]:
        """Messages with all the words, newest first, from an index in the file (FTS5).

        The index takes up what was written since the last search, a few hundred events at a time: an append pays
        nothing for it, and waits for no more than one such stretch. Raises `Unsupported` without FTS5.
        """
        if not self.database.read("select 1 from sessions limit 1"):
            return ()
        await self.database.make()
        while not await self.database.write(take_up):
            await anyio.lowlevel.checkpoint()
        return find(self.database, words, limit)

    # --- other plugins' tables ----------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[sqlite3.Connection, str]]:
        """A connection in a transaction, and the dialect's name, for tables that must commit together.

        It is committed at the end and undone by whatever is raised; never commit it yourself, which `executescript`
        does. Posts, forks and appends made through this store inside the block are part of it. Keep it short: the file
        has one writer, so other processes wait meanwhile. With durability "normal" await nothing else in it: an
        append of another task cannot wait, so it undoes this transaction, and the block ends with `UsageError`.
        """
        async with self.database.transaction() as connection:
            yield connection, DIALECT
        self.database.tell()

    async def close(self) -> None:
        """Close what is open, leases first. Safe to call twice."""
        for log in self._open_writers():
            await log.close()
        with anyio.CancelScope(shield=True):
            await self.database.close()
        self.database.tell()


# --- work inside one transaction ------------------------------------------------------------------------


def _present(connection: sqlite3.Connection, session_id: str) -> int:
    """The key of a session, which is made if it is not there."""
    now = time.time()
    insert = "insert into sessions (id, created, updated) values (?, ?, ?) on conflict do nothing"
    connection.execute(insert, (session_id, now, now))
    (key,) = connection.execute("select key from sessions where id = ?", (session_id,)).fetchone()
    return int(key)


def _post(session_id: str, post_id: str, kind: str, text: str, connection: sqlite3.Connection) -> int:
    key = _present(connection, session_id)
    # The same message posted again, because nobody knew whether it arrived, is there once.
    insert = "insert into posts (session_key, id, time, kind, data) values (?, ?, ?, ?, ?) on conflict do nothing"
    connection.execute(insert, (key, post_id, time.time(), kind, text))
    return key


def _delete(session_id: str, key: int, with_forks: bool, connection: sqlite3.Connection) -> Sequence[int]:
    rows = connection.execute(_DESCENDANTS, (key,)).fetchall()
    forks = [each for found, each, _, _ in rows if found != key]
    if forks and not with_forks:
        raise UsageError(
            f'Session "{session_id}" has forks that begin with its events: {", ".join(sorted(forks))}. '
            f"Delete them first, or say with_forks=True."
        )
    for _, each, ends, holder in rows:
        check_free(each, ends, holder)
    for found, *_ in rows:
        connection.execute("delete from events where session_key = ?", (found,))
        connection.execute("delete from sessions where key = ?", (found,))
    return [found for found, *_ in rows]


def _loaded(text: str, where: str) -> dict[str, Json]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise UnreadableLog(where, f"it is damaged ({error})", "Restore the file from a copy.") from error


def _info(row: Sequence[Column], names: dict[str, Json]) -> SessionInfo:
    _, session_id, head, created, updated, archived, parent, parent_seq = row
    return SessionInfo(
        id=str(session_id),
        head_seq=int(head or 0),
        created=float(created or 0),
        updated=float(updated or 0),
        title=names.get("title", ""),
        labels=tuple(names.get("labels", ())),
        metadata=names.get("metadata", {}),
        parent=str(parent),
        parent_seq=int(parent_seq or 0),
        archived=bool(archived),
    )


__all__ = ["SqliteStore"]
