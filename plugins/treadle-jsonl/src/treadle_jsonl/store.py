"""The store: sessions as files of one folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from treadle.codec import event_from_plain
from treadle.plugin import (
    Capabilities,
    Event,
    NoSuchSession,
    Posted,
    PostMessage,
    SessionBusy,
    SessionFilter,
    SessionInfo,
    SessionMeta,
    StoreFault,
    TreadleError,
    UsageError,
    described,
    new_id,
)

from .lines import Cursor, Header, ending_of, header_of
from .locks import SessionLock, waited_for
from .log import JsonlLog
from .places import Places, id_of
from .posts import Posts
from .settings import JsonlSettings

_ALL = SessionFilter()


class JsonlStore:
    """Sessions in one folder, shared by the processes of one host."""

    def __init__(self, folder: Path, *, ref: str, settings: JsonlSettings | None = None) -> None:
        self.settings = settings or JsonlSettings()
        self.places = Places(folder)
        self._ref = ref
        self._news: dict[str, anyio.Event] = {}
        self._writers: list[JsonlLog] = []
        self._named: set[Path] = set()  # files whose name the disk has
        self._closed = False

    @property
    def ref(self) -> str:
        return self._ref

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(processes=True, durable=True, suspends=self.settings.durability == "full")

    # --- opening ------------------------------------------------------------------------------------

    async def open(self, session_id: str, write: bool) -> JsonlLog:
        self._check_open()
        if not write:
            line = self._line(session_id)
            # One that is open for its first append can be followed already.
            if not (self._last(line[-1][0]) if line else self.places.lock(session_id).exists()):
                raise self._missing(session_id)
            return JsonlLog(self, session_id, line, None)
        try:
            lock = SessionLock(self.places.lock(session_id), session_id)
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            log = JsonlLog(self, session_id, self._line(session_id), lock)
        except BaseException:
            lock.release()
            raise
        self._writers = [*(each for each in self._writers if not each.is_closed), log]
        return log

    def _line(self, session_id: str) -> list[tuple[Header, int | None]]:
        """The session and those it forked from, the oldest first, each with the last seq that counts; or nothing."""
        line: list[tuple[Header, int | None]] = []
        last: int | None = None
        while header := header_of(self.places.session(session_id), session_id):
            line.append((header, last))
            if not header.parent:
                break
            session_id, last = header.parent, min(header.parent_seq, last or header.parent_seq)
        return line[::-1]

    def _header(self, session_id: str) -> Header:
        header = header_of(self.places.session(session_id), session_id)
        if header is None:
            raise self._missing(session_id)
        return header

    def _missing(self, session_id: str) -> NoSuchSession:
        folder = self.places.folder
        return NoSuchSession(session_id, self._ref + ("" if folder.is_dir() else f" (there is no folder {folder})"))

    def _unreachable(self, error: OSError) -> TreadleError:
        if isinstance(error, NotADirectoryError | FileExistsError | PermissionError):
            return UsageError(f"{error.filename or self.places.folder} cannot be used: {error.strerror}. {self._ref}")
        return StoreFault("*", f"{self.places.folder}: {error.strerror or error}")

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"The store {self._ref} is closed. Open it again: stack.open_store(...)")

    # --- waiting and lasting ------------------------------------------------------------------------

    def news(self, session_id: str) -> anyio.Event:
        """Set when something is next written here about a session."""
        return self._news.setdefault(session_id, anyio.Event())

    def tell(self, session_id: str) -> None:
        """Wake whoever waits for news of a session."""
        if event := self._news.pop(session_id, None):
            event.set()

    async def wait(self, news: anyio.Event) -> None:
        """Return at news, or when it is time to look at what other processes wrote."""
        with anyio.move_on_after(self.settings.poll_seconds):
            await news.wait()

    async def make_durable(self, path: Path) -> None:
        """Wait until the disk has a file and its name, if the store is so set. Raises `StoreFault`."""
        if self.settings.durability == "full":
            # A new file's name is in its folder, which is flushed apart (man 2 fsync).
            paths = [path] if path in self._named else [path, path.parent]
            try:
                await anyio.to_thread.run_sync(_flush, paths)
                self._named.add(path)
            except OSError as error:
                raise StoreFault("*", f"{path}: {error.strerror or error}; it may not have reached the disk") from error

    # --- sessions -----------------------------------------------------------------------------------

    async def list(self, filter: SessionFilter = _ALL) -> Sequence[SessionInfo]:
        infos = [info for path in self.places.sessions() if (info := self._info(path)) is not None]
        wanted = [
            info
            for info in infos
            if info.archived == filter.archived
            and set(filter.labels) <= set(info.labels)
            and filter.parent in (None, info.parent)
        ]
        wanted.sort(key=lambda info: (info.updated, info.id), reverse=True)
        return wanted[: filter.limit]

    def _info(self, path: Path) -> SessionInfo | None:
        """What a list says of a file. A damaged one is listed too, so that people see it; reading it says more."""
        try:
            header = header_of(path)
            ending = self._last(header) if header is not None else None
        except FileNotFoundError:  # deleted at this moment
            return None
        except TreadleError:
            session_id, changed = id_of(path.stem), path.stat().st_mtime
            return SessionInfo(id=session_id, head_seq=0, created=changed, updated=changed, title="(damaged)")
        if header is None or ending is None:
            return None
        seq, updated = ending
        meta = described(self._metas(header.session, seq))
        return SessionInfo(
            id=header.session,
            head_seq=seq,
            created=header.created,
            updated=updated,
            title=meta.title or "",
            labels=meta.labels or (),
            metadata=meta.metadata or {},
            parent=header.parent,
            parent_seq=header.parent_seq,
            archived=self.places.archived(header.session).exists(),
        )

    def _last(self, header: Header) -> tuple[int, float] | None:
        """A session's last seq and its time, inherited or its own; None if nothing was written."""
        ending = ending_of(self.places.session(header.session), header)
        if ending.seq > header.parent_seq:
            return ending.seq, ending.time
        if not header.parent:
            return None
        seq, ancestor = header.parent_seq, self._header(header.parent)
        while seq <= ancestor.parent_seq:
            ancestor = self._header(ancestor.parent)
        inherited = Cursor(self.places.session(ancestor.session), ancestor.parent_seq).read(seq)
        return seq, max((event.seq, event.time) for event in inherited)[1]

    def _metas(self, session_id: str, last: int) -> Sequence[Event]:
        """What a session is called, its inherited names first. Only lines that may hold a name are parsed."""
        return [
            event
            for header, end in self._line(session_id)
            for event in _named(self.places.session(header.session))
            if event.seq <= min(last, end or last)
        ]

    async def fork(self, session_id: str, at_seq: int, new_id: str) -> None:
        parent = self._header(session_id)
        path = self.places.session(session_id)
        await self.make_durable(path)
        async with self._alone():
            head, _ = self._last(parent) or (0, 0.0)
            if not 1 <= at_seq <= head:
                raise UsageError(f'Session "{session_id}" has events 1 to {head}; {at_seq} is none of them.')
            try:
                lock = SessionLock(self.places.lock(new_id), new_id)
            except SessionBusy as busy:
                raise UsageError(f'Session "{new_id}" is there already. Fork under another name.') from busy
            try:
                if header_of(self.places.session(new_id), new_id) is not None:
                    raise UsageError(f'Session "{new_id}" is there already. Fork under another name.')
                self._make_fork(Header(session=new_id, created=time.time(), parent=session_id, parent_seq=at_seq))
            finally:
                lock.release()
        await self.make_durable(self.places.session(new_id))

    def _make_fork(self, header: Header) -> None:
        fresh = self.places.fresh(header.session)
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(header.to_line())
        fresh.replace(self.places.session(header.session))

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Nobody forks or deletes meanwhile: a fork of what is just deleted would begin with nothing."""
        async with waited_for(self.places.store_lock, self.settings.busy_seconds):
            yield

    async def archive(self, session_id: str, archived: bool = True) -> None:
        self._header(session_id)
        mark = self.places.archived(session_id)
        mark.parent.mkdir(parents=True, exist_ok=True)
        if archived:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    async def delete(self, session_id: str, *, with_forks: bool = False) -> None:
        self._header(session_id)
        async with self._alone():
            gone = self._descendants(session_id)
            if len(gone) > 1 and not with_forks:
                raise UsageError(
                    f'Session "{session_id}" has forks that begin with its events: {", ".join(sorted(gone[:-1]))}. '
                    f"Delete them first, or say with_forks=True."
                )
            with ExitStack() as locks:  # before the first is deleted: all of them go or none
                for each in gone:
                    locks.callback(SessionLock(self.places.lock(each), each).release)
                for each in gone:
                    self._remove(each)
        for each in gone:
            self.tell(each)

    def _descendants(self, session_id: str) -> Sequence[str]:
        """A session and its forks, a fork before what it begins with: a delete that is cut off leaves no fork alone."""
        forks: dict[str, list[str]] = {}
        for path in self.places.sessions():
            header = header_of(path)
            if header is not None and header.parent:
                forks.setdefault(header.parent, []).append(header.session)
        found = [session_id]
        for each in found:
            found.extend(forks.get(each, ()))
        return found[::-1]

    def _remove(self, session_id: str) -> None:
        places = self.places
        for path in (places.posts(session_id), places.archived(session_id), places.session(session_id)):
            path.unlink(missing_ok=True)
            self._named.discard(path)
        torn = places.torn(session_id, 0)
        for path in torn.parent.glob(f"{torn.stem}.*") if torn.parent.is_dir() else ():
            if path.stem == torn.stem:
                path.unlink(missing_ok=True)

    async def post(self, session_id: str, what: Posted) -> str:
        self._check_open()
        post_id = what.message.id if isinstance(what, PostMessage) else new_id()
        posts = Posts(self.places.posts(session_id), self.settings.busy_seconds)
        try:
            await posts.add(post_id, what)
            await self.make_durable(posts.path)
        except OSError as error:
            raise self._unreachable(error) from error
        self.tell(session_id)
        return post_id

    async def close(self) -> None:
        """Close the writers. Safe to call twice."""
        self._closed = True
        for log in self._writers:
            await log.close()


def _flush(paths: Sequence[Path]) -> None:
    for each in paths:
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _named(path: Path) -> list[Event]:
    events: list[Event] = []
    with path.open("rb") as file:
        for raw in file:
            if b"session/meta" in raw:
                try:
                    plain = [each for each in json.loads(raw) if each["type"] == SessionMeta.type]
                    events += [event_from_plain(each, where=str(path)) for each in plain]
                except (ValueError, LookupError, TypeError, TreadleError):
                    continue  # a list shows what it can; reading the session says what is damaged
    return events


__all__ = ["JsonlStore"]
