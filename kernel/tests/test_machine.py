"""A Hypothesis machine over the driver: whatever is sent, cancelled, decided, edited, crashed or forked, the log is
lawful, replays to the live state, loses nothing, takes nothing twice, and idles only with nothing left to do."""

import os
from collections import Counter
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from treadle import (
    Agent,
    Allow,
    Answer,
    Defer,
    Deny,
    Halt,
    Limits,
    Message,
    Retry,
    Stack,
    Text,
    Tool,
    ToolAnswer,
    hookimpl,
)
from treadle.driver import Driver
from treadle.errors import ProviderError, SessionBusy, TreadleError, UsageError
from treadle.events import InboxDrop, InboxPut, StepStart, ToolCall, ToolResult
from treadle.grammar import fold
from treadle.model import CallDelta, Finish, TextDelta
from treadle.store import MemoryStore, PostCancel, PostMessage
from treadle.testing import faults_of, prefix_faults, summary

FIRED: Counter[str] = Counter()
ANY = {"type": "object"}
LIMITS = Limits(max_steps=6, max_vetoes=2, max_attempts=3, max_parallel=2, grace_seconds=0.01, max_turns_alone=4)
TOOLS = ("free", "held", "stubborn", "exclusive", "raises", "denied", "asks", "final", "pure", "unknown", "bad")


DRAWN = (*TOOLS, "held", "held", "held", "asks", "asks", "asks", "exclusive", "stubborn")
"""Tools as replies ask for them; those that let other rules fire more often."""


class CrashStore(MemoryStore):
    """Sessions in memory that remember how much of them was synced, so that a crash can lose the rest."""

    def __init__(self, events=()):
        super().__init__()
        self.synced = len(events)
        if events:
            from treadle.store import _Kept

            self._sessions["s"] = _Kept("s", 0.0, events=list(events))

    async def open(self, session_id, write):
        log = await super().open(session_id, write)
        if write and session_id == "s":

            async def sync():
                self.synced = len(self._sessions["s"].events)

            log.sync = sync
        return log

    @property
    def events(self):
        return self._sessions["s"].events if "s" in self._sessions else []


