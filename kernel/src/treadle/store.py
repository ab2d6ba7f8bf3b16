"""The store seam: where logs live. And the store that keeps them in memory.

A `Store` opens `Log`s; it knows nothing of grammar or projections, only of order, leases and durability. A backend
of one's own passes `treadle.testing.StoreKit`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, Union

import anyio
import attrs

from .errors import Conflict, LeaseLost, NoSuchSession, SessionBusy, Unsupported, UsageError
from .events import Event, SessionMeta
from .messages import Json, Message, new_id


@attrs.frozen(kw_only=True)
class Capabilities:
    """What a store honestly offers beyond keeping logs.

    `processes`, `hosts`: several may share it, writers fenced from each other. `push`: `tail` and `posted` wake by
    themselves instead of polling. `transaction`: `transaction()` yields a connection that a plugin's tables share.
    `durable`: what was synced survives the process. `suspends`: appends may wait (a writer thread, a network); where
    False, `append` and `sync` never suspend, so that the kernel needs no lock or shield around them.
    """

    processes: bool = False
    hosts: bool = False
    push: bool = False
    transaction: bool = False
    durable: bool = False
    suspends: bool = True


@attrs.frozen(kw_only=True)
class SessionInfo:
    """One session as a list shows it. `created` and `updated` are seconds since 1970."""

    id: str
    head_seq: int
    created: float
    updated: float
    title: str = ""
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Json] = attrs.field(factory=dict)
    parent: str = ""
    parent_seq: int = 0
    archived: bool = False


@attrs.frozen(kw_only=True)
class SessionFilter:
    """Which sessions to list, newest first: with all of `labels`, children of `parent`, at most `limit`."""

    labels: tuple[str, ...] = ()
    parent: str | None = None
    archived: bool = False
    limit: int | None = None


ALL = SessionFilter()
"""Every session that is not archived."""


@attrs.frozen(kw_only=True)
class PostMessage:
    """A message for the session's writer to put."""

    message: Message
    lane: Literal["step", "turn"] = "step"
    wake: bool = True


@attrs.frozen(kw_only=True)
class PostDecision:
    """A decision about a deferred call: `allow` (with `arguments` as JSON text, if edited), `deny` or `answer`."""

    call_id: str
    verdict: Literal["allow", "deny", "answer"]
    arguments: str | None = None
    text: str = ""


@attrs.frozen(kw_only=True)
class PostCancel:
    """A wish to cancel: the `turn`, or `all` that pends too."""

    reach: Literal["turn", "all"] = "turn"
    cause: str = "cancelled"


Posted: TypeAlias = Union[PostMessage, PostDecision, PostCancel]


@attrs.frozen
class Post:
    """What somebody without the lease left for the writer. A message's post has the message's id."""

    id: str
    what: Posted


class Log(Protocol):
    """One session, open. Only a log opened with `write` appends; it holds the lease until closed.

    `read` and `tail` may be used by any number of readers. All raise `UnreadableLog` where the stored data is
    damaged. Cancelling an `append` that suspends leaves it done or not done, never half done.
    """

    @property
    def session_id(self) -> str: ...

    @property
    def forked_from(self) -> tuple[str, int] | None:
        """The parent's id and the last seq shared with it, if this session is a fork."""
        ...

    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        """The events after `after_seq`, in order, a fork's inherited ones included. Empty for a new session."""
        ...

    async def append(self, events: Sequence[Event], expected_seq: int) -> None:
        """Write all or nothing. `expected_seq` is the last seq before them.

        Raises `Conflict` if the log stands elsewhere, `LeaseLost` if another writer took over.
        """
        ...

    async def sync(self) -> None:
        """Return when all that was appended survives the process (and, if the store is so set, a power cut)."""
        ...

    def tail(self, after_seq: int = 0) -> AsyncIterator[Event]:
        """Synced events after `after_seq`, then new ones as they come, also another process's. Ends with `close`."""
        ...

    def posted(self) -> AsyncIterator[Post]:
        """Posts to this session, oldest first, then new ones as they come. Each until it is forgotten."""
        ...

    async def forget(self, post_ids: Sequence[str]) -> None:
        """Remove posts that have become events and were synced."""
        ...

    async def close(self) -> None:
        """Release the lease. Safe to call twice."""
        ...


