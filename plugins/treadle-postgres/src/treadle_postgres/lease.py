"""Who may write a session: one process at a time, told apart by a token that only grows. All times are the database's.

A lease ends when its log closes, when it was not renewed in time, or when the holder's connection to the server ended:
each holder keeps one open for as long as it lives (the one that listens). An append names its token in its own
transaction, so a writer that lost its lease without knowing can write nothing more.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from treadle.plugin import SessionBusy

from .connection import Connection
from .database import Database

# A server process that this role may not look at shows no start: then it is taken for the holder's.
_FREE = """
(lease_holder is null or lease_ends <= clock_timestamp() or not exists (
  select 1 from pg_stat_activity a where a.pid = lease_backend
  and (a.backend_start is null or a.backend_start = lease_backend_start)))"""

_TAKE = f"""
update {{schema}}.sessions set lease_token = lease_token + 1,
  lease_ends = clock_timestamp() + make_interval(secs => %s), lease_holder = %s, lease_backend = %s,
  lease_backend_start = (select backend_start from pg_stat_activity where pid = %s)
where id = %s and {_FREE} returning key, lease_token"""

_RENEW = """
update {schema}.sessions s set lease_ends = clock_timestamp() + make_interval(secs => %s)
from unnest(%s::bigint[], %s::bigint[]) as mine(key, token) where s.key = mine.key and s.lease_token = mine.token"""

_RELEASE = """
update {schema}.sessions set lease_ends = null, lease_holder = null, lease_backend = null, lease_backend_start = null
where key = %s and lease_token = %s returning key"""

# A session to which nothing was ever written or posted goes with its lease.
_UNUSED = """
delete from {schema}.sessions s where key = %s and head_seq = 0
and not exists (select 1 from {schema}.posts p where p.session_key = s.key)"""


async def take(database: Database, connection: Connection, session_id: str, backend: int) -> tuple[int, int]:
    """Key and token of a new lease on a session that is there. Raises `SessionBusy`."""
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    values = (database.settings.lease_seconds, holder, backend, backend, session_id)
    taken = await database.rows(connection, _TAKE, values)
    if taken:
        return taken[0][0], taken[0][1]
    found = await database.rows(connection, "select lease_holder from {schema}.sessions where id = %s", (session_id,))
    other = found[0][0] if found and found[0][0] else "another process"
    raise SessionBusy(session_id, other + (" (this process)" if other == holder else ""))


async def check_free(database: Database, connection: Connection, keys: list[int]) -> None:
    """Raise `SessionBusy` if somebody holds a lease on one of the sessions."""
    query = f"select id, lease_holder from {{schema}}.sessions where key = any(%s) and not {_FREE}"
    for session_id, holder in await database.rows(connection, query, (keys,)):
        raise SessionBusy(session_id, holder)


async def renew(database: Database, connection: Connection, leases: Iterable[tuple[int, int]]) -> None:
    """Put off the end of leases, each a session's key and a token. One that was lost stays lost."""
    keys, tokens = zip(*leases, strict=True)
    await database.rows(connection, _RENEW, (database.settings.lease_seconds, list(keys), list(tokens)))


async def release(database: Database, connection: Connection, key: int, token: int) -> None:
    """Give a lease back."""
    if await database.rows(connection, _RELEASE, (key, token)):
        await database.rows(connection, _UNUSED, (key,))


__all__ = ["check_free", "release", "renew", "take"]
