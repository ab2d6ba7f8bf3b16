"""`treadle sessions`, the commands that search, branch, name, move and remove. Each acts on the store that is named."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO
from urllib.parse import unquote

import click

from treadle import Stack
from treadle.grammar import State
from treadle.plugin import (
    ContextEdit,
    Found,
    Json,
    SessionFilter,
    SessionInfo,
    SessionMeta,
    Store,
    TreadleError,
    UsageError,
    export_sessions,
    import_sessions,
    message_to_plain,
    messages_of,
    search_sessions,
    words_in,
)
from treadle.session import Session, open_session
from treadle.stack import VERSION

from .composition import Composed, make_folder
from .ink import one_line, shown
from .screen import Screen
from .sessions import check_store, print_table
from .transcript import when

_AROUND = 40
"""How many characters a search shows before the first word it found."""


def place_of(composed: Composed, name: str) -> tuple[str, str]:
    """The store and the session that `NAME` or `REF#NAME` means."""
    if "#" in name:
        store, _, quoted = name.rpartition("#")
        return store, unquote(quoted)
    check_store(composed)
    return composed.store, name


@asynccontextmanager
async def writing(stack: Stack, store: Store, session_id: str) -> AsyncIterator[Session]:
    """A session to add to, without a driver: what waits in its inbox must not begin a turn here."""
    reader = await store.open(session_id, write=False)  # raises NoSuchSession: a typing error makes no session
    await reader.close()
    log = await store.open(session_id, write=True)
    try:
        yield await open_session(
            log,
            session=session_id,
            kernel=VERSION,
            plugins=stack.manifest,
            store_seconds=30.0,
            suspends=store.capabilities.suspends,
        )
    finally:
        await log.close()


# --- looking ------------------------------------------------------------------------------------------------------


async def search(composed: Composed, screen: Screen, question: str, *, limit: int | None) -> int:
    """Print messages with all the words, newest first."""
    check_store(composed)

    def unreadable(session_id: str, error: TreadleError) -> None:
        screen.tell(screen.ink.bad(f"{session_id}: {error}"))

    async with composed.stack as stack:
        store = stack.open_store(composed.store)
        found = await search_sessions(store, question, limit=limit, report=unreadable)
    rows = [_found(each) for each in found]
    if screen.form == "json":
        screen.document(rows)
    elif screen.form == "jsonl":
        for row in rows:
            screen.line(row)
    elif not found:
        screen.tell(f"Nothing in {composed.store} has these words.")
    else:
        table = [(each.session, str(each.seq), when(each.time), each.role, _excerpt(each, question)) for each in found]
        print_table(("session", "event", "time", "who", "words"), table, screen)
    return 0


def _found(each: Found) -> dict[str, Json]:
    return {"session": each.session, "seq": each.seq, "time": each.time, "role": each.role, "text": each.text}


def _excerpt(found: Found, question: str) -> str:
    """The text from a little before the first word that was looked for."""
    first = words_in(question)[0]
    at = max(0, found.text.lower().find(first))
    start = max(0, at - _AROUND)
    return one_line(("…" if start else "") + found.text[start:], 100)


async def tree(composed: Composed, screen: Screen, name: str | None) -> int:
    """Print which session was forked from which, all or those that descend from one."""
    store, root = (composed.store, None) if name is None else place_of(composed, name)
    check_store(composed)
    async with composed.stack as stack:
        sessions = stack.sessions(store)
        infos = [*await sessions.list(), *await sessions.list(SessionFilter(archived=True))]
    known = {info.id: info for info in infos}
    if root is not None and root not in known:
        raise UsageError(f'There is no session "{root}" in {store}.')
    roots = [known[root]] if root is not None else [info for info in infos if info.parent not in known]
    if screen.form == "json":
        screen.document([_branch(info, infos) for info in roots])
        return 0
    for info in roots:
        for line in _lines(info, infos, "", ""):
            screen.out.write(shown(line) + "\n")
    return 0


def _branch(info: SessionInfo, infos: Sequence[SessionInfo]) -> Json:
    forks = [_branch(each, infos) for each in infos if each.parent == info.id]
    return {"id": info.id, "title": info.title, "events": info.head_seq, "at": info.parent_seq, "forks": forks}


def _lines(info: SessionInfo, infos: Sequence[SessionInfo], before: str, below: str) -> Iterator[str]:
    at = f" at event {info.parent_seq}" if info.parent else ""
    marks = f"{at}, {info.head_seq} events{', archived' if info.archived else ''}"
    yield f"{before}{info.id}{f'  {info.title}' if info.title else ''}  ({marks.removeprefix(', ').strip()})"
    forks = [each for each in infos if each.parent == info.id]
    for number, each in enumerate(forks, 1):
        last = number == len(forks)
        yield from _lines(each, infos, f"{below}{'└─ ' if last else '├─ '}", f"{below}{'   ' if last else '│  '}")


# --- branching and naming -----------------------------------------------------------------------------------------


async def fork(composed: Composed, screen: Screen, name: str, new: str | None, *, at_seq: int | None) -> int:
    """Make a session that shares the events of another up to a seq; print its name."""
    store, session_id = place_of(composed, name)
    async with composed.stack as stack:
        made = await stack.sessions(store).fork(session_id, at_seq, name=new)
    screen.out.write(made + "\n")
    return 0


async def rewind(composed: Composed, screen: Screen, name: str, *, turns: int) -> int:
    """Hide the last turns from the model; the log keeps them."""
    store_ref, session_id = place_of(composed, name)
    async with composed.stack as stack:
        store = stack.open_store(store_ref)
        async with writing(stack, store, session_id) as session:
            events = {event.seq: event.turn for event in await session.log.read()}
            edit, kept = _rewound(session.state, events, turns)
            if reason := session.state.check_edit(edit):
                raise UsageError(f'Session "{session_id}" cannot be rewound by {turns}: {reason}.')
            await session.append(edit)
            await session.sync()
    said = f"It goes on behind turn {kept}." if kept else "It begins anew."
    screen.progress(f'The model no longer sees the last {turns} turn(s) of "{session_id}". {said}')
    return 0


def _rewound(state: State, turn_of: dict[int, int | None], turns: int) -> tuple[ContextEdit, int]:
    """The edit that hides the last turns with anything to see, and the last turn that stays."""
    items = [(item.seq, turn_of.get(item.seq) or 0) for item in state.view.items]
    seen = sorted({turn for _, turn in items if turn})
    if turns > len(seen):
        raise UsageError(f'Session "{state.session}" has {len(seen)} turns that the model sees; {turns} is too many.')
    from_turn = seen[-turns]
    first = next(seq for seq, turn in items if turn >= from_turn)
    kept = [turn for turn in seen if turn < from_turn]
    return ContextEdit(first=first, last=items[-1][0], put=None, plugin="cli"), kept[-1] if kept else 0


async def label(
    composed: Composed, screen: Screen, name: str, labels: Sequence[str], *, remove: Sequence[str], title: str | None
) -> int:
    """Add and remove labels, set the title; without any of it print them."""
    store_ref, session_id = place_of(composed, name)
    async with composed.stack as stack:
        store = stack.open_store(store_ref)
        async with writing(stack, store, session_id) as session:
            had = session.state.meta.labels or ()
            if missing := [each for each in remove if each not in had]:
                raise UsageError(f'Session "{session_id}" has no label {", ".join(missing)}.')
            now = tuple(dict.fromkeys([*(each for each in had if each not in remove), *labels]))
            if now != had or title is not None:
                await session.append(SessionMeta(title=title, labels=now if now != had else None))
                await session.sync()
    for each in now:
        screen.out.write(each + "\n")
    return 0


# --- putting away, moving, removing -----------------------------------------------------------------------------------


async def archive(composed: Composed, names: Sequence[str], *, archived: bool) -> int:
    """Put sessions away, or take them back."""
    async with composed.stack as stack:
        for name in names:
            store, session_id = place_of(composed, name)
            await stack.sessions(store).archive(session_id, archived)
    return 0


async def export(
    composed: Composed, screen: Screen, names: Sequence[str], *, output: str | None, whole: bool, messages: bool
) -> int:
    """Write sessions as lines, to a file or stdout. Without names it is all of the store."""
    check_store(composed)
    places = [place_of(composed, name) for name in names]
    refs = {store for store, _ in places} or {composed.store}
    if len(refs) > 1:
        raise UsageError(f"These sessions are in several stores: {', '.join(sorted(refs))}. Export them one by one.")
    async with composed.stack as stack:
        store = stack.open_store(refs.pop())
        ids = [session_id for _, session_id in places] or None
        lines = _messages(store, ids) if messages else export_sessions(store, ids, whole=whole)
        if output is None or output == "-":
            await _write(lines, screen.out)
        else:
            await _write_file(lines, Path(output))
    return 0


async def _write(lines: AsyncIterator[str], file: TextIO) -> None:
    async for line in lines:
        file.write(line + "\n")


async def _write_file(lines: AsyncIterator[str], path: Path) -> None:
    """A file that is there is only replaced by one that was written to its end."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="ascii", newline="\n") as file:
            await _write(lines, file)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


