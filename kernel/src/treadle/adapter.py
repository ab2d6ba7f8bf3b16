"""Sessions kept by anything that has four methods. Less guarantee than a `Store`, and it says so.

A `History` keeps lists of plain data under names: a dict, a table, somebody's web service. `AdaptedStore` makes a store
of it. What it cannot give, the store refuses by name: it has no forks, no posts, no tail and no archive. Nothing keeps
two processes from writing to one session at once; that is found, and the session refused, when it is next opened.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Protocol, TypeVar

import anyio

from .codec import event_from_plain, event_to_plain
from .errors import (
    Conflict,
    LeaseLost,
    NoSuchSession,
    SessionBusy,
    TreadleError,
    UnreadableLog,
    Unsupported,
    UsageError,
)
from .events import Event
from .messages import Json
from .store import ALL, Capabilities, Log, Post, Posted, SessionFilter, SessionInfo, described

T = TypeVar("T")


class History(Protocol):
    """Keeps lists of messages under names. Each method may be `async` or plain; a plain one must not block for long.

    A message is one JSON object, an event of the log; what was said stands in those of the types `user/message`,
    `assistant/message` and `tool/result`. Keep them all, in order, as they are.
    """

    def get_history(self, session_id: str) -> Sequence[Json] | Awaitable[Sequence[Json]]:
        """All messages of a session, oldest first; none if it is not known."""
        ...

    def append_messages(self, session_id: str, messages: Sequence[Json]) -> Awaitable[None] | None:
        """Add messages behind the others: all of them or, by raising, none. Return when they are as safe as they get.

        One that keeps a first part and raises leaves a session that can still be read: it is repaired as after a crash.
        """
        ...

    def clear(self, session_id: str) -> Awaitable[None] | None:
        """Forget a session."""
        ...

    def list_sessions(self) -> Sequence[str] | Awaitable[Sequence[str]]:
        """The names of all sessions that have messages."""
        ...


class AdaptedStore:
    """A store of what a `History` keeps. One writer a session in this process; none is kept off in another.

    `durable` says whether what `append_messages` was given survives the process when it returns.

        stack = Stack(plugins, store=AdaptedStore(mine, ref="mine:"))
    """

    def __init__(self, history: History, *, ref: str = "history:", durable: bool = True) -> None:
        self.history = history
        self._ref, self._durable = ref, durable
        self._writers: dict[str, _AdaptedLog] = {}

    @property
    def ref(self) -> str:
        return self._ref

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(durable=self._durable)

    async def open(self, session_id: str, write: bool) -> Log:
        if write and session_id in self._writers:
            raise SessionBusy(session_id, "this process")
        log = _AdaptedLog(self, session_id)
        if not write:
            if session_id not in self._writers and not await log.read():
                raise NoSuchSession(session_id, self._ref)
            return log
        self._writers[session_id] = log
        try:
            await log.find_head()
        except BaseException:
            self.free(log)
            raise
        return log

    def holds(self, log: _AdaptedLog) -> bool:
        """Whether a log is its session's writer."""
        return self._writers.get(log.session_id) is log

    def free(self, log: _AdaptedLog) -> None:
        """A writer is done. Another's session stays its own."""
        if self.holds(log):
            del self._writers[log.session_id]

    async def events(self, session_id: str) -> list[Event]:
        """A session's events. Raises `UnreadableLog` if they are damaged, or are not one writer's."""
        where = f'{self._ref}, session "{session_id}"'
        plain = await _answer(self.history.get_history(session_id))
        try:
            events = [event_from_plain(each, where=where) for each in plain]
        except TreadleError:
            raise
        except Exception as error:
            reason = f"a message is none of ours ({type(error).__name__}: {error})"
            raise UnreadableLog(where, reason, "Restore it from a copy.") from error
        for due, event in enumerate(events, 1):
            if event.seq != due:
                reason = f"message {due} is numbered {event.seq}: one was lost, or two processes wrote at once"
                raise UnreadableLog(where, reason, f"Keep the first {due - 1} messages, or clear the session.")
        return events

    async def list(self, filter: SessionFilter = ALL) -> Sequence[SessionInfo]:
        """As any store's; reads each session whole, for there is no other place to look."""
        if filter.archived or filter.parent is not None:
            return ()
        infos = []
        for session_id in await _answer(self.history.list_sessions()):
            if events := await self.events(session_id):
                infos.append(_info(session_id, events))
        wanted = [info for info in infos if set(filter.labels) <= set(info.labels)]
        wanted.sort(key=lambda info: (info.updated, info.id), reverse=True)
        return wanted[: filter.limit]

    async def fork(self, session_id: str, at_seq: int, new_id: str) -> None:
        """Raises `Unsupported`: the four methods cannot share a prefix."""
        raise Unsupported(self._ref, "fork")

    async def archive(self, session_id: str, archived: bool = True) -> None:
        """Raises `Unsupported`."""
        raise Unsupported(self._ref, "archive")

    async def delete(self, session_id: str, *, with_forks: bool = False) -> None:
        if session_id in self._writers:
            raise SessionBusy(session_id, "this process")
        if not await _answer(self.history.get_history(session_id)):
            raise NoSuchSession(session_id, self._ref)
        await _answer(self.history.clear(session_id))

    async def post(self, session_id: str, what: Posted) -> str:
        """Raises `Unsupported`: there is no place to leave something for another process's writer."""
        raise Unsupported(self._ref, "post")

    async def close(self) -> None:
        for log in [*self._writers.values()]:
            await log.close()


