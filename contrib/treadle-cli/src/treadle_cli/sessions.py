"""`treadle sessions`: what is in a store. Reads one store, the one that the options name, and writes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from treadle import Stack
from treadle.plugin import Event, Json, SessionFilter, TreadleError, UsageError

from .composition import Composed, last_session
from .ink import Ink, one_line, wants_colour
from .places import file_of
from .screen import Form, Screen
from .transcript import Digest, digest, transcript, when


def check_store(composed: Composed) -> None:
    """Raise `UsageError` if there is no store, or no file where the options say there is one."""
    if not composed.kept:
        raise UsageError("There is no store to look into. Install treadle-sqlite, or name one with --store.")
    path = file_of(composed.store)
    if composed.named and path is not None and not path.exists():
        raise UsageError(f"There is no file {path}. Correct --db or --store.")


async def list_sessions(composed: Composed, screen: Screen, *, limit: int | None, archived: bool) -> int:
    """List a store's sessions, the last used first."""
    check_store(composed)
    async with composed.stack as stack:
        infos = await stack.sessions(composed.store).list(SessionFilter(limit=limit, archived=archived))
        digests = [digest(info, await _readable(stack, composed.store, info.id, screen)) for info in infos]
    if screen.form == "json":
        screen.document([plain(each) for each in digests])
    elif screen.form == "jsonl":
        for each in digests:
            screen.line(plain(each))
    elif not digests:
        screen.tell(f"No sessions in {composed.store} yet.")
    else:
        _print(digests, screen)
    return 0


async def _readable(stack: Stack, store: str, session_id: str, screen: Screen) -> Sequence[Event]:
    """A session's events; of one that cannot be read none, and why is said."""
    try:
        return await stack.sessions(store).read(session_id)
    except TreadleError as error:
        screen.tell(screen.ink.bad(f"{session_id}: {error}"))
        return ()


def plain(each: Digest) -> dict[str, Json]:
    """One row as plain data. Times are seconds since 1970."""
    info = each.info
    return {
        "id": info.id,
        "title": info.title,
        "words": each.words,
        "turns": each.turns,
        "events": info.head_seq,
        "created": info.created,
        "updated": info.updated,
        "labels": list(info.labels),
        "metadata": dict(info.metadata),
        "parent": info.parent,
        "archived": info.archived,
    }


def _print(digests: Sequence[Digest], screen: Screen) -> None:
    rows = [
        (each.info.id, str(each.turns), when(each.info.updated), one_line(each.info.title or each.words, 60))
        for each in digests
    ]
    print_table(("session", "turns", "updated", "about"), rows, screen)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen) -> None:
    """A table on a terminal; elsewhere one line a row, fields between tabs, no headings."""
    if not screen.out.isatty():
        for row in rows:
            screen.out.write("\t".join(row) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=at == 0, style="cyan" if at == 0 else None)
    for row in rows:
        table.add_row(*[_verbatim(cell) for cell in row])
    Console(file=screen.out, highlight=False, no_color=not wants_colour(screen.out)).print(table)


def _verbatim(cell: str) -> str:
    from rich.markup import escape

    return escape(cell)


async def show_session(composed: Composed, screen: Screen, name: str | None) -> int:
    """Print one session; without a name the last one. Raises `NoSuchSession`."""
    if name is None or "#" not in name:
        check_store(composed)
        store, session_id = composed.store, name
    else:
        from urllib.parse import unquote

        store, _, quoted = name.rpartition("#")
        session_id = unquote(quoted)
    async with composed.stack as stack:
        session_id = session_id or await last_session(composed)
        sessions = stack.sessions(store)
        events = await sessions.read(session_id)
    if screen.form == "text":
        ink = Ink(wants_colour(sys.stdout))
        print_lines([ink.bold(f"session {session_id}"), *transcript(events, ink)], screen)
    else:
        write_events(session_id, store, events, screen)
    return 0


def print_lines(lines: Sequence[str], screen: Screen) -> None:
    screen.out.write("\n".join(lines) + "\n")


def write_events(session_id: str, store: str, events: Sequence[Event], screen: Screen) -> None:
    """The log as it is: one document, or one event a line."""
    from treadle.codec import event_to_plain

    if screen.form == "json":
        made = [event_to_plain(event) for event in events]
        screen.document({"session": session_id, "store": store, "events": made})
        return
    for event in events:
        screen.line(event_to_plain(event))


__all__ = ["Form", "list_sessions", "print_table", "show_session"]
