"""A live session: the one door to its log.

It stamps, checks, folds and commits; holds the fold's state; queues notes; tells observers. It knows no loop and no
plugins: whoever owns it passes callbacks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import attrs
from anyio import CancelScope, Lock, fail_after

from .errors import StoreFault, TreadleError, UnreadableLog
from .events import KERNEL, ContextEdit, Data, Event, OpenReason, PluginData, SessionOpen
from .grammar import Phase, State, closers, fold
from .store import Log

Build: TypeAlias = Callable[[State], Sequence[Data]]
_EDITABLE = (Phase.IDLE, Phase.OPEN, Phase.READY)


@attrs.frozen
class Note:
    """A plugin's event or edit that waits for the loop's next append."""

    data: PluginData | ContextEdit
    plugin: str
    required: bool = False


class Session:
    """The writer's side of one log.

    `committed` is called with the events of each append in the same synchronous section as their fold; `notify` is
    awaited with each event afterwards, in order; `failed` is called once, when the store fails: from then on every
    append raises that `StoreFault`, and what was synced can be reopened. `refused` hears of a queued edit that the
    log no longer allows.
    """

    def __init__(
        self,
        log: Log,
        state: State,
        *,
        opening: SessionOpen,
        store_seconds: float = 30.0,
        suspends: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.log, self.state, self.clock = log, state, clock
        self.notes: list[Note] = []
        self.fault: TreadleError | None = None
        self.let_go()
        self._opening: SessionOpen | None = opening
        self.suspends, self._store_seconds = suspends, store_seconds
        self._lock = Lock(fast_acquire=True)
        self._told: deque[Event] = deque()
        self._telling = False

    def let_go(self) -> None:
        """Call the owner no more, so that what belonged to a closed session is freed at once, not by the collector."""
        self.committed: Callable[[Sequence[Event]], None] = lambda events: None
        self.notify: Callable[[Event], Awaitable[None]] | None = None
        self.failed: Callable[[TreadleError], None] = lambda fault: None
        self.refused: Callable[[Note, str], None] = lambda note, reason: None

    # --- writing -------------------------------------------------------------------------------------------

    async def append(self, *data: Data) -> None:
        """Write the loop's events, with the notes that wait before them, in one append."""
        await self.append_built(lambda state: data, loop=True)

    async def append_built(self, build: Build, *, loop: bool = False) -> Sequence[Event]:
        """Write what `build` answers to the state as of the append; nothing if it answers nothing.

        `build` runs in the same synchronous section as the commit (for a store that suspends: under the lock), so what
        it decides on cannot change meanwhile. The caller's cancel does not split the section.
        """
        if self.suspends:
            with CancelScope(shield=True):
                async with self._lock:
                    events = await self._write(build, loop)
        else:
            events = await self._write(build, loop)
        if self._told and not self._telling:
            await self._tell()
        return events

    async def _write(self, build: Build, loop: bool) -> Sequence[Event]:
        if self.fault is not None:
            raise self.fault
        data = build(self.state)
        if not data and not (loop and self.notes):
            return ()
        expected, now = self.state.seq, self.clock()
        try:
            events = self._folded(data, now, loop)
            if not events:
                pass
            elif self.suspends:
                with fail_after(self._store_seconds):
                    await self.log.append(events, expected)
            else:
                await self.log.append(events, expected)
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise  # an interrupt or the event loop's end is not the store's fault, though nothing more is written
            raise self.fault or error from error
        if not events:
            return ()
        self.committed(events)
        if self.notify is not None:
            self._told.extend(events)
        return events

    def _folded(self, data: Sequence[Data], now: float, loop: bool) -> list[Event]:
        """Stamp and fold: the opening if not yet written, notes, the data, then edits that had to wait for it."""
        events: list[Event] = []
        state = self.state

        def add(each: Data, owner: str = KERNEL, required: bool = True) -> None:
            event = state.stamp(each, now, owner, required)
            state.apply(event)
            events.append(event)

        if self._opening is not None:
            opening, self._opening = self._opening, None
            add(opening)
        if loop and self.notes:
            self._add_notes(add)
        for each in data:
            add(each)
        if loop and self.notes:
            self._add_notes(add)
        return events

    def _add_notes(self, add: Callable[[Data, str, bool], None]) -> None:
        waiting, self.notes = self.notes, []
        for note in waiting:
            if isinstance(note.data, PluginData):
                add(note.data, note.plugin, note.required)
            elif self.state.phase not in _EDITABLE:
                self.notes.append(note)
            elif reason := self.state.check_edit(note.data):
                self.refused(note, reason)
            else:
                add(note.data, KERNEL, True)

    async def close_open_turn(self, data: Sequence[Data]) -> None:
        """Write what repair found, with the last event's time, and make it durable. Before anything else is written."""
        opening, self._opening = self._opening, None
        clock, self.clock = self.clock, lambda: self.state.time
        await self.append(*data)
        await self.sync()
        self.clock = clock
        self._opening = None if opening in data else opening

    async def append_notes(self, notes: Sequence[Note]) -> None:
        """Write a running body's notes at once."""
        self.notes.extend(notes)
        await self.append_built(lambda state: (), loop=True)

    async def sync(self) -> None:
        """The durability barrier: return when all that was appended survives."""
        if self.fault is not None:
            raise self.fault
        try:
            if self.suspends:
                with CancelScope(shield=True), fail_after(self._store_seconds):
                    await self.log.sync()
            else:
                await self.log.sync()
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
            raise self.fault or error from error

    async def at_rest(self) -> None:
        """Return when each append that began before this call is done, or has failed."""
        if self.suspends:
            async with self._lock:
                pass

    def _fail(self, error: BaseException) -> None:
        if self.fault is None:
            silent = f"it was silent for {self._store_seconds:g} s" if isinstance(error, TimeoutError) else error
            self.fault = StoreFault(self.state.session, silent)
            self.failed(self.fault)

    async def _tell(self) -> None:
        """Tell observers, in order. One task does it at a time; what they append meanwhile is told behind it.

        Shielded: a cancel of whoever appended must neither keep an event from the observers behind the one that waits,
        nor make a committed append look like one that failed. `hook_seconds` bounds each.
        """
        self._telling = True
        try:
            with CancelScope(shield=True):
                while self._told and self.notify is not None:
                    await self.notify(self._told.popleft())
        finally:
            self._telling = False


