"""What a dead process leaves behind: repair, resumable calls, decisions in another process, forks, store faults."""

import anyio
import pytest

from treadle import Agent, Allow, Limits, Stack, Text, Tool, hookimpl
from treadle.errors import Conflict, LeaseLost, StoreFault, UsageError
from treadle.events import InboxPut, ToolCall
from treadle.grammar import closers, fold
from treadle.store import Capabilities, MemoryStore, _Kept
from treadle_script import ScriptModel, call, calls


def died(events, upto):
    """A store in which a process died behind event `upto`."""
    store = MemoryStore()
    store._sessions["s"] = _Kept("s", 0.0, events=list(events[:upto]))
    return store


async def logged(model, tools, *prompts, plugins=(), limits=None):
    """The events of a whole session."""
    store = MemoryStore()
    agent = Agent(model=model, tools=tools, limits=limits or Limits())
    async with Stack(plugins, store=store).open(agent, "s") as driver:
        for text in prompts:
            await driver.prompt(text)
    return store._sessions["s"].events


def at(events, type, nth=0):
    """The seq of the nth event of a type."""
    return [e.seq for e in events if e.type == type][nth]


SAFE = Tool(name="safe", call=lambda: "safe again", replay="pure")
ONCE = Tool(name="once", call=lambda: "done once")


async def reopened(store, model, tools=(SAFE, ONCE)):
    return Stack(store=store).open(Agent(model=model, tools=list(tools)), "s")


async def test_tc_001_killed_in_the_middle_of_a_tool_the_next_request_is_valid_and_reopening_twice_adds_nothing():
    events = await logged(ScriptModel([call("once"), "ok"]), [ONCE], "list files")
    store = died(events, at(events, "tool/call"))
    model = ScriptModel(["hello"])
    async with await reopened(store, model) as driver:
        first = await driver.read()
        assert [e.type for e in first[-3:]] == ["tool/result", "step/end", "turn/end"]
        assert first[-3].data.status == "outcome_unknown"
        assert first[-1].time == first[-4].time  # the last event's time, as repair is a fact about the past
    async with await reopened(store, model) as driver:
        assert await driver.read() == first
        await driver.prompt("hello")
    assert [m.role for m in model.requests[0]] == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize(
    ("where", "nth", "types"),
    [
        ("turn/start", 0, ["turn/end"]),
        ("step/start", 0, ["step/end", "turn/end"]),
        ("user/message", 0, ["step/end", "turn/end"]),
        ("model/request", 0, ["model/failed", "step/end", "turn/end"]),
        ("assistant/message", 0, ["tool/call", "tool/result"] * 2 + ["step/end", "turn/end"]),
        ("tool/call", 0, ["tool/result", "tool/call", "tool/result", "step/end", "turn/end"]),
        ("tool/result", 0, ["tool/result", "step/end", "turn/end"]),
        ("step/end", 0, ["turn/end"]),
        ("turn/end", 0, []),
    ],
)
async def test_repair_closes_what_stood_open_at_each_event(where, nth, types):
    events = await logged(ScriptModel([calls(call("once"), call("safe")), "ok"]), [ONCE, SAFE], "hi")
    state = fold(events[: at(events, where, nth)])
    assert [data.type for data in closers(state)] == types


async def test_a_nudge_resumes_what_never_began_and_what_is_safe_once_and_then_goes_on():
    ran = []
    tools = [
        Tool(name="once", call=lambda: ran.append("once") or "1"),
        Tool(name="safe", call=lambda: ran.append("safe") or "2", replay="idempotent"),
        Tool(name="late", call=lambda: ran.append("late") or "3"),
    ]
    events = await logged(ScriptModel([calls(call("once"), call("safe"), call("late")), "ok"]), tools, "hi")
    store = died(events, at(events, "tool/call", 1))  # once and safe had begun, late had not
    ran.clear()
    model = ScriptModel(["went on"])
    async with await reopened(store, model, tools) as driver:
        result = await driver.nudge()
        resumed = [e for e in await driver.read() if e.type == "step/start"][1].data.resumes
    assert (sorted(ran), len(resumed), result.text) == (["late", "safe"], 2, "went on")
    statuses = [m.parts[0].status for m in model.requests[0] if m.role == "tool"]
    assert statuses == ["outcome_unknown", "ok", "ok"]