class _AdaptedLog:
    """One session of a history."""

    def __init__(self, store: AdaptedStore, session_id: str) -> None:
        self._store, self._session_id = store, session_id
        self._head: int | None = None  # None: not known, an append may have been done or not
        self._closing = anyio.Event()

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def forked_from(self) -> tuple[str, int] | None:
        return None

    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        return (await self._store.events(self._session_id))[after_seq:]

    async def find_head(self) -> int:
        """The last seq, looked up if an append was cut off."""
        if self._head is None:
            self._head = len(await self._store.events(self._session_id))
        return self._head

    async def append(self, events: Sequence[Event], expected_seq: int) -> None:
        if not self._store.holds(self):
            raise LeaseLost(self._session_id)
        if not events:
            return
        plain = [_plain(event, self._session_id) for event in events]
        head = await self.find_head()
        if expected_seq != head:
            raise Conflict(self._session_id, expected_seq, head)
        self._head = None
        await _answer(self._store.history.append_messages(self._session_id, plain))
        self._head = head + len(events)

    async def sync(self) -> None:
        return None

    def tail(self, after_seq: int = 0) -> AsyncIterator[Event]:
        """Raises `Unsupported`: nothing tells when another process appends."""
        raise Unsupported(self._store.ref, "tail")

    async def posted(self) -> AsyncIterator[Post]:
        nobody_can_post: tuple[Post, ...] = ()
        await self._closing.wait()
        for post in nobody_can_post:
            yield post

    async def forget(self, post_ids: Sequence[str]) -> None:
        return None

    async def close(self) -> None:
        self._closing.set()
        self._store.free(self)


async def _answer(said: T | Awaitable[T]) -> T:
    return await said if inspect.isawaitable(said) else said


def _plain(event: Event, session_id: str) -> Json:
    try:
        plain = event_to_plain(event)
        json.dumps(plain, allow_nan=False)
        return plain
    except TreadleError:
        raise
    except Exception as error:
        raise UsageError(
            f'Event {event.seq} ({event.type}) of session "{session_id}" cannot be stored: its data is not JSON '
            f"({type(error).__name__}: {error}). Nothing of its batch was written."
        ) from error


def _info(session_id: str, events: Sequence[Event]) -> SessionInfo:
    meta = described(events)
    return SessionInfo(
        id=session_id,
        head_seq=events[-1].seq,
        created=events[0].time,
        updated=events[-1].time,
        title=meta.title or "",
        labels=meta.labels or (),
        metadata=meta.metadata or {},
    )


__all__ = ["AdaptedStore", "History"]