class Store(Protocol):
    """Where sessions live.

    Opening for reading writes nothing and takes no lease; a session exists from its first append on.
    """

    @property
    def ref(self) -> str:
        """How a person names it: `memory:`, `sqlite:///app.db`."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def open(self, session_id: str, write: bool) -> Log:
        """Raises `SessionBusy` if `write` and another holds the lease, `NoSuchSession` if reading what is not there."""
        ...

    async def list(self, filter: SessionFilter = ALL) -> Sequence[SessionInfo]: ...

    async def fork(self, session_id: str, at_seq: int, new_id: str) -> None:
        """A new session that begins with the parent's events up to `at_seq`, by reference. `at_seq` must be synced.

        Whether `at_seq` lies outside a step is the caller's to check: the store does not read events.
        """
        ...

    async def archive(self, session_id: str, archived: bool = True) -> None: ...

    async def delete(self, session_id: str, *, with_forks: bool = False) -> None:
        """Refused with `UsageError` while forks refer to it, unless they go too."""
        ...

    async def post(self, session_id: str, what: Posted) -> str:
        """Leave something for the session's writer, whoever that is; returns the post's id. Arrives once."""
        ...

    async def close(self) -> None: ...


class _News:
    """Wakes all who wait, and costs one truth test where nobody does."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def tell(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()


@attrs.define
class _Kept:
    """One session in memory."""

    id: str
    created: float
    events: list[Event] = attrs.field(factory=list)
    writer: _MemoryLog | None = None
    posts: dict[str, Post] = attrs.field(factory=dict)
    news: _News = attrs.field(factory=_News)  # of events
    posted: _News = attrs.field(factory=_News)  # apart, so that an append wakes nobody who waits for posts
    parent: _Kept | None = None
    parent_seq: int = 0
    archived: bool = False

    def inherited(self) -> list[Event]:
        if self.parent is None:
            return []
        return [*self.parent.inherited(), *self.parent.events][: self.parent_seq]

    def descends_from(self, other: _Kept) -> bool:
        return self is other or (self.parent is not None and self.parent.descends_from(other))

    @property
    def head_seq(self) -> int:
        return self.parent_seq + len(self.events)


class _MemoryLog:
    """A log in this process's memory."""

    def __init__(self, kept: _Kept, sessions: dict[str, _Kept]) -> None:
        self._kept, self._sessions, self._closed = kept, sessions, False

    @property
    def session_id(self) -> str:
        return self._kept.id

    @property
    def forked_from(self) -> tuple[str, int] | None:
        parent = self._kept.parent
        return (parent.id, self._kept.parent_seq) if parent else None

    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        kept = self._kept
        if after_seq >= kept.parent_seq:
            return kept.events[after_seq - kept.parent_seq :]
        return [*kept.inherited()[after_seq:], *kept.events]

    async def append(self, events: Sequence[Event], expected_seq: int) -> None:
        kept = self._kept
        if kept.writer is not self:
            raise LeaseLost(kept.id)
        if kept.parent_seq + len(kept.events) != expected_seq:
            raise Conflict(kept.id, expected_seq, kept.head_seq)
        kept.events.extend(events)
        kept.news.tell()

    async def sync(self) -> None:
        return None

    async def tail(self, after_seq: int = 0) -> AsyncIterator[Event]:
        while not self._closed:
            events = await self.read(after_seq)
            for event in events:
                yield event
                after_seq = event.seq
            if not events:
                await self._kept.news.wait()

    async def posted(self) -> AsyncIterator[Post]:
        seen: set[str] = set()
        while not self._closed:
            fresh = [post for post in self._kept.posts.values() if post.id not in seen]
            seen = {post_id for post_id in seen if post_id in self._kept.posts}
            for post in fresh:
                seen.add(post.id)
                yield post
            if not fresh:
                await self._kept.posted.wait()

    async def forget(self, post_ids: Sequence[str]) -> None:
        for post_id in post_ids:
            self._kept.posts.pop(post_id, None)

    async def close(self) -> None:
        self._closed = True
        kept = self._kept
        if kept.writer is self:
            kept.writer = None
            if not kept.head_seq and not kept.posts:  # looking adds nothing
                self._sessions.pop(kept.id, None)
        kept.news.tell()
        kept.posted.tell()