async def test_resumable_calls_are_gone_once_a_new_message_opened_a_step():
    ran = []
    tool = Tool(name="late", call=lambda: ran.append(1) or "x")
    events = await logged(ScriptModel([call("late"), "ok"]), [tool], "hi")
    store = died(events, at(events, "assistant/message"))
    ran.clear()
    async with await reopened(store, ScriptModel(["a", "b"]), [tool]) as driver:
        await driver.prompt("something else")
        with pytest.raises(UsageError, match="owes nothing"):
            await driver.nudge()
    assert ran == []


async def test_a_truncated_replys_calls_are_never_resumable():
    from treadle.model import Reply

    events = await logged(ScriptModel([Reply(parts=(call("once"),), finish="length"), "ok"]), [ONCE], "hi")
    store = died(events, at(events, "assistant/message"))
    async with await reopened(store, ScriptModel(["asked again"])) as driver:
        assert (await driver.nudge()).text == "asked again"
        assert not [e for e in await driver.read() if e.type == "step/start" and e.data.resumes]


async def test_a_message_that_was_put_and_synced_before_the_crash_is_taken_by_a_nudge_and_opening_starts_nothing():
    events = await logged(ScriptModel(["ok"]), [], "hi")
    store = died(events, at(events, "inbox/put"))
    model = ScriptModel(["late answer"])
    async with await reopened(store, model) as driver:
        await anyio.lowlevel.checkpoint()
        assert not driver.running and model.asked == [] and [m.text for m in driver.pending] == ["hi"]
        assert (await driver.nudge()).text == "late answer"


async def test_a_deferred_call_is_decided_in_another_process_and_twice_is_refused():
    ran = []
    tool = Tool(name="pay", call=lambda: ran.append(1) or "paid", needs_approval=True)
    events = await logged(ScriptModel([call("pay")]), [tool], "pay")
    store = died(events, len(events))
    async with await reopened(store, ScriptModel(["thanks"]), [tool]) as driver:
        (waiting,) = driver.waiting
        assert (await (await driver.decide({waiting.id: Allow()})).result()).text == "thanks"
        with pytest.raises(UsageError, match="do not wait"):
            await driver.decide({waiting.id: Allow()})
    assert ran == [1]


async def test_killed_between_decision_and_body_the_call_waits_again():
    ran = []
    tool = Tool(name="pay", call=lambda: ran.append(1) or "paid", needs_approval=True)
    store = MemoryStore()
    async with Stack(store=store).open(Agent(model=ScriptModel([call("pay"), "ok"]), tools=[tool]), "s") as driver:
        waiting = (await driver.prompt("pay")).waiting[0]
        await (await driver.decide({waiting.id: Allow()})).result()
    events = store._sessions["s"].events
    ran.clear()
    store = died(events, at(events, "step/start", 1))  # the resuming step had begun, its body not
    async with await reopened(store, ScriptModel(["thanks"]), [tool]) as driver:
        assert [c.id for c in driver.waiting] == [waiting.id]
        assert (await (await driver.decide({waiting.id: Allow()})).result()).text == "thanks"
    assert ran == [1]


