"""One database: its connections, its transactions, its news, and what its faults mean. Knows nothing of sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

import anyio
import attrs
import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo

from treadle.plugin import StoreFault, TreadleError, UnreadableLog, UsageError

from .connection import Connection, Row
from .schema import STEPS
from .settings import FORMS, PostgresSettings, shown

T = TypeVar("T")
Work: TypeAlias = Callable[[Connection], Awaitable[T]]
"""What is done inside one transaction, on the connection it is given. Raising undoes all of it."""

ANY = "*"
"""Stands in a fault's text for the session, where the work was of none in particular."""


@attrs.frozen(eq=False)
class _Open:
    """One `transaction()` that is open."""

    database: Database
    connection: Connection


_entered: ContextVar[tuple[_Open, ...]] = ContextVar("treadle_postgres_transactions", default=())


class Database:
    """Connections are made on first use, at most so many; one more listens."""

    def __init__(self, ref: str, settings: PostgresSettings) -> None:
        self.ref, self.settings = shown(ref), settings
        self.schema = settings.schema
        self.channel = f"treadle_{settings.schema}"
        try:
            self._conninfo = make_conninfo(
                ref, connect_timeout=settings.connect_seconds, client_encoding="UTF8", application_name="treadle"
            )
        except psycopg.Error as error:
            raise UsageError(f'"{self.ref}" cannot be read: {f"{error}".strip()}. {FORMS}.') from error
        self._process = os.getpid()
        self._closed = self._ready = False
        self._idle: list[Connection] = []
        self._room = anyio.CapacityLimiter(settings.connections)
        self._listener: Connection | None = None
        self._listening, self._leading = anyio.Lock(), anyio.Lock()
        self._news: dict[int, anyio.Event] = {}

    # --- work ---------------------------------------------------------------------------------------

    def sql(self, query: str) -> bytes:
        """A query with `{schema}` filled in. The name was checked to be a plain one."""
        return query.replace("{schema}", self.schema).encode()

    async def read(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Rows of a query; none where the tables are not there yet. Writes nothing."""
        if not self._ready and self._own() is None:
            state = await self.run(self._state)
            if state == "absent":
                return []
            if state == "older":
                remedy = "Open any session of it for writing once: that renews the tables."
                raise UnreadableLog(self.ref, "an older treadle-postgres made its tables", remedy)
            self._ready = True
        return await self.run(lambda connection: self.rows(connection, query, values), alone=True)

    async def rows(self, connection: Connection, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Rows of a query on a connection."""
        cursor = await connection.execute(self.sql(query), values)
        return await cursor.fetchall() if cursor.description else []

    async def write(self, work: Work[T], session_id: str = ANY, *, alone: bool = False) -> T:
        """As `run`, after the tables were made if need be."""
        await self.make()
        return await self.run(work, session_id, alone=alone)

    async def run(self, work: Work[T], session_id: str = ANY, *, alone: bool = False) -> T:
        """Do `work` in a transaction of its own, or as part of the caller's open `transaction()`.

        `alone` says that it is one statement, which is a transaction by itself. A cancel leaves it done or not done.
        """
        own = self._own()
        with self._explaining(session_id):
            if own is not None:
                async with own.connection.transaction():
                    return await work(own.connection)
            async with self._connection() as connection:
                if alone:
                    return await work(connection)
                async with connection.transaction():
                    return await work(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection in a transaction: committed at the end, undone by whatever is raised."""
        await self.make()
        outer = self._own()
        if outer is not None:
            async with outer.connection.transaction():
                yield outer.connection
            return
        async with self._connection() as connection, connection.transaction():
            entered = _entered.get()
            _entered.set((*entered, _Open(self, connection)))
            try:
                yield connection
            finally:
                _entered.set(entered)

    def _own(self) -> _Open | None:
        return next((each for each in _entered.get() if each.database is self), None)

    # --- connections --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        self._check_usable()
        async with self._room:
            connection = None
            while self._idle and connection is None:
                connection = self._idle.pop()
                if not connection.is_usable:  # the server ended it meanwhile
                    connection.end()
                    connection = None
            connection = connection or await Connection.made(self._conninfo)
            try:
                yield connection
            finally:
                if connection.is_usable and not self._closed:
                    self._idle.append(connection)
                else:
                    connection.end()

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError(f"The store {self.ref} is closed. Open it again: stack.open_store(...)")
        if os.getpid() != self._process:
            raise UsageError(f"The store {self.ref} was carried into another process by a fork. Open it anew there.")

    async def make(self) -> None:
        """Make the tables if they are not there. Any number of processes may do so at once."""
        if not self._ready and await self.run(self._state) != "ready":
            await self.run(self._make)
        self._ready = True

    async def _state(self, connection: Connection) -> str:
        # Not `to_regclass`, which may answer from before another process's commit.
        query = """
            select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = %s and c.relname = 'migrations'"""
        if not await self.rows(connection, query, (self.schema,)):
            return "absent"
        applied = {str(name) for (name,) in await self.rows(connection, "select name from {schema}.migrations")}
        if newer := sorted(applied - set(STEPS)):
            reason = f"a newer treadle-postgres made it (this one does not know {', '.join(newer)})"
            raise UnreadableLog(self.ref, reason, "Install that release: pip install --upgrade treadle-postgres")
        return "ready" if applied == set(STEPS) else "older"

    async def _make(self, connection: Connection) -> None:
        # `if not exists` alone is no help against two at once: https://www.postgresql.org/docs/current/explicit-locking.html
        await self.rows(connection, "select pg_advisory_xact_lock(hashtext('treadle:{schema}'))")
        if await self._state(connection) == "absent":
            await self.rows(connection, "create schema if not exists {schema}")
            table = "(name text primary key, applied timestamptz not null default now())"
            await self.rows(connection, f"create table {{schema}}.migrations {table}")
        applied = {name for (name,) in await self.rows(connection, "select name from {schema}.migrations")}
        for name, statements in STEPS.items():
            if name not in applied:
                await connection.execute(self.sql(statements))
                await self.rows(connection, "insert into {schema}.migrations (name) values (%s)", (name,))

    # --- news ---------------------------------------------------------------------------------------
    # A commit notifies with the key of the session it was about. One connection listens. Whoever waits reads it, one
    # at a time; nothing runs in the background, so a store needs no task group.

    async def listen(self) -> Connection:
        """The connection that listens. What is committed from now on is heard."""
        self._check_usable()
        async with self._listening:
            if self._listener is None or self._listener.closed:
                with self._explaining():
                    connection = await Connection.made(self._conninfo)
                    try:
                        await connection.execute(self.sql(f"listen {self.channel}"))
                    except BaseException:
                        connection.end()
                        raise
                self._listener = connection
            return self._listener

    def news(self, key: int) -> anyio.Event:
        """Set when something is next committed about `key`, here or anywhere."""
        return self._news.setdefault(key, anyio.Event())

    def tell(self, *keys: int) -> None:
        """Wake whoever waits for news of `keys`; without any, everybody."""
        for key in keys or tuple(self._news):
            if event := self._news.pop(key, None):
                event.set()

    async def wait(self, news: anyio.Event) -> None:
        """Return at the news, or when it is time to look all the same."""
        with anyio.move_on_after(self.settings.poll_seconds):
            async with anyio.create_task_group() as group:
                group.start_soon(self._lead, news)
                await news.wait()
                group.cancel_scope.cancel()

    async def _lead(self, news: anyio.Event) -> None:
        async with self._leading:
            while not news.is_set():
                try:
                    await self._hear()
                except (psycopg.Error, OSError):
                    if self._listener is not None:
                        self._listener.end()
                    # All look for themselves, after they listened anew: what was committed meanwhile is seen then.
                    self.tell()

    async def _hear(self) -> None:
        if self._listener is None or self._listener.closed:
            raise psycopg.OperationalError("nobody listens")
        pgconn = self._listener.pgconn
        await anyio.wait_readable(pgconn.socket)
        pgconn.consume_input()
        while notice := pgconn.notifies():
            self.tell(int(notice.extra))

    # --- faults and the end ---------------------------------------------------------------------------

    @contextmanager
    def _explaining(self, session_id: str = ANY) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeError, OverflowError) as error:
            raise self._explained(error, session_id) from error

    def _explained(self, error: Exception, session_id: str) -> TreadleError:
        """What a fault means, whose it is, and what to do. Never with the password: libpq leaves it out too."""
        said = f"{error}".strip().replace("\n", " ")
        if isinstance(error, UnicodeError | OverflowError | errors.DataError):
            return UsageError(f"Nothing was written to {self.ref}: a value does not fit its column ({said}).")
        if isinstance(error, errors.InsufficientPrivilege):
            return UsageError(f"{self.ref} refuses this user: {said}. Grant the right, or name another user.")
        if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.InvalidSchemaName):
            remedy = "Restore them from a copy, or choose another schema."
            return UnreadableLog(f"{self.ref}, schema {self.schema}", f"its tables are not ours: {said}", remedy)
        return StoreFault(session_id, f"{self.ref}: {said}; nothing of an unfinished write was kept")

    async def close(self) -> None:
        """Close the connections. Safe to call twice."""
        self._closed = True
        self.tell()
        for connection in (*self._idle, self._listener):
            if connection is not None:
                connection.end()
        self._idle, self._listener = [], None


__all__ = ["Database"]