class World:
    """The model, tools and hooks, each of whose answers a rule lets go."""

    ref, family, window_tokens = "world:model", "world", None

    def __init__(self):
        self.asks: list[list] = []  # [event, pieces] of requests that wait
        self.bodies: list[list] = []  # [event, answer, call id]
        self.ran: Counter[str] = Counter()
        self.live: dict[str, bool] = {}  # running bodies, and whether they are exclusive
        self.left = set  # calls whose bodies were left behind: the exclusive promise does not cover them
        self.overlap = False
        self.closing = False
        self.step = self.stop = self.after = self.error = "pass"

    @asynccontextmanager
    async def stream(self, request):
        async def pieces():
            mine = [anyio.Event(), ()]
            self.asks.append(mine)
            try:
                yield TextDelta("so far ")
                await mine[0].wait()
            finally:
                self.asks.remove(mine)
            for piece in mine[1]:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece

        yield pieces()

    def tool(self, name):
        async def body(context):
            self.ran[context.call] += 1
            exclusive = name == "exclusive"
            beside = {other: alone for other, alone in self.live.items() if other not in self.left()}
            self.overlap |= bool(beside) and (exclusive or any(beside.values()))
            self.live[context.call] = exclusive
            mine = [anyio.Event(), name, context.call]
            try:
                if name in ("held", "stubborn", "exclusive"):
                    self.bodies.append(mine)
                    with anyio.CancelScope(shield=name == "stubborn" and not self.closing):
                        await mine[0].wait()
                if name == "raises":
                    raise RuntimeError("as asked")
                return ToolAnswer(parts="done", concludes=name == "final")
            finally:
                if mine in self.bodies:
                    self.bodies.remove(mine)
                del self.live[context.call]

        from treadle import CallContext

        body.__annotations__["context"] = CallContext
        replay = "pure" if name == "pure" else "at_most_once"
        parameters = {"type": "object", "required": ["x"]} if name == "bad" else ANY
        return Tool(name=name, call=body, parameters=parameters, exclusive=name == "exclusive", replay=replay)

    @hookimpl
    async def before_step(self, batch):
        mode, self.step = self.step, "pass"
        if mode == "halt":
            return Halt("as asked")
        if mode == "raise":
            raise RuntimeError("as asked")
        if mode == "drop":
            return batch[1:]
        if mode == "rewrite":
            return [attrs.evolve(each, parts=(Text("rewritten"),)) for each in batch]
        if mode == "add":
            return [*batch, Message(id=f"added-{os.urandom(6).hex()}", role="context", parts=(Text("added"),))]
        return None

    @hookimpl
    def transform_context(self, view, context):
        return view.insert("remember") if context.step % 2 == 0 else None

    @hookimpl
    def on_turn_stopping(self):
        mode, self.stop = self.stop, "pass"
        if mode == "raise":
            raise RuntimeError("as asked")
        return "are you sure?" if mode == "object" else None

    @hookimpl
    async def after_tool(self):
        mode, self.after = self.after, "pass"
        if mode == "raise":
            raise RuntimeError("as asked")

    @hookimpl
    def on_model_error(self, context):
        mode, self.error = self.error, "pass"
        if mode == "edit" and len(items := context.session and self.items()) > 3:
            context.edit(items[0].seq, items[1].seq, "shorter")
        return Retry() if mode in ("retry", "edit") else None

    def items(self):
        return ()

    @hookimpl
    def before_tool(self, call):
        return {"denied": Deny("no"), "asks": Defer("ask")}.get(call.name)