async def test_killed_in_a_resumed_body_its_outcome_is_unknown_and_it_is_not_run_again():
    tool = Tool(name="pay", call=lambda: "paid", needs_approval=True)
    store = MemoryStore()
    async with Stack(store=store).open(Agent(model=ScriptModel([call("pay"), "ok"]), tools=[tool]), "s") as driver:
        waiting = (await driver.prompt("pay")).waiting[0]
        await (await driver.decide({waiting.id: Allow()})).result()
    events = store._sessions["s"].events
    store = died(events, at(events, "tool/call", 1))
    model = ScriptModel(["I cannot know"])
    async with await reopened(store, model, [tool]) as driver:
        assert driver.waiting == ()
        await driver.nudge()
    assert [m.parts[0].status for m in model.requests[0] if m.role == "tool"] == ["outcome_unknown"]


async def test_a_fork_has_an_empty_inbox_and_nothing_deferred_and_the_parent_goes_its_own_way():
    tool = Tool(name="pay", call=lambda: "paid", needs_approval=True)
    store = MemoryStore()
    stack = Stack(store=store)
    agent = Agent(model=ScriptModel([call("pay"), "parent on"]), tools=[tool])
    async with stack.open(agent, "s") as driver:
        waiting = (await driver.prompt("pay")).waiting[0]
        await driver.inject("only the parent's")
        child = await stack.sessions(store).fork("s", name="child")
        model = ScriptModel(["child answer"])
        async with stack.open(Agent(model=model, tools=[tool]), child) as other:
            assert other.pending == () and other.waiting == ()
            with pytest.raises(UsageError):
                await other.decide({waiting.id: Allow()})
            assert (await other.prompt("go on")).turn == 2
        assert [m.text for m in model.requests[0] if m.role == "user"] == ["pay", "go on"]
        await (await driver.decide({waiting.id: Allow()})).result()
    assert [e.data.reason for e in await stack.sessions(store).read(child) if e.type == "session/open"] == [
        "new", "fork", "resume",
    ]  # fmt: skip


async def test_a_forks_edit_may_name_inherited_items_and_the_parent_never_sees_it():
    store = MemoryStore()
    stack = Stack(store=store)
    await stack.run(Agent(model=ScriptModel(["a"])), "one", session="s")
    child = await stack.sessions(store).fork("s", name="child")
    async with stack.open(Agent(model=ScriptModel()), child) as driver:

        async def shorten(context):
            items = context.view.items
            context.edit(items[0].seq, items[-1].seq, "in short")

        await driver.maintain(shorten)
        assert [m.text for m in driver.view] == ["in short"]
    assert [m.text for m in fold(await stack.sessions(store).read("s")).view] == ["one", "a"]


# --- store faults ---------------------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A store whose log fails, hangs or loses its lease at the nth append."""

    def __init__(self, nth, how):
        super().__init__()
        self.nth, self.how = nth, how

    @property
    def capabilities(self):
        return Capabilities(push=True, suspends=True)

    async def open(self, session_id, write):
        log = await super().open(session_id, write)
        append, count = log.append, 0

        async def failing(events, expected_seq):
            nonlocal count
            count += 1
            if count == self.nth:
                if self.how == "hangs":
                    await anyio.sleep_forever()
                raise {"fails": OSError("disk gone"), "lease": LeaseLost("s"), "conflict": Conflict("s", 1, 2)}[
                    self.how
                ]
            await anyio.lowlevel.checkpoint()
            await append(events, expected_seq)

        log.append = failing
        return log


@pytest.mark.parametrize("how", ["fails", "hangs", "lease", "conflict"])
@pytest.mark.parametrize("nth", range(1, 8))
async def test_a_store_fault_stops_the_driver_raises_for_all_who_wait_and_reopening_repairs(nth, how):
    store = Failing(nth, how)
    agent = Agent(model=ScriptModel([call("safe"), "ok"]), tools=[SAFE], limits=Limits(store_seconds=0.05))
    with pytest.raises(StoreFault):
        async with Stack(store=store).open(agent, "s") as driver:
            receipt = await driver.follow_up("hi")
            await receipt.fate()
    assert driver.status == "closed"
    events = list(store._sessions["s"].events) if "s" in store._sessions else []
    if events:
        async with await reopened(died(events, len(events)), ScriptModel(["again"])) as driver:
            await driver.prompt("more")


