"""The tables and views, and how a file gets them. This module alone uses sqlite-utils, and only to migrate.

A session's rows are small because nothing stands in them twice: title and labels are read from `session/meta`
events, a fork's prefix from its parent, a session's text id from `sessions`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from treadle.plugin import UnreadableLog, UsageError

if TYPE_CHECKING:
    from sqlite_utils import Database

MIGRATION_SET = "treadle-sqlite"
OLDEST_SQLITE = (3, 37, 0)
"""STRICT tables: https://www.sqlite.org/stricttables.html"""


def _date(column: str, seconds: str) -> str:
    # Computed when looked at: a person reads the date, the row keeps the exact number in 8 bytes instead of 28.
    return f"{column} text generated always as (strftime('%Y-%m-%dT%H:%M:%fZ', {seconds}, 'unixepoch')) virtual"


_TABLES = (
    f"""
create table sessions (
  key integer primary key autoincrement,  -- never used again, so that a stale writer matches no later session
  id text not null unique,
  parent_key integer references sessions(key),  -- a fork begins with its parent's events 1 to parent_seq
  parent_seq integer not null default 0,
  head_seq integer not null default 0,    -- the last seq; 0 = nothing written yet
  created real not null,                  -- seconds since 1970
  updated real not null,
  archived integer not null default 0 check (archived in (0, 1)),
  lease_token integer not null default 0, -- one more for each writer; an append must know it
  lease_ends real,
  lease_holder text,                      -- JSON: the process that writes; null = nobody
  {_date("created_at", "created")},
  {_date("updated_at", "updated")},
  {_date("lease_until", "lease_ends")}
) strict""",
    "create index sessions_forks on sessions(parent_key) where parent_key is not null",
    f"""
create table events (
  session_key integer not null references sessions(key),
  seq integer not null,
  time real not null,                     -- seconds since 1970; information, never order
  type text not null,
  turn integer,
  step integer,
  owner text,                             -- the plugin whose event it is; null = treadle's own
  required integer not null check (required in (0, 1)),
  data text not null,                     -- JSON, ASCII
  {_date("at", "time")},
  primary key (session_key, seq)
) strict""",
    "create index events_meta on events(session_key, seq) where type = 'session/meta'",
    """
create trigger events_never_change before update on events
begin select raise(abort, 'events are append-only'); end""",
    f"""
create table posts (                      -- left for the session's writer, until it has made events of them
  key integer primary key autoincrement,
  session_key integer not null references sessions(key) on delete cascade,
  id text not null,
  time real not null,
  kind text not null check (kind in ('message', 'decision', 'cancel')),
  data text not null,
  {_date("at", "time")},
  unique (session_key, id)
) strict""",
)

# What a fork inherits is shown once, under the session that wrote it.
_VIEWS = (
    """
create view turns as
select s.id as session_id, e.turn, min(e.at) as started_at,
  max(case when e.type = 'turn/end' then e.at end) as ended_at,
  max(case when e.type = 'turn/end' then json_extract(e.data, '$.reason') end) as reason,
  max(case when e.type = 'turn/end' then json_extract(e.data, '$.detail') end) as detail,
  count(case when e.type = 'step/start' then 1 end) as steps,
  sum(case when e.type = 'turn/end' then ifnull(json_extract(e.data, '$.usage.input'), 0)
    + ifnull(json_extract(e.data, '$.usage.cache_read'), 0)
    + ifnull(json_extract(e.data, '$.usage.cache_write'), 0) end) as input_tokens,
  sum(case when e.type = 'turn/end' then ifnull(json_extract(e.data, '$.usage.output'), 0)
    + ifnull(json_extract(e.data, '$.usage.reasoning'), 0) end) as output_tokens
from events e join sessions s on s.key = e.session_key
where e.turn is not null group by e.session_key, e.turn""",
    """
create view steps as
select s.id as session_id, e.turn, e.step, min(e.at) as started_at,
  max(case when e.type = 'step/end' then e.at end) as ended_at,
  max(case when e.type = 'step/start' then json_extract(e.data, '$.agent') end) as agent,
  max(case when e.type = 'step/end' then json_extract(e.data, '$.outcome') end) as outcome,
  count(case when e.type = 'model/request' then 1 end) as requests,
  count(case when e.type = 'tool/call' then 1 end) as tool_calls,
  max(case when e.type = 'assistant/message' then json_extract(e.data, '$.finish') end) as finish
from events e join sessions s on s.key = e.session_key
where e.step is not null group by e.session_key, e.turn, e.step""",
    """
create view messages as
select s.id as session_id, e.seq, e.at, e.turn, e.step,
  case e.type when 'tool/result' then 'tool' else json_extract(e.data, '$.message.role') end as role,
  (select group_concat(json_extract(part.value, '$.text'), '')
    from json_each(e.data, case e.type when 'tool/result' then '$.parts' else '$.message.parts' end) part
    where json_extract(part.value, '$.kind') = 'text') as text,
  (select group_concat(json_extract(part.value, '$.name') || ' ' || json_extract(part.value, '$.arguments'), char(10))
    from json_each(e.data, '$.message.parts') part
    where json_extract(part.value, '$.kind') = 'call') as calls,
  json_extract(e.data, '$.status') as status
from events e join sessions s on s.key = e.session_key
where e.type in ('user/message', 'assistant/message', 'tool/result')""",
)