class Machine(RuleBasedStateMachine):
    backend = "asyncio"

    def __init__(self):
        super().__init__()
        self.manager = start_blocking_portal(self.backend)
        self.portal = self.manager.__enter__()
        self.store, self.count, self.sent, self.receipts = CrashStore(), 0, set(), []
        self.grown = False
        self.begin()

    def begin(self):
        self.world = World()
        self.stack = Stack([self.world], store=self.store)
        tools = [self.world.tool(name) for name in TOOLS if name != "unknown"]
        self.agent = Agent(model=self.world, tools=tools, limits=LIMITS)
        self.opened = self.portal.wrap_async_context_manager(self.stack.open(self.agent, "s"))
        self.driver: Driver = self.opened.__enter__()
        self.receipts = []
        self.world.left = lambda: {
            e.data.call_id for e in self.store.events if isinstance(e.data, ToolResult) and e.data.status == "detached"
        }

    def do(self, name, function, *args):
        """Run one action on the loop and let everything settle."""
        FIRED[name] += 1
        self.grown = True

        async def act():
            try:
                value = await function(*args) if function is not None else None
            except (UsageError, TreadleError) as error:
                value = error
            await self.settle()
            return value

        return self.portal.call(act)

    async def settle(self):
        await calm(self.backend)
        turn = self.driver._turn
        while turn is not None and turn.cause and self.driver._turn is turn:
            await anyio.sleep(0.002)
            await calm(self.backend)

    # --- rules ------------------------------------------------------------------------------------------

    @rule()
    @precondition(lambda self: not self.driver.running)
    def wake(self):
        self.put("follow_up")

    @rule(lane=st.sampled_from(["follow_up", "steer", "inject"]))
    @precondition(lambda self: len(self.driver.pending) < 3)
    def send(self, lane):
        self.put(lane)

    def put(self, lane):
        self.count += 1
        message = Message(id=f"m{self.count}-{id(self.store)}", role="user", parts=(Text(f"message {self.count}"),))
        receipt = self.do(lane, getattr(self.driver, lane), message)
        self.sent.add(message.id)
        self.receipts.append(receipt)

    @rule(kind=st.sampled_from(["text", "empty", "fault", "error", "cut", "length", "refused"]))
    @precondition(lambda self: self.world.asks)
    def reply(self, kind):
        pieces = {
            "text": (TextDelta("the end"), Finish(finish="end")),
            "empty": (Finish(finish="end"),),
            "fault": (Finish(finish="fault"),),
            "error": (ProviderError("server", "as asked"),),
            "cut": (),
            "length": (CallDelta(key=9, name="free", arguments="{"), Finish(finish="length")),
            "refused": (Finish(finish="refused"),),
        }[kind]
        self.release(f"reply {kind}", self.world.asks[0], pieces)

    @rule(names=st.lists(st.sampled_from(DRAWN), min_size=1, max_size=4))
    @precondition(lambda self: self.world.asks)
    def reply_calls(self, names):
        self.calls(names)

    def calls(self, names):
        deltas = tuple(CallDelta(key=at, name=name, arguments="{}") for at, name in enumerate(names))
        self.release("reply calls", self.world.asks[0], (*deltas, Finish(finish="calls")))

    @rule(at=st.integers(0, 3))
    @precondition(lambda self: self.world.bodies)
    def settle_body(self, at):
        self.release("settle body", self.world.bodies[at % len(self.world.bodies)], "x")

    @rule(names=st.lists(st.sampled_from(DRAWN), min_size=1, max_size=4))
    @precondition(lambda self: self.world.asks)
    def reply_more_calls(self, names):
        self.calls(names)

    @rule()
    @precondition(lambda self: self.world.asks)
    def reply_text(self):
        self.release("reply text", self.world.asks[0], (TextDelta("the end"), Finish(finish="end")))

    def release(self, name, waiting, answer):
        async def go():
            waiting[1] = answer
            waiting[0].set()

        self.do(name, go)

    @rule(
        step=st.sampled_from(["pass", "halt", "raise", "drop", "rewrite", "add"]),
        stop=st.sampled_from(["pass", "object", "raise"]),
        after=st.sampled_from(["pass", "raise"]),
        error=st.sampled_from(["pass", "retry", "edit"]),
    )
    @precondition(lambda self: self.world.asks or self.world.bodies)
    def hooks(self, step, stop, after, error):
        FIRED["hooks"] += 1
        self.world.step, self.world.stop, self.world.after, self.world.error = step, stop, after, error
        self.world.items = lambda: self.driver.view.items

    @rule(reach=st.sampled_from(["turn", "turn", "all", "model"]))
    @precondition(lambda self: self.driver.running or self.driver.pending)
    def cancel(self, reach):
        async def cancel():
            self.driver.cancel(reach)

        self.do(f"cancel {reach}", cancel)

    @rule(at=st.integers(0, 3))
    @precondition(lambda self: self.world.bodies)
    def cancel_call(self, at):
        async def cancel():
            self.driver.cancel("call", call=self.world.bodies[at % len(self.world.bodies)][2])
            await anyio.sleep(0.015)  # a stubborn one is left behind after the grace period

        self.do("cancel call", cancel)

    @rule(at=st.integers(0, 20))
    @precondition(lambda self: self.driver.pending)
    def withdraw(self, at):
        ids = sorted(self.sent)
        self.do("withdraw", self.driver.withdraw, ids[at % len(ids)] if ids else "nobody")

    def may_nudge(self):
        state = self.driver._session.state
        return self.driver.running or state.pending or state.resumable or (state.owed and not state.last_deferred)

    @rule()
    @precondition(lambda self: not self.driver.running and self.may_nudge())
    def nudge(self):
        async def nudge():
            if self.driver.running:
                with pytest.raises(UsageError):
                    await self.driver.nudge()
                return
            with anyio.move_on_after(0):
                await self.driver.nudge()

        self.do("nudge", nudge)

    @rule(verdict=st.sampled_from([Allow(), Allow(arguments={"edited": 1}), Deny("no"), Answer("by hand")]))
    @precondition(lambda self: self.driver.waiting)
    def decide(self, verdict):
        self.do("decide", self.driver.decide, {self.driver.waiting[0].id: verdict})

    @rule(first=st.integers(0, 5), length=st.integers(0, 5), hide=st.booleans())
    @precondition(lambda self: not self.driver.running and len(self.driver.view) > 1)
    def maintain(self, first, length, hide):
        async def work(context):
            items = context.view.items
            if items:
                a, b = items[first % len(items)], items[min(first % len(items) + length, len(items) - 1)]
                context.edit(a.seq, b.seq, None if hide else "in short")

        self.do("maintain", self.driver.maintain, work)

    @rule(wake=st.booleans())
    @precondition(lambda self: len(self.driver.pending) < 3)
    def post(self, wake):
        self.count += 1
        message = Message(id=f"p{self.count}-{id(self.store)}", role="user", parts=(Text("posted"),))
        self.do("post", self.store.post, "s", PostMessage(message=message, wake=wake))

    @rule()
    @precondition(lambda self: self.driver.running)
    def post_cancel(self):
        self.do("post cancel", self.store.post, "s", PostCancel())

    @rule()
    @precondition(lambda self: self.driver.running)
    def second_writer(self):
        async def open_again():
            if self.driver.seq:
                with pytest.raises(SessionBusy):
                    await self.store.open("s", write=True)

        self.do("second writer", open_again)

    @rule()
    @precondition(lambda self: self.grown and len(self.store.events) > 8)
    def reopen(self):
        FIRED["reopen"] += 1
        before = len(self.store.events)
        running = self.driver.running
        self.close()
        closed = list(self.store.events)
        if not running:
            assert len(closed) == before
        self.begin()
        assert self.store.events == closed

    @rule(keep=st.integers(0, 30))
    @precondition(lambda self: self.grown and len(self.store.events) > 8)
    def crash(self, keep):
        """The process dies: a prefix survives, at least the synced one."""
        FIRED["crash"] += 1
        events = list(self.store.events)
        length = min(len(events), self.store.synced + keep)
        survivors = events[:length]
        self.kill()
        self.store = CrashStore(survivors)
        ran = self.world.ran
        self.begin()
        self.world.ran = ran
        assert self.store.events[:length] == survivors
        again = list(self.store.events)
        self.kill()
        self.store = CrashStore(again)
        self.begin()
        self.world.ran = ran
        assert self.store.events == again  # repairing twice adds nothing
        self.sent = {
            i for i in self.sent if any(isinstance(e.data, InboxPut) and e.data.message.id == i for e in again)
        }

    def kill(self):
        """Stop a driver without letting it write."""
        from treadle.errors import StoreFault

        self.driver._session.fault = StoreFault("s", "killed")
        self.close()

    def close(self):
        """Close the driver; a body that shields itself from cancels is let go, as only a close may wait for it."""
        self.grown = False

        async def let_go():
            self.world.closing = True
            for body in self.world.bodies:
                if body[1] == "stubborn":
                    body[0].set()

        self.portal.call(let_go)
        self.opened.__exit__(None, None, None)

    @rule(at=st.integers(0, 60))
    @precondition(lambda self: self.grown and len(self.store.events) > 8)
    def fork(self, at):
        async def fork():
            name = f"f{self.count}-{len(self.store._sessions)}"
            seq = 1 + at % len(self.store.events)
            parent = list(self.store.events)
            await self.stack_sessions().fork("s", seq, name=name)
            child = await (await self.store.open(name, write=False)).read()
            assert list(child[:seq]) == parent[:seq]
            state = fold(child, name)
            assert state.idle and not state.pending and not state.deferred and faults_of(child) == []

        result = self.do("fork", fork)
        if isinstance(result, UsageError):
            assert "inside a step" in str(result)

    def stack_sessions(self):
        return Stack(store=self.store).sessions(self.store)

    # --- what always holds ----------------------------------------------------------------------------------

    @invariant()
    def the_log_is_lawful_and_replays_to_the_live_state(self):
        events = list(self.store.events)
        assert faults_of(events, balanced=False) == []
        live = self.driver._session.state
        replayed = fold(events)
        if live.phase.value != "NEW" or events:
            assert summary(replayed) == summary(live)

    @invariant()
    def nothing_is_lost_or_taken_twice(self):
        fates: Counter[str] = Counter(list(self.driver._session.state.pending))
        for event in self.store.events:
            if isinstance(event.data, StepStart):
                fates.update(event.data.claims)
            elif isinstance(event.data, InboxDrop):
                fates.update(event.data.ids)
        puts = [e.data.message.id for e in self.store.events if isinstance(e.data, InboxPut)]
        assert sorted(fates.elements()) == sorted(puts)
        assert self.sent <= set(puts)

    @invariant()
    def an_idle_driver_has_nothing_left_to_do_and_owes_no_receipt(self):
        if self.driver.running:
            return
        state = self.driver._session.state
        assert not state.wakes() or state.parked or not self.store.events or self.fresh()
        for receipt in self.receipts:
            if hasattr(receipt, "_known"):
                assert receipt._known is not None

    def fresh(self):
        """Opened and not yet woken: opening starts nothing."""
        return self.driver._session._opening is not None

    @invariant()
    def bodies_run_once_exclusive_ones_alone_and_only_after_their_call_was_logged(self):
        assert not self.world.overlap
        safe = {e.data.call_id for e in self.store.events if isinstance(e.data, ToolCall) and e.data.replay == "safe"}
        for call_id, times in self.world.ran.items():
            assert times == 1 or call_id in safe

    def teardown(self):
        try:
            self.close()
            if self.store.events:
                assert faults_of(self.store.events) == [], faults_of(self.store.events)
                assert prefix_faults(self.store.events) == []
        finally:
            self.manager.__exit__(None, None, None)


