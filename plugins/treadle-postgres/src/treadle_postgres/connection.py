"""psycopg's async connection on whatever event loop anyio runs: its protocol is generators that say what to wait for.

The one thing replaced is the waiting (`AsyncConnection.wait`), which psycopg does with asyncio alone.
"""

from __future__ import annotations

import select
from collections.abc import Generator
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from psycopg import AsyncConnection, OperationalError, pq
from psycopg.rows import TupleRow

from treadle.plugin import Json

T = TypeVar("T")
Row = tuple[Json, ...]
READ, WRITE = 1, 2
"""What a generator waits for, and what it is told; psycopg's `Wait` and `Ready` are these numbers."""


class Connection(AsyncConnection[TupleRow]):
    """A connection of one task at a time, in autocommit. A cancelled query ends it: nobody knows where it stands."""

    def __init__(self, pgconn: pq.abc.PGconn, *args: Any) -> None:
        super().__init__(pgconn, *args)
        self.lock = anyio.Lock()  # type: ignore[assignment]
        self._autocommit = True

    @classmethod
    async def made(cls, conninfo: str) -> Connection:
        """Connect. libpq itself tries all hosts and keeps `connect_timeout`; it blocks, so on a thread.

        Raises `psycopg.OperationalError`. A cancel waits for the attempt's end.
        """
        pgconn = await anyio.to_thread.run_sync(pq.PGconn.connect, conninfo.encode())
        if pgconn.status != pq.ConnStatus.OK:
            said = pgconn.error_message.decode(errors="replace").strip()
            pgconn.finish()
            raise OperationalError(said)
        pgconn.nonblocking = 1
        return cls(pgconn)

    async def wait(self, gen: Generator[int, int, T], interval: float = 0.0, timeout: float | None = None) -> T:
        """Run a generator of psycopg to its end. On cancel the connection is closed."""
        try:
            with anyio.fail_after(timeout):
                wanted = next(gen)
                while True:
                    wanted = gen.send(await _ready(self.pgconn.socket, wanted))
        except StopIteration as done:
            value: T = done.value
            return value
        except OSError as error:
            raise OperationalError(f"the connection was closed ({error})") from error
        except BaseException as error:
            if not isinstance(error, Exception):
                self.pgconn.finish()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether the next query may use it: not closed, and outside a transaction."""
        if self.pgconn.status != pq.ConnStatus.OK or self.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            return False
        try:
            # Readable although nothing was asked: the server said something, which may be goodbye.
            if _now(self.pgconn.socket, READ):
                self.pgconn.consume_input()
        except (OSError, OperationalError):
            return False
        return self.pgconn.status == pq.ConnStatus.OK

    def end(self) -> None:
        """Close it, at once."""
        if not self.closed:
            anyio.notify_closing(self.pgconn.socket)
        self.pgconn.finish()


def _now(socket: int, wanted: int) -> int:
    poll = select.poll()
    poll.register(socket, (select.POLLIN if wanted & READ else 0) | (select.POLLOUT if wanted & WRITE else 0))
    ready = 0
    for _, seen in poll.poll(0):
        ready |= READ if seen & ~select.POLLOUT else 0
        ready |= WRITE if seen & select.POLLOUT else 0
    return ready & wanted


async def _ready(socket: int, wanted: int) -> int:
    """What the socket is ready for. One that is to be written nearly always is: asked first, it costs no wait."""
    if wanted & WRITE and (ready := _now(socket, wanted)):
        return ready
    if wanted == READ:
        await anyio.wait_readable(socket)
        return READ
    if wanted == WRITE:
        await anyio.wait_writable(socket)
        return WRITE
    async with anyio.create_task_group() as group:

        async def either(wait: Any) -> None:
            await wait(socket)
            group.cancel_scope.cancel()

        group.start_soon(either, anyio.wait_readable)
        group.start_soon(either, anyio.wait_writable)
    return _now(socket, wanted) or READ


__all__ = ["Connection", "Row"]
