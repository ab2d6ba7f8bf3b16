"""The index over what was said: which events it has, and what it finds. Never written by an append."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from treadle.plugin import Found, UnreadableLog, Unsupported, said_in

from .database import Database
from .rows import event_from_row
from .schema import SEARCH_SET, migrate_search

STRETCH = 400
"""How many events one transaction takes up: a few milliseconds, in which another process's append waits."""

_NEW = """
select e.session_key, s.id, e.seq, e.time, e.type, e.turn, e.step, e.owner, e.required, e.data
from sessions s left join search_progress p on p.session_key = s.key
join events e on e.session_key = s.key and e.seq > ifnull(p.seq, 0)
where s.head_seq > ifnull(p.seq, s.parent_seq) order by e.session_key, e.seq limit ?"""

_PROGRESS = """
insert into search_progress (session_key, seq) values (?, ?)
on conflict (session_key) do update set seq = excluded.seq"""

_FIND = """
select s.id, t.seq, t.time, t.role, t.text
from search_texts_fts f join search_texts t on t.id = f.rowid join sessions s on s.key = t.session_key
where search_texts_fts match ? order by t.time desc, s.id desc, t.seq desc limit ?"""


def take_up(connection: sqlite3.Connection) -> bool:
    """Index the next stretch of events that it lacks; True if that was all. Makes the index if need be."""
    _make(connection)
    rows = connection.execute(_NEW, (STRETCH,)).fetchall()
    progress: dict[int, int] = {}
    for key, session_id, *row in rows:
        progress[key] = row[0]
        try:
            said = said_in(event_from_row(tuple(row), f'session "{session_id}"'))
        except UnreadableLog:
            continue  # reading the session says so; the others are searched all the same
        if said is not None:
            insert = "insert into search_texts (session_key, seq, time, role, text) values (?, ?, ?, ?, ?)"
            connection.execute(insert, (key, row[0], row[1], said[0], _storable(said[1])))
    connection.executemany(_PROGRESS, progress.items())
    return len(rows) < STRETCH


def _make(connection: sqlite3.Connection) -> None:
    query = "select count(*) from _sqlite_migrations where migration_set = ?"
    if connection.execute(query, (SEARCH_SET,)).fetchone()[0]:
        return
    try:
        migrate_search(connection)
    except sqlite3.OperationalError as error:
        if "fts5" not in str(error):
            raise
        raise Unsupported("This Python's SQLite", "full-text search (FTS5)") from error


def _storable(text: str) -> str:
    # A column of text holds no lone surrogates; the event itself has them escaped.
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def find(database: Database, words: Sequence[str], limit: int | None) -> Sequence[Found]:
    """What the index has with all the words, each the beginning of one of a message's."""
    question = " ".join(f'"{word}" *' for word in words)
    rows = database.read(_FIND, (question, -1 if limit is None else limit))
    return [
        Found(session=str(session), seq=int(seq or 0), time=float(time or 0), role=str(role), text=str(text))
        for session, seq, time, role, text in rows
    ]


__all__ = ["find", "take_up"]
