"""Who may write a session: one process at a time, told apart by a token that only grows.

A lease ends when its log closes, when its process is found dead, or when it was not renewed in time. An append names
its token in its own transaction, so a writer that lost its lease without knowing can write nothing more.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable

from treadle.plugin import SessionBusy

from .holder import Holder, this_process


def ends_in(lease_seconds: float) -> float:
    """When a lease taken or renewed now runs out. All its processes share one host (WAL needs that), so one clock."""
    return time.time() + lease_seconds


def take(connection: sqlite3.Connection, session_id: str, key: int, lease_seconds: float) -> int:
    """The token of a new lease. Raises `SessionBusy`."""
    query = "select lease_token, lease_ends, lease_holder from sessions where key = ?"
    token, ends, holder = connection.execute(query, (key,)).fetchone()
    check_free(session_id, ends, holder)
    update = "update sessions set lease_token = ?, lease_ends = ?, lease_holder = ? where key = ?"
    connection.execute(update, (token + 1, ends_in(lease_seconds), this_process().to_text(), key))
    return int(token) + 1


def check_free(session_id: str, ends: float | None, holder: str | None) -> None:
    """Raise `SessionBusy` if somebody holds a lease that has not run out and is not known to be dead."""
    if holder is None or (ends or 0.0) <= time.time():
        return
    try:
        process = Holder.from_text(holder)
    except (ValueError, TypeError):  # a later release wrote it
        raise SessionBusy(session_id, holder) from None
    if not process.is_dead():
        raise SessionBusy(session_id, str(process))


def renew(connection: sqlite3.Connection, leases: Iterable[tuple[int, int]], lease_seconds: float) -> None:
    """Put off the end of leases, each a session's key and a token. One that was lost stays lost."""
    ends = ends_in(lease_seconds)
    query = "update sessions set lease_ends = ? where key = ? and lease_token = ?"
    connection.executemany(query, [(ends, key, token) for key, token in leases])


def release(connection: sqlite3.Connection, key: int, token: int) -> None:
    """Give a lease back. A session to which nothing was ever written or posted goes with it."""
    free = "update sessions set lease_ends = null, lease_holder = null where key = ? and lease_token = ?"
    if connection.execute(free, (key, token)).rowcount:
        unused = "delete from sessions where key = ? and head_seq = 0 and key not in (select session_key from posts)"
        connection.execute(unused, (key,))


__all__ = ["check_free", "ends_in", "release", "renew", "take"]