async def _messages(store: Store, ids: Sequence[str] | None) -> AsyncIterator[str]:
    import json

    for session_id in ids if ids is not None else [info.id for info in await store.list()]:
        log = await store.open(session_id, write=False)
        events = await log.read()
        await log.close()
        for message in messages_of(events):
            yield json.dumps({"session": session_id, **message_to_plain(message)}, separators=(",", ":"))


async def import_(composed: Composed, screen: Screen, file: str, *, name: str | None) -> int:
    """Read sessions from a file or stdin into the store; print their names."""
    if not composed.kept:
        check_store(composed)
    make_folder(composed)
    async with composed.stack as stack:
        with click.open_file(file, "r", encoding="utf-8") as lines:
            made = await import_sessions(stack.open_store(composed.store), lines, name=name)
    for each in made:
        screen.out.write(each + "\n")
    return 0


async def delete(composed: Composed, screen: Screen, names: Sequence[str], *, with_forks: bool, sure: bool) -> int:
    """Delete sessions for good. Asks first at a terminal; elsewhere `--yes` must say so."""
    places = [place_of(composed, name) for name in names]
    if not sure:
        if not sys.stdin.isatty():
            raise UsageError("Nothing was deleted: nobody can be asked here. Say --yes.")
        forks = " and all their forks" if with_forks else ""
        if not click.confirm(f"Delete {', '.join(names)}{forks} for good?", err=True):
            return 1
    async with composed.stack as stack:
        for store, session_id in places:
            await stack.sessions(store).delete(session_id, with_forks=with_forks)
    return 0


__all__ = ["archive", "delete", "export", "fork", "import_", "label", "rewind", "search", "tree"]
