"""Sessions out of one store and into another, as lines of JSON. Knows no files: it takes and gives lines.

    {"treadle":1,"session":"user-42","events":9,"archived":false}
    {"seq":1,"time":...,"type":"session/open","data":{...}}
    ...

A session is a line about it and then its events, in the codec's form, so that nothing of the log is lost between any
two stores. A fork names its parent and has only its own events, if its parent stands before it; else it has all.
What is not part of the log stays behind: leases, posts that wait for a writer, the day the store first saw the session.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import attrs
from anyio import CancelScope

from .codec import converter, event_from_plain, event_to_plain
from .errors import NoSuchSession, UnreadableLog, UsageError
from .events import AssistantMessage, Event, ToolResult, UserMessage
from .grammar import fold, result_message
from .messages import Call, Json, Message
from .store import SessionFilter, SessionInfo, Store

FORMAT = 1


@attrs.frozen(kw_only=True)
class _Head:
    """The line about a session."""

    session: str
    events: int
    archived: bool = False
    parent: str = ""
    parent_seq: int = 0


async def export_sessions(
    store: Store, session_ids: Sequence[str] | None = None, *, whole: bool = False
) -> AsyncIterator[str]:
    """The lines of sessions, None for all of the store, archived ones too; parents before their forks.

    `whole` writes each fork with its inherited events, so that it stands alone. Raises `NoSuchSession`, and
    `UnreadableLog` at a session that is damaged: leave it out by naming the others.
    """
    infos = await _by_id(store)
    for missing in [each for each in session_ids or () if each not in infos]:
        raise NoSuchSession(missing, store.ref)
    wanted = [*dict.fromkeys(infos if session_ids is None else session_ids)]
    done: set[str] = set()
    for info in _parents_first([infos[each] for each in wanted]):
        apart = info.parent in done and not whole
        after = info.parent_seq if apart else 0
        log = await store.open(info.id, write=False)
        try:
            events = await log.read(after)
        finally:
            await log.close()
        head = _Head(
            session=info.id,
            events=len(events),
            archived=info.archived,
            parent=info.parent if apart else "",
            parent_seq=after,
        )
        yield _text({"treadle": FORMAT, **attrs.asdict(head)})
        for event in events:
            yield _text(event_to_plain(event))
        done.add(info.id)


async def _by_id(store: Store) -> dict[str, SessionInfo]:
    infos = [*await store.list(), *await store.list(SessionFilter(archived=True))]
    return {info.id: info for info in infos}


def _parents_first(infos: Sequence[SessionInfo]) -> Iterator[SessionInfo]:
    waiting = {info.id: info for info in infos}
    while waiting:
        ready = [info for info in waiting.values() if info.parent not in waiting]
        for info in ready:
            del waiting[info.id]
            yield info


def _text(plain: Json) -> str:
    # ASCII: NUL and lone surrogates survive every file and pipe.
    return json.dumps(plain, separators=(",", ":"), allow_nan=False)


async def import_sessions(store: Store, lines: Iterable[str], *, name: str | None = None) -> Sequence[str]:
    """Write exported sessions into a store; returns their ids. All of them or, by raising, none.

    `name` is what to call the one session of the lines. Raises `UsageError` if a session is there already or the lines
    hold more than one to name, `UnreadableLog` naming the line at what is no export, `UnlawfulEvent` at a log that
    no treadle wrote.
    """
    made: list[str] = []
    try:
        for head, events in _sessions(lines):
            if name is not None and made:
                raise UsageError(f'The lines hold several sessions; they cannot all be called "{name}".')
            await _write(store, attrs.evolve(head, session=name or head.session), events, made)
        if not made:
            raise UsageError("There is no session in these lines. Write them with: treadle sessions export")
        return made
    except BaseException:
        with CancelScope(shield=True):
            for session_id in reversed(made):
                await store.delete(session_id)
        raise


async def _write(store: Store, head: _Head, events: Sequence[Event], made: list[str]) -> None:
    before: Sequence[Event] = ()
    if await _is_there(store, head.session):
        raise UsageError(
            f'Session "{head.session}" is in {store.ref} already. Delete it, or import under another name.'
        )
    if head.parent:
        parent = await store.open(head.parent, write=False)
        before = (await parent.read())[: head.parent_seq]
        await parent.close()
    fold([*before, *events], head.session)  # refuses what no driver could go on from
    if head.parent:
        await store.fork(head.parent, head.parent_seq, head.session)
        made.append(head.session)
    log = await store.open(head.session, write=True)
    try:
        if events:
            await log.append(events, head.parent_seq)
            if not head.parent:
                made.append(head.session)
        await log.sync()
    finally:
        await log.close()
    if head.archived:
        await store.archive(head.session)


async def _is_there(store: Store, session_id: str) -> bool:
    try:
        log = await store.open(session_id, write=False)
    except NoSuchSession:
        return False
    try:
        return bool(await log.read())
    finally:
        await log.close()


def _sessions(lines: Iterable[str]) -> Iterator[tuple[_Head, Sequence[Event]]]:
    """The sessions of an export. Raises `UnreadableLog` naming the line."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    for number, line in numbered:
        head = _head(line, number)
        events: list[Event] = []
        for at, text in itertools.islice(numbered, head.events):
            where = f"line {at}, session {head.session}"
            events.append(event_from_plain(_parsed(text, where), where=where))
        if len(events) < head.events:
            reason = f'session "{head.session}" has {len(events)} of its {head.events} events'
            raise UnreadableLog("the export", reason, "It was cut off: export it again.")
        yield head, events


def _head(line: str, number: int) -> _Head:
    plain = _parsed(line, f"line {number}")
    try:
        if plain["treadle"] > FORMAT:
            reason = f"a newer treadle wrote it (format {plain['treadle']})"
            raise UnreadableLog(f"line {number}", reason, "Import it with that release.")
        return _Head(**{field.name: plain[field.name] for field in attrs.fields(_Head) if field.name in plain})
    except (KeyError, TypeError) as error:
        remedy = "Write exports with: treadle sessions export"
        raise UnreadableLog(f"line {number}", "it does not begin a session", remedy) from error


def _parsed(line: str, where: str) -> Json:
    try:
        return json.loads(line)
    except ValueError as error:
        raise UnreadableLog(where, f"it is not valid JSON ({error})", "Export it again.") from error


# --- messages alone -----------------------------------------------------------------------------------------------


def messages_of(events: Sequence[Event]) -> Sequence[Message]:
    """What was said, in order and whole: by people, models and tools. Edits and hidden stretches do not count.

    A call that waits has its placeholder; once it was decided, only what came of it.
    """
    calls: dict[str, Call] = {}
    decided = {e.data.call_id for e in events if isinstance(e.data, ToolResult) and e.data.status != "deferred"}
    messages: list[Message] = []
    for event in events:
        data = event.data
        if isinstance(data, UserMessage):
            messages.append(data.message)
        elif isinstance(data, AssistantMessage):
            calls.update((call.id, call) for call in data.message.calls)
            messages.append(data.message)
        elif isinstance(data, ToolResult) and (data.status != "deferred" or data.call_id not in decided):
            call = calls.get(data.call_id) or Call(id=data.call_id, name="", arguments="")
            messages.append(result_message(call, data.status, data.parts))
    return messages


def message_to_plain(message: Message) -> Json:
    """A message as one JSON object, in the codec's form: id, role, parts."""
    return converter().unstructure(message)


__all__ = ["export_sessions", "import_sessions", "message_to_plain", "messages_of"]