async def test_after_a_store_fault_nothing_is_written_and_bodies_are_cancelled():
    ended = []

    async def body():
        store.how = "fails"
        try:
            await anyio.sleep_forever()
        except BaseException:
            ended.append(1)
            raise

    store = Failing(10**9, "fails")
    limits = Limits(grace_seconds=0.05)
    async with Stack(store=store).open(
        Agent(model=ScriptModel([call("t")]), tools=[Tool(name="t", call=body)], limits=limits), "s"
    ) as driver:
        receipt = await driver.follow_up("hi")
        while not any(isinstance(e.data, ToolCall) for e in store._sessions["s"].events):
            await anyio.lowlevel.checkpoint()
        driver._session._fail(OSError("gone"))
        with pytest.raises(StoreFault):
            await receipt.fate()
        before = len(store._sessions["s"].events)
        with pytest.raises(StoreFault):
            await driver.follow_up("more")
    assert len(store._sessions["s"].events) == before and ended == [1]


async def test_two_steers_at_once_never_conflict():
    store = Failing(10**9, "")
    async with Stack(store=store).open(Agent(model=ScriptModel(["x"], last=True)), "s") as driver:
        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(driver.steer, f"m{n}")
        await driver.until_idle()
        puts = [e for e in await driver.read() if isinstance(e.data, InboxPut)]
    assert len(puts) == 20


async def test_the_callers_cancel_never_splits_commit_and_wake():
    """A put whose caller is cancelled during the append still wakes the driver."""
    store = Failing(10**9, "")
    model = ScriptModel(["ok"])
    async with Stack(store=store).open(Agent(model=model), "s") as driver:
        async with anyio.create_task_group() as group:

            async def leave():
                await driver.follow_up("hi")

            group.start_soon(leave)
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await driver.until_idle()
        events = await driver.read()
        assert not events or events[-1].data.reason == "completed"


async def test_a_stack_swap_between_steps_is_logged_and_the_old_stack_closes_when_its_last_step_lets_go():
    from contextlib import asynccontextmanager

    class Marks:
        def __init__(self, name):
            self.name = name

        @hookimpl
        @asynccontextmanager
        async def lifespan(self):
            seen.append(f"{self.name} open")
            yield
            seen.append(f"{self.name} closed")

        @hookimpl
        def before_step(self, batch, context):
            seen.append(f"{self.name} step {context.step}")

        @hookimpl
        def after_tool(self):
            seen.append(f"{self.name} after tool")

    async def swap():
        driver.use(stack=new)
        leave.set()
        await anyio.wait_all_tasks_blocked()  # the old stack's owner waits in its exit
        return "swapped"

    seen, leave, opened = [], anyio.Event(), anyio.Event()
    old, new = Stack([Marks("old")]), Stack([Marks("new")])

    async def owner():
        async with old:
            opened.set()
            await leave.wait()

    agent = Agent(model=ScriptModel([call("swap"), "ok"]), tools=[Tool(name="swap", call=swap)])
    async with new, anyio.create_task_group() as group, new.open(agent) as driver:
        group.start_soon(owner)
        await opened.wait()
        driver.use(stack=old)
        await driver.prompt("hi")
        opens = [e.data for e in await driver.read() if e.type == "session/open"]
    assert seen[:2] == ["new open", "old open"]
    assert seen[2:] == ["old step 1", "old after tool", "new step 2", "old closed", "new closed"]
    assert [(o.reason, o.plugins) for o in opens] == [
        ("new", (("new", ""),)), ("swap", (("old", ""),)), ("swap", (("new", ""),)),
    ]  # fmt: skip


async def test_text_parts_survive_resume_unchanged():
    events = await logged(ScriptModel(["a\x00b\ud800"]), [], "hi")
    async with await reopened(died(events, len(events)), ScriptModel()) as driver:
        assert driver.view[1].parts == (Text("a\x00b\ud800"),)
