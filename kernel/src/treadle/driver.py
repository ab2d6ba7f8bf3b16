"""The live handle of one session: it owns its activity, and whoever holds it can speak into it.

A driver is idle, running or closed. While it runs, one task drives turn after turn; everything else puts messages,
cancels, watches or waits. A connection that goes away ends nothing here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from .agent import Agent, Limits
from .context import Allow, Answer, Decision, Deny, TurnContext
from .errors import Closed, Reentrant, StoreFault, TreadleError, UsageError
from .events import (
    AssistantMessage,
    ContextEdit,
    Data,
    Event,
    InboxDrop,
    InboxPut,
    Lane,
    PluginData,
    SessionMeta,
    SessionOpen,
    StepStart,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from .grammar import State
from .hooks import Delta
from .host import Host
from .loop import Turn, run_turn
from .maintenance import Maintenance
from .messages import Call, Content, Json, Message, Text, as_message
from .model import Model
from .results import Entered, IsParked, Receipt, Result, WasDropped
from .session import Build, Note, Session
from .store import Post, PostCancel, PostDecision, PostMessage, Store
from .tools import NO_ANSWER, Wanted
from .view import View
from .watch import Watch

T = TypeVar("T")

POSTS_AGAIN_SECONDS = 5.0
"""How long a driver waits before it asks a store for posts again that could not answer."""
Reach = Literal["model", "call", "turn", "all"]
Status = Literal["idle", "running", "closed"]

_inside: ContextVar[Mapping[int, int]] = ContextVar("treadle_turns", default=MappingProxyType({}))
"""Driver and turn that this task works for: small numbers only, so that nothing large is kept alive by a copy."""


class Home(Protocol):
    """What a driver needs of the stack it runs on."""

    @property
    def host(self) -> Host: ...
    @property
    def manifest(self) -> tuple[tuple[str, str], ...]: ...
    def open_model(self, ref: str) -> Model: ...
    def open_at(
        self, store: Store, session_id: str, agent: Agent, **settings: Any
    ) -> AbstractAsyncContextManager[Driver]: ...

    def hold(self) -> None:
        """A turn uses this stack: it does not close before `let_go`."""
        ...

    def let_go(self) -> None:
        """A turn no longer uses this stack."""
        ...


# --- the driver --------------------------------------------------------------------------------------------


class Driver:
    """One session, live. Made by `stack.open` and `stack.attach`."""

    def __init__(
        self,
        home: Home,
        agent: Agent,
        session: Session,
        group: TaskGroup,
        *,
        store: Store,
        user: str | None = None,
        deps: Any = None,
        metadata: Mapping[str, Json] | None = None,
        run: str | None = None,
        limits: Limits | None = None,
        output: Wanted | None = None,
        kernel: str = "",
    ) -> None:
        self.home, self.agent, self._session, self._group = home, agent, session, group
        self._store = store
        self.user, self.deps, self.metadata, self._run = user, deps, dict(metadata or {}), run
        self._limits, self._output, self._kernel = limits, output, kernel
        self.status: Status = "idle"
        self.on_closed: Callable[[Driver], None] = lambda driver: None
        self.on_idle: Callable[[Driver], None] = lambda driver: None
        self._models: dict[int, Model] = {}
        self._turn: Turn | None = None
        self._context: TurnContext[Any] | None = None  # of the open or last turn, for observers of its end
        self._busy = False  # a turn, or the section between two turns
        self._maintaining: CancelScope | None = None
        self._closing = False
        self._abort_next = ""
        self._receipts: dict[str, Receipt] = {}
        self._entered: list[Receipt] = []
        self._decided: dict[str, Decision] = {}
        self._decisions: list[Receipt] = []
        self._watches: list[Watch] = []
        self._settled = anyio.Event()
        self._settled.set()
        self._held: Home | None = None  # the stack that the open turn uses
        self._manifest = home.manifest
        session.committed, session.failed, session.refused = self._committed, self._failed, self._refused
        session.notify = self._notify if home.host.notices else None

    # --- what it is ----------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._session.state.session

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return self.status == "closed"

    @property
    def seq(self) -> int:
        """The log's last seq."""
        return self._session.state.seq

    @property
    def view(self) -> View:
        """The conversation as of now."""
        return self._session.state.view

    @property
    def pending(self) -> tuple[Message, ...]:
        """Messages that wait in the inbox, oldest first."""
        return tuple(put.message for put in self._session.state.pending.values())

    @property
    def waiting(self) -> tuple[Call, ...]:
        """Calls that wait for a decision."""
        return tuple(each.call for each in self._session.state.deferred.values())

    @property
    def parked(self) -> bool:
        """Whether what pends waits for a wake."""
        return self._session.state.parked

    @property
    def limits(self) -> Limits:
        """The limits of the next turn."""
        return self._limits if self._limits is not None else self.agent.limits

    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        """The log's events after `after_seq`."""
        return await self._session.log.read(after_seq)

    # --- speaking into it ----------------------------------------------------------------------------------

    async def prompt(self, content: Content) -> Result:
        """Put a message for the next turn and wait for that turn's result.

        Raises `Parked` if the session idles before the message entered a turn (it stays in the inbox), `Dropped` if it
        was taken out, `Reentrant` inside the session's own turn. Cancelling the wait does not cancel the turn.
        """
        self.not_inside("prompt")
        return await (await self.follow_up(content)).result()

    async def follow_up(self, content: Content) -> Receipt:
        """Put a message for the next turn; opens one when idle."""
        return await self._put(content, "turn", wake=True)

    async def steer(self, content: Content) -> Receipt:
        """Put a message for the nearest step; opens a turn when idle. Never skips a call the model already made."""
        return await self._put(content, "step", wake=True)

    async def inject(self, content: Content) -> Receipt:
        """Put a message for the next step without waking anyone."""
        return await self._put(content, "step", wake=False)

    async def withdraw(self, message_id: str) -> bool:
        """Take a pending message back; False if it no longer pends."""
        self.check_open()

        def build(state: State) -> Sequence[Data]:
            return (InboxDrop(ids=(message_id,), why="withdrawn"),) if message_id in state.pending else ()

        return bool(await self._written(build))

    async def _written(self, build: Build, durably: bool = True) -> Sequence[Event]:
        """Append for a caller, and wait until it is durable."""
        if not self._session.suspends:
            return await self._write(build, durably)
        return await self._apart(partial(self._write, build, durably))

    async def _apart(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do work that no cancel of the caller may split, as a task of the driver's, and wait for it.

        A shield alone would not do: asyncio's own `Task.cancel`, which servers and `asyncio.timeout` use, passes
        through shields. A caller that leaves so leaves the work to go on, and never looks like a store that failed.
        """
        found: list[T] = []
        faults: list[Exception] = []
        done = anyio.Event()

        async def task() -> None:
            try:
                with CancelScope(shield=True):
                    found.append(await work())
            except Exception as error:
                faults.append(error)
            finally:
                done.set()

        self._group.start_soon(task)
        with CancelScope(shield=True):
            await done.wait()
        if faults:
            raise faults[0]
        return found[0]

    async def _write(self, build: Build, durably: bool) -> Sequence[Event]:
        events = await self._session.append_built(build)
        if durably:
            await self._session.sync()
        return events

    async def _put(self, content: Content, lane: Lane, wake: bool) -> Receipt:
        self.check_open()
        origin = "turn:inside" if id(self) in _inside.get() else "application"
        message = as_message(content, origin=origin)
        if message.id in self._session.state.ids:
            raise UsageError(f"Message id {message.id} was used before in this session. Give each message a new id.")
        receipt = Receipt(self, message.id)

        def build(state: State) -> Sequence[Data]:
            self._receipts[message.id] = receipt  # not before: a driver that goes idle parks what stands here
            put = InboxPut(message=message, lane=lane, wake=wake)
            return (put, TurnStart()) if wake and self._may_start() else (put,)

        try:
            await self._written(build)
        except BaseException:
            if message.id not in self._session.state.ids:
                self._receipts.pop(message.id, None)
            raise
        if not self._busy and message.id in self._session.state.pending:
            self._park_receipts()
        return receipt

    async def nudge(self) -> Result:
        """Go on without a new message, when idle, and wait for the result.

        Resumes the last step's resumable calls; else, if a reply is owed and no call of the last message waits for a
        decision, opens a step without a new message; else takes what pends. Raises `UsageError` if there is nothing
        to go on with, or if the session runs already.
        """
        self.not_inside("nudge")
        self.check_open()
        if self._busy:
            raise UsageError(
                f'Session "{self.session_id}" runs already; nudge() is for an idle one. Await until_idle().'
            )
        receipt = Receipt(self, "nudge")

        def build(state: State) -> Sequence[Data]:
            if not self._may_start():
                return ()
            can_ask = state.owed and not state.last_deferred
            if not state.resumable and not can_ask and not state.pending:
                return ()
            self._starting = (not state.resumable and not can_ask, dict.fromkeys(state.resumable))
            self._entered.append(receipt)
            return (TurnStart(),)

        if not await self._written(build, durably=False):
            raise UsageError(f'Session "{self.session_id}" owes nothing and nothing pends. Send it a message.')
        return await receipt.result()

    _starting: tuple[bool, Mapping[str, Decision | None]] = (True, {})

    async def decide(self, decisions: Mapping[str, Decision]) -> Receipt:
        """Answer deferred calls by call id: `Allow`, `Deny` or `Answer`. The calls resume in a turn of their own.

        Raises `UsageError` naming any id that does not wait; then nothing runs. If a turn runs, they resume after it.
        """
        self.check_open()
        receipt = Receipt(self, "decide")

        def build(state: State) -> Sequence[Data]:
            odd = [each for each in decisions if each not in state.deferred or each in self._decided]
            if odd or not decisions:
                raise _Refused(odd)
            for call_id, decision in decisions.items():
                if not isinstance(decision, (Allow, Deny, Answer)):
                    raise UsageError(f"decide({call_id}): give Allow, Deny or Answer, not {decision!r}.")
            self._decided.update(decisions)
            self._decisions.append(receipt)
            if not self._may_start():
                return ()
            self._take_decisions()
            return (TurnStart(),)

        try:
            await self._written(build, durably=False)
        except _Refused as refused:
            waits = ", ".join(call.id for call in self.waiting) or "none"
            named = ", ".join(refused.ids) or "none given"
            raise UsageError(f"These calls do not wait for a decision: {named}. Waiting: {waits}.") from None
        return receipt

    def _take_decisions(self) -> None:
        state = self._session.state
        ready = {call_id: decision for call_id, decision in self._decided.items() if call_id in state.deferred}
        self._starting = (False, ready)
        self._decided = {}
        self._entered.extend(self._decisions)
        self._decisions = []

    def cancel(self, reach: Reach = "turn", *, call: str | None = None, cause: str = "cancelled") -> bool:
        """Ask for an end: of the model call, one tool call, the turn, or the turn and all that pends at this instant.

        Synchronous, and safe anywhere; the first cause wins. Between two turns of one activity it aborts the next. When
        idle it only drops. Returns whether there was something to cancel.
        """
        if self.status == "closed":
            return False
        if reach == "call":
            work = self._turn.work if self._turn else None
            return bool(call and work and work.cancel_call(call))
        if reach == "model":
            ask = self._turn.ask if self._turn else None
            if ask is None or ask.done.is_set():
                return False
            ask.scope.cancel()
            return True
        if reach == "all" and (ids := tuple(self._session.state.pending)):
            self._group.start_soon(self._drop, ids, cause)
        if self._turn is not None:
            self._turn.cancel(cause)
        elif self._busy and self._maintaining is None:
            self._abort_next = self._abort_next or cause
        elif self._maintaining is not None:
            self._maintaining.cancel()
        return self._busy

    async def _drop(self, ids: tuple[str, ...], cause: str) -> None:
        def build(state: State) -> Sequence[Data]:
            left = tuple(each for each in ids if each in state.pending)
            return (InboxDrop(ids=left, why="cancelled", detail=cause),) if left else ()

        try:
            await self._session.append_built(build)
            await self._session.sync()
        except TreadleError:
            pass  # the fault is the driver's already

    async def maintain(self, fn: Callable[[Maintenance], Awaitable[Any]]) -> Any:
        """Run `fn` between turns, once the session is idle. Its edits and notes are one append at its end.

        Messages that come meanwhile wait for it. A cancel, or its own fault, writes nothing; the fault is raised.
        """
        self.not_inside("maintain")
        self.check_open()
        while self._busy:
            await self.until_idle()
        self._busy = True
        self._settled = anyio.Event()
        context = Maintenance(self._session, self.agent, self.user)
        try:
            with CancelScope() as self._maintaining:
                value = await fn(context)
                if context.queued:
                    await self._session.append_notes(context.queued)
                    await self._session.sync()
                return value
        finally:
            self._maintaining = None
            if self._session.fault is None:
                with CancelScope(shield=True):
                    if await self._next():
                        self._start_activity()
        return None

    def use(self, agent: Agent | None = None, *, stack: Home | None = None) -> None:
        """Let another agent act, or another open stack serve, from the next step on.

        The old stack may be left at once: it closes when its last step lets go of it. The change of plugins is logged.
        """
        self.check_open()
        home = stack or self.home
        model = (agent or self.agent).model
        if isinstance(model, str):
            home.open_model(model)
        self.home, self.agent = home, agent or self.agent

    async def label(
        self,
        *,
        title: str | None = None,
        labels: Sequence[str] | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> None:
        """Say what people know the session by; None leaves a field as it is."""
        self.check_open()
        meta = SessionMeta(title=title, labels=None if labels is None else tuple(labels), metadata=metadata)
        await self._written(lambda state: (meta,))

    async def until_idle(self) -> None:
        """Wait until nothing runs. Raises the fault if the store fails."""
        self.not_inside("until_idle")
        while self._busy:
            await self._settled.wait()
        self.check_fault()

    def watch(self, after_seq: int | None = None) -> Watch:
        """Events and deltas from now on, or all events after `after_seq` first. Any number of watchers.

        One who joins in mid-message first gets its text so far, as one snapshot.
        """
        self.check_open()
        watch = Watch(self, after_seq)
        self._watches.append(watch)
        if self._turn is not None and self._turn.ask is not None and not self._turn.ask.done.is_set():
            for delta in self._turn.ask.snapshot():
                watch.take(delta)
        return watch

    def unwatch(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    @property
    def running(self) -> bool:
        """Whether a turn, maintenance, or the section between two turns is under way."""
        return self._busy

    async def close_if_idle(self) -> None:
        """Close, unless it runs again or somebody watches."""
        if not self._busy and not self._watches:
            await self.close()

    async def close(self, cause: str = "closed") -> None:
        """Cancel what runs, wait for it up to the grace period, release the session. Messages stay in its inbox."""
        self.not_inside("close")
        if self._closing:
            return
        self._closing = True
        await self._apart(partial(self._close, cause))

    async def _close(self, cause: str) -> None:
        self.cancel("turn", cause=cause)
        if self._maintaining is not None:
            self._maintaining.cancel()
        self._abort_next = cause  # what is being put as the close begins may start a turn yet
        await self._session.at_rest()
        while self._busy:
            await self._settled.wait()
        self._finish_closing()
        try:
            if self._session.fault is None:
                await self._session.sync()
        finally:
            await self._session.log.close()
            self._session.let_go()
            self._context = None

    def _finish_closing(self) -> None:
        if self.status != "closed":
            self._set_status("closed")
        fate = IsParked("closed")
        for receipt in [*self._receipts.values(), *self._decisions, *self._entered]:
            receipt.settle(fate)
        self._receipts, self._decisions, self._entered = {}, [], []
        for watch in [*self._watches]:
            watch.close()
        self.on_closed(self)

    # --- the activity --------------------------------------------------------------------------------------

    def _may_start(self) -> bool:
        return not self._busy and not self._closing

    def _start_activity(self) -> None:
        self._busy = True
        if self._settled.is_set():
            self._settled = anyio.Event()
        if self.status != "running":
            self._set_status("running")
        self._group.start_soon(self._activity)

    async def _activity(self) -> None:
        """Drive turn after turn until nothing wakes the next. The one task that runs turns."""
        outer = _inside.get()
        try:
            while True:
                turn = self._turn
                assert turn is not None
                _inside.set({**outer, id(self): self._session.state.turn})
                await run_turn(turn)
                if not await self._next():
                    return
        except TreadleError:
            if self._session.fault is None:
                raise
        except BaseException:
            self._turn = None
            self._idle()
            raise
        finally:
            if self._session.fault is not None:
                self._turn = None
                self._idle()

    async def _next(self) -> bool:
        """Open the next turn if something wakes it, else go idle; decided and done in one synchronous section."""
        await self._session.sync()

        def build(state: State) -> Sequence[Data]:
            if not self._closing and any(each in state.deferred for each in self._decided):
                self._take_decisions()
                return (TurnStart(),)
            if not self._closing and state.wakes() and not state.parked:
                self._starting = (True, {})
                return (TurnStart(),)
            self._idle()
            return ()

        return bool(await self._session.append_built(build))

    def _idle(self) -> None:
        """Nothing runs from here on; whoever waits is told."""
        self.let_go()
        self._busy = False
        self._abort_next = ""
        if self.status == "running":
            self._set_status("idle")
        self._park_receipts()
        for receipt in self._decisions:
            receipt.settle(IsParked("the call no longer waits"))
        self._decisions, self._decided = [], {}
        self._settled.set()
        self.on_idle(self)

    def _park_receipts(self) -> None:
        if self._session.fault is not None or not self._receipts:
            return
        end = self._session.state.last_end
        fate = IsParked(end.reason, end.detail) if end else IsParked("before any turn")
        for receipt in self._receipts.values():
            receipt.settle(fate)
        self._receipts = {}

    def _new_turn(self, number: int) -> Turn:
        woken, resumes = self._starting
        self._starting = (True, {})
        context: TurnContext[Any] = TurnContext(
            session=self.session_id,
            turn=number,
            agent=self.agent,
            limits=self.limits,
            user=self.user,
            deps=self.deps,
            metadata=self.metadata,
            run=self._run,
            sent=self._sent,
            reads=self.read,
            opens=self._open_child,
        )
        self._context = context
        turn = Turn(self, self._session, context, woken=woken, resumes=resumes, output=self._output)
        if self._abort_next:
            turn.cancel(self._abort_next)
            self._abort_next = ""
        return turn

    def _open_child(self, agent: Agent, name: str, settings: Mapping[str, Any]) -> AbstractAsyncContextManager[Driver]:
        """A session beside this one, on the stack that the open turn uses."""
        own = {"user": self.user, "deps": self.deps, "metadata": self.metadata, "run": self._run}
        home = self._held or self.home
        return home.open_at(self._store, f"{self.session_id}/{name}", agent, **{**own, **settings})

    def _sent(self, data: PluginData | ContextEdit, plugin: str) -> None:
        """A hook's note or edit, queued for the loop's next append."""
        if isinstance(data, ContextEdit):
            if not plugin:
                raise UsageError("context.edit works within a plugin's hook; elsewhere use driver.maintain.")
            queued = any(isinstance(note.data, ContextEdit) for note in self._session.notes)
            if not queued and (reason := self._session.state.check_edit(data)):
                raise UsageError(f"context.edit({data.first}, {data.last}): {reason}.")
        required = isinstance(data, PluginData) and data.name.partition("/")[2] in self.host.required.get(plugin, ())
        self._session.notes.append(Note(data, plugin, required))

    # --- what the session tells ----------------------------------------------------------------------------

    def _committed(self, events: Sequence[Event]) -> None:
        """In the synchronous section of a commit: start turns, settle receipts, tell watchers."""
        for event in events:
            hear = _HEARD.get(type(event.data))
            if hear is not None:
                hear(self, event.data)
            for watch in self._watches:
                watch.take(event)

    def _begin_turn(self, start: TurnStart) -> None:
        self._turn = self._new_turn(self._session.state.turn)
        if not self._busy:
            self._start_activity()

    def _enter(self, start: StepStart) -> None:
        for claimed in start.claims:
            if receipt := self._receipts.pop(claimed, None):
                receipt.turn = self._session.state.turn
                self._entered.append(receipt)

    def _drop_receipts(self, drop: InboxDrop) -> None:
        for dropped in drop.ids:
            if receipt := self._receipts.pop(dropped, None):
                receipt.settle(WasDropped(drop.why, drop.detail))

    def _collect(self, said: UserMessage | AssistantMessage) -> None:
        if self._turn is None:
            return
        if isinstance(said, AssistantMessage):
            self._turn.reply = said
        if said.message.parts:
            self._turn.messages.append(said.message)

    def _collect_result(self, result: ToolResult) -> None:
        answer = self._session.state.calls[result.call_id].answer
        if self._turn is None or answer is None:
            return
        self._turn.messages.append(answer)
        name = self._session.state.calls[result.call_id].call.name
        if result.concludes and self._output is not None and name == self._output.tool.name:
            self._turn.given = "".join(part.text for part in result.parts if isinstance(part, Text))

    def _end_turn(self, end: TurnEnd) -> None:
        turn, self._turn = self._turn, None
        self.let_go()
        if turn is None:
            return
        entered, self._entered = self._entered, []
        if entered:
            fate = Entered(self._result(turn, end))
            for receipt in entered:
                receipt.settle(fate)

    def _result(self, turn: Turn, end: TurnEnd) -> Result:
        reply = turn.reply
        output, fault = turn.answer() if end.reason == "completed" else (None, "")
        return Result(
            text=reply.message.text if reply else "",
            output=output,
            output_error=fault,
            messages=tuple(turn.messages),
            usage=end.usage,
            cost=None,
            reason=end.reason,
            detail=end.detail or (f"{NO_ANSWER}: {fault}" if fault else ""),
            finish=reply.finish if reply else None,
            session=self.session_id,
            turn=self._session.state.turn,
            steps=end.steps,
            waiting=self.waiting,
        )

    async def _notify(self, event: Event) -> None:
        context = self._context if self._context is not None and self._context.turn == event.turn else None
        await self.host.on_event(event, context)

    def _refused(self, note: Note, reason: str) -> None:
        self.host.report("context.edit", note.plugin, UsageError(f"the edit was no longer lawful: {reason}"))

    def _failed(self, fault: TreadleError) -> None:
        """The store failed: stop everything, tell everybody, write nothing."""
        if self._turn is not None:
            self._turn.cancel("store fault")
        for receipt in [*self._receipts.values(), *self._entered, *self._decisions]:
            receipt.wake()
        self._set_status("closed")
        for watch in [*self._watches]:
            watch.close()

    def _set_status(self, status: Status) -> None:
        self.status = status
        self.host.on_status(self.session_id, status)

    # --- posts ---------------------------------------------------------------------------------------------

    async def take_posts(self) -> None:
        """Turn what others posted into events, for as long as the driver lives. A post arrives once.

        A store that cannot be asked is reported and asked again later; it takes down neither this driver nor another.
        """
        taken: set[str] = set()
        while self.status != "closed":
            try:
                return await self._take_from(self._session.log.posted(), taken)
            except TreadleError as error:
                self.host.report("post", "app", error)
                if not isinstance(error, StoreFault):
                    return  # damaged or deleted: asking again gives the same
                await anyio.sleep(POSTS_AGAIN_SECONDS)

    async def _take_from(self, posts: AsyncIterator[Post], taken: set[str]) -> None:
        async for post in posts:
            if self.status == "closed":
                return
            if post.id not in taken:
                try:
                    await self._take_post(post)
                except UsageError as error:
                    self.host.report("post", "app", error)
                except TreadleError:
                    return  # closing, or the store failed: the post waits for the next writer
                taken.add(post.id)  # a cancel that could not be forgotten must not reach the next turn
            await self._session.log.forget([post.id])

    async def _take_post(self, post: Post) -> None:
        what = post.what
        if isinstance(what, PostMessage):
            if what.message.id not in self._session.state.ids:
                await self._put(what.message, what.lane, what.wake)
            await self._session.sync()
        elif isinstance(what, PostCancel):
            self.cancel(what.reach, cause=what.cause)
        else:
            await self.decide({what.call_id: _decision(what)})

    # --- for the loop --------------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        """The hooks of the stack as of now."""
        return self.home.host

    def take_up(self) -> Host:
        """The hooks for the coming step, whose stack stays open for it."""
        if self._held is not self.home:
            self.home.hold()
            self.let_go()
            self._held = self.home
        return self.home.host

    def let_go(self) -> None:
        """The turn needs no stack any more."""
        if self._held is not None:
            self._held.let_go()
            self._held = None

    def swapped(self) -> SessionOpen | None:
        """What the log must say if the plugins are others than it last named; once for each change."""
        if self.home.manifest == self._manifest:
            return None
        self._manifest = self.home.manifest
        return SessionOpen(reason="swap", kernel=self._kernel, plugins=self._manifest)

    @property
    def watching(self) -> bool:
        """Whether anybody watches."""
        return bool(self._watches)

    def spawn(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        self._group.start_soon(task, *args)

    def watched(self, delta: Delta) -> None:
        for watch in self._watches:
            watch.take(delta)

    def opened(self, agent: Agent) -> Model:
        """The model that an agent names."""
        model = agent.model
        return self.home.open_model(model) if isinstance(model, str) else model

    # --- guards --------------------------------------------------------------------------------------------

    def not_inside(self, method: str) -> None:
        """Raise `Reentrant` if the caller stands in this session's own turn, which would wait for it."""
        if self._busy and _inside.get().get(id(self)) == self._session.state.turn:
            raise Reentrant(self.session_id, method)

    def check_fault(self) -> None:
        if self._session.fault is not None:
            raise self._session.fault

    def check_open(self) -> None:
        self.check_fault()
        if self.status == "closed" or self._closing:
            raise Closed(f'The driver of session "{self.session_id}"')


_HEARD: Mapping[type, Callable[[Driver, Any], None]] = {
    TurnStart: Driver._begin_turn,
    StepStart: Driver._enter,
    InboxDrop: Driver._drop_receipts,
    UserMessage: Driver._collect,
    AssistantMessage: Driver._collect,
    ToolResult: Driver._collect_result,
    TurnEnd: Driver._end_turn,
}
"""What a driver does at a commit, by the type of event."""


class _Refused(Exception):
    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = ids


def _decision(post: PostDecision) -> Decision:
    if post.verdict == "allow":
        return Allow(json.loads(post.arguments) if post.arguments is not None else None)
    return Deny(post.text) if post.verdict == "deny" else Answer(post.text)