MIGRATIONS: Mapping[str, tuple[str, ...]] = {"0001_sessions": _TABLES + _VIEWS}
"""Name and statements, in order. A released one never changes; a new release adds its own."""

SEARCH_SET = "treadle-sqlite-search"
"""A set of its own: its tables are made by the first search, so that a file nobody searches pays nothing."""

SEARCH_MIGRATIONS: Mapping[str, tuple[str, ...]] = {
    "0001_texts": (
        """
create table search_progress (            -- which events the index has
  session_key integer primary key references sessions(key) on delete cascade,
  seq integer not null
) strict""",
        """
create table search_texts (
  id integer primary key,
  session_key integer not null references sessions(key) on delete cascade,
  seq integer not null,
  time real not null,
  role text not null,
  text text not null
) strict""",
        "create index search_texts_sessions on search_texts(session_key)",
        # The form of sqlite-utils' enable_fts, so that its own search and Datasette's find the index. That function
        # itself commits (executescript), which would end the migration's transaction halfway.
        """
create virtual table search_texts_fts using fts5 (
  "text", tokenize='unicode61 remove_diacritics 2', content="search_texts", content_rowid="id")""",
        """
create trigger search_texts_ai after insert on search_texts begin
  insert into search_texts_fts (rowid, text) values (new.id, new.text);
end""",
        """
create trigger search_texts_ad after delete on search_texts begin
  insert into search_texts_fts (search_texts_fts, rowid, text) values ('delete', old.id, old.text);
end""",
    )
}
"""As `MIGRATIONS`."""

State = Literal["absent", "older", "ready"]


def state_of(connection: sqlite3.Connection, file: str) -> State:
    """Whether the file has our tables. Plain SQL, so that opening a ready file imports nothing.

    Raises `UnreadableLog` if a newer release made them, `UsageError` if another program's stand in their place.
    """
    tables = {name for (name,) in connection.execute("select name from sqlite_master where type in ('table', 'view')")}
    applied: set[str] = set()
    if "_sqlite_migrations" in tables:
        ours = "select name from _sqlite_migrations where migration_set = ?"
        applied = {name for (name,) in connection.execute(ours, (MIGRATION_SET,))}
    if newer := sorted(applied - set(MIGRATIONS)):
        reason = f"a newer treadle-sqlite made it (this one does not know {', '.join(newer)})"
        raise UnreadableLog(file, reason, "Install that release: pip install --upgrade treadle-sqlite")
    if applied:
        return "ready" if applied == set(MIGRATIONS) else "older"
    if foreign := sorted(tables & {"sessions", "events", "posts", "turns", "steps", "messages"}):
        raise UsageError(f"{file} holds another program's {', '.join(foreign)}. Choose another file for the sessions.")
    return "absent"


def migrate(connection: sqlite3.Connection) -> None:
    """Make or renew the tables, inside the transaction that the caller began: all of it or nothing."""
    _apply(MIGRATION_SET, MIGRATIONS, connection)


def migrate_search(connection: sqlite3.Connection) -> None:
    """As `migrate`, the search index. Raises `sqlite3.OperationalError` where SQLite was built without FTS5."""
    _apply(SEARCH_SET, SEARCH_MIGRATIONS, connection)


def _apply(name: str, steps: Mapping[str, tuple[str, ...]], connection: sqlite3.Connection) -> None:
    from sqlite_utils import Database, Migrations

    migrations = Migrations(name)
    for step, statements in steps.items():
        migrations(name=step)(_executing(statements))
    # Without the plugins that other packages installed into sqlite-utils: they are none of our file's business.
    migrations.apply(Database(connection, execute_plugins=False, recursive_triggers=False))


def _executing(statements: tuple[str, ...]) -> Callable[[Database], None]:
    def run(database: Database) -> None:
        for statement in statements:
            database.conn.execute(statement)

    return run


__all__ = ["MIGRATIONS", "MIGRATION_SET", "OLDEST_SQLITE", "SEARCH_SET", "migrate", "migrate_search", "state_of"]
