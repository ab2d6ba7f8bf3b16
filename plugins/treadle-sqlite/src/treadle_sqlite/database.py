"""One database file: its connections, who writes when, and what its faults mean. Knows nothing of sessions.

Writes are transactions that begin immediate: a deferred one that reads first and writes then fails at once with
"database is locked" when another process wrote between (https://www.sqlite.org/lang_transaction.html).
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import anyio
import anyio.to_thread
import attrs

from treadle.plugin import StoreFault, TreadleError, UnreadableLog, UsageError

from .schema import OLDEST_SQLITE, migrate, state_of
from .settings import SqliteSettings

T = TypeVar("T")
Work: TypeAlias = Callable[[sqlite3.Connection], T]
"""What is done inside one transaction, on the connection it is given. Raising undoes all of it."""


Column: TypeAlias = str | int | float | None

ANY = "*"
"""Stands in a fault's text for the session, where the work was of none in particular."""


@attrs.define(eq=False)
class _Transaction:
    """One `transaction()` that is open."""

    database: Database
    connection: sqlite3.Connection
    broken: bool = False


_entered: ContextVar[tuple[_Transaction, ...]] = ContextVar("treadle_sqlite_transactions", default=())


class Database:
    """Connections are made on first use. One event loop uses it; other loops and processes make their own."""

    def __init__(self, path: Path, ref: str, settings: SqliteSettings) -> None:
        self.path, self.ref = path, ref
        self.settings = settings
        self._normal = settings.durability == "normal"
        self._process = os.getpid()
        self._thread = 0  # whose event loop it is, from the first write on
        self._closed = self._ready = False
        self._main: sqlite3.Connection | None = None  # reads; with durability "normal" writes too
        self._full: sqlite3.Connection | None = None  # with durability "full": writes, on the one writer thread
        self._open: _Transaction | None = None
        self._news: dict[int, anyio.Event] = {}
        self._turn = anyio.Lock()
        self._writer_thread = anyio.CapacityLimiter(1)

    # --- reading ----------------------------------------------------------------------------------

    def read(self, query: str, parameters: tuple[str | int, ...] = ()) -> list[tuple[Column, ...]]:
        """Rows of a query; none where the file or its tables are not there yet. Writes nothing.

        Inside a `transaction()` of the caller it sees what that has written.
        """
        with self._explaining():
            connection = self._reading()
            return [] if connection is None else connection.execute(query, parameters).fetchall()

    def version(self) -> int:
        """A number that changes when another connection, of whatever process, commits (`PRAGMA data_version`)."""
        rows = self.read("pragma data_version")
        return int(rows[0][0] or 0) if rows else 0

    @property
    def exists(self) -> bool:
        """Whether there is a file at the path."""
        with self._explaining():
            return self.path.exists()

    def _reading(self) -> sqlite3.Connection | None:
        self._check_usable()
        own = self._own()
        if own is not None:
            return own.connection
        if not self._ready:
            if self._main is None:
                if not self.exists:
                    return None
                self._main = self._connect("rw")
            state = state_of(self._main, self.ref)
            if state == "absent":
                return None
            if state == "older":
                remedy = "Open any session of it for writing once: that renews the tables."
                raise UnreadableLog(self.ref, "an older treadle-sqlite made its tables", remedy)
            self._ready = True
        return self._main

    @property
    def is_of_this_loop(self) -> bool:
        """Whether the calling thread's event loop is the one that uses it."""
        return self._thread == threading.get_ident()

    # --- writing ----------------------------------------------------------------------------------

    async def make(self) -> None:
        """Make the file and its tables if they are not there. Any number of processes may do so at once."""
        self._check_usable()
        self._thread = self._thread or threading.get_ident()
        deadline = anyio.current_time() + self.settings.busy_seconds
        while not self._ready:
            try:
                self._make()
            except (sqlite3.Error, OSError) as error:
                # Switching to WAL needs the file for itself, and SQLite refuses at once instead of waiting.
                if not _is_busy(error) or anyio.current_time() > deadline:
                    raise self._explained(error) from error
                await anyio.sleep(random.uniform(0.001, 0.02))

    def _make(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            needed = ".".join(map(str, OLDEST_SQLITE))
            raise UsageError(
                f"This Python has SQLite {sqlite3.sqlite_version}; treadle-sqlite needs {needed} or newer."
            )
        if self._main is None:
            self._main = self._connect("rwc")
        connection = self._main
        state = state_of(connection, self.ref)  # before the file is changed: it may be another program's
        if connection.execute("pragma journal_mode").fetchone()[0] != "wal":
            mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
            if mode != "wal":
                raise UsageError(f"{self.path} lies where SQLite cannot share a file (WAL). Choose a local disk.")
        if state != "ready":
            _transact(connection, self._migrate)
        self._ready = True

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if state_of(connection, self.ref) != "ready":
            migrate(connection)

    async def write(self, work: Work[T], session_id: str = ANY) -> T:
        """Do `work` in a transaction of its own, or as part of the caller's open `transaction()`.

        Waits for another task's open transaction, and with durability "full" for the writer thread. A cancel leaves
        it done or not done.
        """
        self._check_usable()
        own = self._own()
        if own is not None:
            with self._explaining(session_id), _savepoint(own.connection):
                return work(own.connection)
        if self._normal and self._open is None:
            return self._apply(work, session_id)
        async with self._turn:
            return await self._on_thread(partial(self._apply, work, session_id))

    async def commit(self, work: Work[T], session_id: str) -> T:
        """As `write`, but with durability "normal" it never suspends, whatever else is going on.

        If another task's `transaction()` is open just then, that one is undone: its body suspended, which it may not.
        """
        if self._normal and self._open is not None and self._own() is None:
            self._break(self._open)
        return await self.write(work, session_id)

    def _apply(self, work: Work[T], session_id: str) -> T:
        with self._explaining(session_id):
            return _transact(self._writer(), work)

    async def _on_thread(self, call: Callable[[], T]) -> T:
        # With durability "full" a commit waits for the disk, which the event loop must not.
        if self._normal:
            return call()
        return await anyio.to_thread.run_sync(call, limiter=self._writer_thread)

    # --- transactions of other plugins --------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """A connection in a transaction: committed at the end, undone by whatever is raised.

        What the body does through this store is part of it. One inside another is a part of that.
        """
        await self.make()
        outer = self._own()
        if outer is not None:
            with _savepoint(outer.connection):
                yield outer.connection
            return
        async with self._turn:
            entered = _entered.get()
            opened = self._open = _Transaction(self, await self._on_thread(self._begun))
            _entered.set((*entered, opened))
            try:
                yield opened.connection
                await self._end(opened)
            except sqlite3.Error as error:
                if not opened.broken:
                    raise
                raise self._broken() from error
            finally:
                _entered.set(entered)
                self._open = None
                opened.connection.close()  # undoes what is not committed

    def _begun(self) -> sqlite3.Connection:
        # A connection of its own: the main one must stay free for appends, see `_break`.
        with self._explaining():
            connection = self._connect("rw")
            try:
                connection.execute("begin immediate")
            except BaseException:
                connection.close()
                raise
            return connection

    async def _end(self, opened: _Transaction) -> None:
        if opened.broken:
            raise self._broken()
        if not opened.connection.in_transaction:
            raise UsageError(
                "The body of transaction() ended the transaction itself (commit, rollback or executescript). "
                "Leave that to the end of the block."
            )
        with self._explaining():
            await self._on_thread(partial(opened.connection.execute, "commit"))

    def _own(self) -> _Transaction | None:
        """The caller's own open transaction of this file. Raises `UsageError` if it was broken."""
        for entered in _entered.get():
            if entered.database is self and entered.broken:
                raise self._broken()
            if entered is self._open:
                return entered
        return None

    def _break(self, opened: _Transaction) -> None:
        # Waiting is not possible (an append never suspends), nor is writing beside it: SQLite has one writer.
        # Closing its connection undoes it, and any later statement of its body fails instead of standing alone.
        opened.broken = True
        self._open = None
        opened.connection.close()

    def _broken(self) -> UsageError:
        return UsageError(
            f"A transaction() of {self.ref} was undone: another task's append came while its body was suspended. "
            f'Await nothing but this store inside it, or set durability="full", where appends wait.'
        )

    # --- news within this process ---------------------------------------------------------------------
    # `version` does not change by what its own connection writes, and a waiter should not wait for a poll.

    def news(self, key: int) -> anyio.Event:
        """Set when something is next written here about `key`."""
        return self._news.setdefault(key, anyio.Event())

    def tell(self, *keys: int) -> None:
        """Wake whoever waits for news of `keys`; without any, everybody."""
        for key in keys or tuple(self._news):
            event = self._news.pop(key, None)
            if event is not None:
                event.set()

    # --- connections and faults ---------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError(f"The store {self.ref} is closed. Open it again: stack.open_store(...)")
        if os.getpid() != self._process:
            # https://www.sqlite.org/howtocorrupt.html, section 2.6
            raise UsageError(f"The store {self.ref} was carried into another process by a fork. Open it anew there.")

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self.settings.busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("pragma foreign_keys = on")
            connection.execute(f"pragma synchronous = {self.settings.durability}")
            connection.execute("pragma journal_size_limit = 67108864")
        except BaseException:
            connection.close()
            raise
        return connection

    def _writer(self) -> sqlite3.Connection:
        if self._normal and self._main is not None:
            return self._main
        if self._full is None:
            self._full = self._connect("rw")
        return self._full

    @contextmanager
    def _explaining(self, session_id: str = ANY) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError, OverflowError, OSError) as error:
            raise self._explained(error, session_id) from error

    def _explained(self, error: Exception, session_id: str = ANY) -> TreadleError:
        """What a fault of SQLite means, whose it is, and what to do."""
        if isinstance(error, (UnicodeError, OverflowError, sqlite3.ProgrammingError)):
            return UsageError(f"Nothing was written to {self.ref}: a value does not fit its column ({error}).")
        if isinstance(error, OSError):
            return UsageError(f"{self.path} cannot be reached: {error.strerror or error}.")
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            waited = f"another process kept the file for itself for {self.settings.busy_seconds:g} seconds"
            return StoreFault(session_id, f"{waited} ({self.path}). Find it, or raise busy_seconds")
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT):
            return UnreadableLog(str(self.path), str(error), "Choose another file, or restore this one from a copy.")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return UsageError(f"{self.path} may not be written: {self._missing_right()}.")
        if code == sqlite3.SQLITE_CANTOPEN:
            return UsageError(f"{self.path} cannot be opened: {self._obstacle()}.")
        if code == sqlite3.SQLITE_FULL:
            return StoreFault(session_id, f"no room is left for {self.path}; nothing of this write was kept")
        if "decode to UTF-8" in str(error):
            return UnreadableLog(str(self.path), str(error), "Restore it from a copy.")
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return StoreFault(session_id, f"{self.path}: {error} ({name}); nothing of this write was kept")

    def _obstacle(self) -> str:
        folder = self.path.parent
        try:
            if not folder.is_dir():
                return f"there is no folder {folder}. Make it, or correct the path"
            if self.path.is_dir():
                return "it is a folder. Name a file in it"
        except OSError as error:
            return f"{error.strerror}"
        return self._missing_right()

    def _missing_right(self) -> str:
        # Also to read: SQLite keeps the -wal and -shm of an open file beside it (https://www.sqlite.org/wal.html).
        return f"this user needs the right to write to the file and to the folder {self.path.parent}, or a copy"

    async def close(self) -> None:
        """Close the connections, after an open transaction has ended. Safe to call twice."""
        if self._closed:
            return
        async with self._turn:
            self._closed = True
            for connection in (self._full, self._main):
                if connection is not None:
                    connection.close()
            self._main = self._full = None


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def _savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("savepoint part")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # not if a fault such as a full disk has ended all of it
            connection.execute("rollback to part")
            connection.execute("release part")
        raise
    connection.execute("release part")


def _transact(connection: sqlite3.Connection, work: Work[T]) -> T:
    connection.execute("begin immediate")
    try:
        result = work(connection)
        connection.execute("commit")
    except BaseException:
        # Some faults (disk full) have ended it already: https://www.sqlite.org/lang_transaction.html
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return result


__all__ = ["Column", "Database", "Work"]