async def open_session(
    log: Log,
    *,
    session: str,
    kernel: str,
    plugins: tuple[tuple[str, str], ...],
    store_seconds: float,
    suspends: bool,
    clock: Callable[[], float] = time.time,
) -> Session:
    """A session over a log opened for writing: its events folded, and a turn that a dead process left open closed.

    What repair adds is one append, with the last event's time. Raises `UnreadableLog` or `UnlawfulEvent` for a log
    that cannot be trusted, and leaves it as it is.
    """
    events = await log.read()
    names = {name for name, _ in plugins}
    for event in events:
        if event.required and event.owner != KERNEL and event.owner not in names:
            why = f'event {event.seq} ({event.type}) is one that the plugin "{event.owner}" declares required'
            raise UnreadableLog(f'session "{session}"', why, f'Add the plugin "{event.owner}" to the stack.')
    state = fold(events, session)
    fork = log.forked_from
    if fork is not None and state.seq == fork[1]:
        opening = SessionOpen(reason="fork", kernel=kernel, plugins=plugins, parent=fork[0], parent_seq=fork[1])
    else:
        reason: OpenReason = "new" if state.phase is Phase.NEW else "resume"
        opening = SessionOpen(reason=reason, kernel=kernel, plugins=plugins)
    made = Session(log, state, opening=opening, store_seconds=store_seconds, suspends=suspends, clock=clock)
    # A fork's opening empties its inbox, so it is written now; any other waits for the first append.
    closing = [*closers(state), *([opening] if opening.reason == "fork" else [])]
    if closing:
        await made.close_open_turn(closing)
    return made