async def calm(backend):
    """Return when every other task waits for something."""
    if backend == "trio":
        import trio.testing

        await trio.testing.wait_all_tasks_blocked()
    else:
        import asyncio

        loop = asyncio.get_running_loop()
        while loop._ready:  # noqa: ASYNC110 - one turn of the loop is the point
            await asyncio.sleep(0)


@pytest.fixture
def checked_logs():
    """The machine checks its logs itself."""


def run(backend, examples, steps):
    machine = type(f"Machine_{backend}", (Machine,), {"backend": backend})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks, database=None
        ),
    )


def printed(capsys, backend):
    with capsys.disabled():
        print(f"\nrules fired ({backend}): " + ", ".join(f"{name} {n}" for name, n in sorted(FIRED.items())))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_driver_keeps_its_word_whatever_is_done_to_it(backend, capsys):
    FIRED.clear()
    run(backend, 60, 40)
    printed(capsys, backend)


def by_rule():
    """How often each rule fired, whatever kind of reply or cancel was drawn in it."""
    rules: Counter[str] = Counter()
    for name, times in FIRED.items():
        rules["cancel" if name in ("cancel turn", "cancel all", "cancel model") else name.split(" ")[0]] += times
    return rules


BATCHES = int(os.environ.get("TREADLE_BATCHES", "5"))
TOTALS: dict[str, Counter[str]] = {"asyncio": Counter(), "trio": Counter()}


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_driver_keeps_its_word_over_many_long_scripts(backend, batch, capsys):
    FIRED.clear()
    run(backend, 250, 50)
    TOTALS[backend].update(by_rule())
    if batch == BATCHES - 1:
        with capsys.disabled():
            print(f"\nall rules ({backend}): {dict(sorted(TOTALS[backend].items()))}")