class MemoryStore:
    """Sessions for as long as this object lives. What tests, demos and one-off turns use."""

    def __init__(self, ref: str = "memory:") -> None:
        self._ref = ref
        self._sessions: dict[str, _Kept] = {}

    @property
    def ref(self) -> str:
        return self._ref

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(push=True, suspends=False)

    def _kept(self, session_id: str) -> _Kept:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise NoSuchSession(session_id, self._ref) from None

    async def open(self, session_id: str, write: bool) -> Log:
        kept = self._sessions.get(session_id)
        if not write:
            return _MemoryLog(self._kept(session_id), self._sessions)
        if kept is None:
            kept = self._sessions[session_id] = _Kept(session_id, time.time())
        if kept.writer is not None:
            raise SessionBusy(session_id, "this process")
        kept.writer = _MemoryLog(kept, self._sessions)
        return kept.writer

    async def list(self, filter: SessionFilter = ALL) -> Sequence[SessionInfo]:
        found = [_info(kept) for kept in self._sessions.values() if kept.head_seq]
        wanted = [
            info
            for info in found
            if info.archived == filter.archived
            and set(filter.labels) <= set(info.labels)
            and filter.parent in (None, info.parent)
        ]
        wanted.sort(key=lambda info: (info.updated, info.id), reverse=True)
        return wanted[: filter.limit]

    async def fork(self, session_id: str, at_seq: int, new_id: str) -> None:
        parent = self._kept(session_id)
        if new_id in self._sessions:
            raise UsageError(f'Session "{new_id}" is there already. Fork under another name.')
        if not 1 <= at_seq <= parent.head_seq:
            raise UsageError(f'Session "{session_id}" has events 1 to {parent.head_seq}; {at_seq} is none of them.')
        self._sessions[new_id] = _Kept(new_id, time.time(), parent=parent, parent_seq=at_seq)

    async def archive(self, session_id: str, archived: bool = True) -> None:
        self._kept(session_id).archived = archived

    async def delete(self, session_id: str, *, with_forks: bool = False) -> None:
        kept = self._kept(session_id)
        forks = [each.id for each in self._sessions.values() if each.parent is kept]
        if forks and not with_forks:
            raise UsageError(
                f'Session "{session_id}" has forks that begin with its events: {", ".join(forks)}. '
                f"Delete them first, or say with_forks=True."
            )
        gone = [each for each in self._sessions.values() if each.descends_from(kept)]
        for each in gone:  # before the first is deleted: all of them go or none
            if each.writer is not None:
                raise SessionBusy(each.id, "this process")
        for each in gone:
            del self._sessions[each.id]

    async def post(self, session_id: str, what: Posted) -> str:
        kept = self._sessions.setdefault(session_id, _Kept(session_id, time.time()))
        post_id = what.message.id if isinstance(what, PostMessage) else new_id()
        kept.posts[post_id] = Post(post_id, what)
        kept.posted.tell()
        return post_id

    async def close(self) -> None:
        return None


def _info(kept: _Kept) -> SessionInfo:
    events = [*kept.inherited(), *kept.events]
    meta = described(events)
    return SessionInfo(
        id=kept.id,
        head_seq=kept.head_seq,
        created=kept.created,
        updated=events[-1].time,
        title=meta.title or "",
        labels=meta.labels or (),
        metadata=meta.metadata or {},
        parent=kept.parent.id if kept.parent else "",
        parent_seq=kept.parent_seq,
        archived=kept.archived,
    )


def described(events: Sequence[Event]) -> SessionMeta:
    """The session's title, labels and metadata: for each the last that was said."""
    meta = SessionMeta()
    for event in events:
        if isinstance(event.data, SessionMeta):
            said = attrs.asdict(event.data, recurse=False, filter=lambda _, value: value is not None)
            meta = attrs.evolve(meta, **said)
    return meta


__all__ = [
    "Capabilities", "Log", "MemoryStore", "Post", "PostCancel", "PostDecision", "PostMessage", "Posted",
    "SessionFilter", "SessionInfo", "Store", "Unsupported", "described",
]  # fmt: skip
