"""Cancel, time-outs and what is left behind: lawful logs, bounded time, nothing begun after a cancel."""

import threading
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from treadle import Agent, Allow, Limits, Retry, Stack, Text, Tool, hookimpl
from treadle.grammar import fold
from treadle.model import CallDelta, Finish, TextDelta
from treadle.results import IsParked, WasDropped
from treadle.store import MemoryStore
from treadle.testing import Stepper, faults_of
from treadle_script import ScriptModel, call, calls

ANY = {"type": "object"}
END = Finish(finish="end")
QUICK = Limits(grace_seconds=0.05)


class Held:
    """A body that waits to be let go, and says how it ended."""

    def __init__(self, stubborn=False):
        self.reached, self.go, self.ended, self.stubborn = anyio.Event(), anyio.Event(), "", stubborn

    async def __call__(self):
        self.reached.set()
        try:
            with anyio.CancelScope(shield=self.stubborn):
                await self.go.wait()
            self.ended = "ok"
            return "held"
        except BaseException as error:
            self.ended = type(error).__name__
            raise


class Slow:
    """A model that streams some pieces, then waits; then the rest."""

    ref, family, window_tokens = "slow:model", "slow", None

    def __init__(self, *before, rest=(END,), stubborn=False):
        self.before, self.rest, self.stubborn = before, rest, stubborn
        self.reached, self.go, self.closed = anyio.Event(), anyio.Event(), 0

    @asynccontextmanager
    async def stream(self, request):
        async def pieces():
            for piece in self.before:
                yield piece
            self.reached.set()
            with anyio.CancelScope(shield=self.stubborn):
                await self.go.wait()
            for piece in self.rest:
                yield piece

        try:
            yield pieces()
        finally:
            self.closed += 1


async def kinds(driver, last):
    return [e.type for e in await driver.read()][-last:]


async def test_a_cancel_in_the_model_call_keeps_complete_visible_text_and_closes_the_stream():
    model = Slow(TextDelta("Once upon"), CallDelta(key=1, name="t", arguments='{"a'))
    async with Stack().open(Agent(model=model)) as driver:
        receipt = await driver.follow_up("hi")
        await model.reached.wait()
        assert driver.cancel(cause="stop pressed")
        result = await receipt.result()
        assert (result.reason, result.detail, result.text) == ("aborted", "stop pressed", "Once upon")
        assert await kinds(driver, 3) == ["assistant/message", "step/end", "turn/end"]
        message = (await driver.read())[-3].data
        assert message.interrupted and message.message.calls == () and model.closed == 1
        assert driver.parked


async def test_a_cancel_before_any_visible_text_leaves_a_failed_request():
    model = Slow(TextDelta(" \n"), CallDelta(key=1, name="t", arguments="{}"))
    async with Stack().open(Agent(model=model)) as driver:
        receipt = await driver.follow_up("hi")
        await model.reached.wait()
        driver.cancel()
        await receipt.result()
        failed = (await driver.read())[-3].data
        assert (failed.kind, failed.action) == ("cancelled", "stop")


async def test_tc_003_after_an_interrupted_reply_nothing_runs_until_the_user_speaks():
    model = Slow(TextDelta("Done."), CallDelta(key=1, name="write_file", arguments="{}"))
    async with Stack().open(Agent(model=model)) as driver:
        await driver.follow_up("hi")
        await model.reached.wait()
        driver.cancel()
        await driver.until_idle()
        after = ScriptModel(["ok"])
        driver.use(Agent(model=after))
        await driver.prompt("next")
    assert [(m.role, m.text) for m in after.requests[0]] == [("user", "hi"), ("assistant", "Done."), ("user", "next")]


async def test_a_cancel_in_the_tools_settles_each_call_in_model_order():
    first, second = Held(), Held()
    tools = [Tool(name="a", call=first), Tool(name="b", call=second), Tool(name="c", call=lambda: "c", exclusive=True)]
    model = ScriptModel([calls(call("a"), call("b"), call("c"))])
    async with Stack().open(Agent(model=model, tools=tools, limits=QUICK)) as driver:
        receipt = await driver.follow_up("hi")
        await first.reached.wait()
        await second.reached.wait()
        driver.cancel()
        result = await receipt.result()
        statuses = [m.parts[0].status for m in result.messages if m.role == "tool"]
        assert (statuses, result.reason) == (["cancelled", "cancelled", "not_started"], "aborted")


async def test_a_body_that_ignores_the_cancel_is_left_behind_and_named_and_its_late_result_is_ignored():
    body, told = Held(stubborn=True), []

    class Hears:
        @hookimpl
        def on_hook_error(self, hook, plugin, error):
            told.append((hook, plugin))

    model = ScriptModel([call("a"), "next"])
    async with Stack([Hears()]).open(Agent(model=model, tools=[Tool(name="a", call=body)], limits=QUICK)) as driver:
        receipt = await driver.follow_up("hi")
        await body.reached.wait()
        driver.cancel()
        result = await receipt.result()
        answer = result.messages[-1].parts[0]
        assert (answer.status, "a did not stop" in answer.parts[0].text, told) == ("detached", True, [("body", "a")])
        body.go.set()
        await driver.prompt("on")
        assert [m.parts[0].status for m in driver.view if m.role == "tool"] == ["detached"]


async def test_a_body_that_ends_within_the_grace_period_keeps_its_real_result_and_passes_after_tool():
    async def body():
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            return "secret"  # noqa: B012 - a tool may answer a cancel

    class Redacts:
        @hookimpl
        async def after_tool(self, result):
            import attrs

            return attrs.evolve(result, parts=(Text("***"),))

    started = anyio.Event()
    model = ScriptModel([call("a")])
    async with Stack([Redacts()]).open(Agent(model=model, tools=[Tool(name="a", call=body)])) as driver:
        receipt = await driver.follow_up("hi")
        await started.wait()
        driver.cancel()
        result = await receipt.result()
    assert result.messages[-1].parts[0].parts == (Text("***"),)


async def test_a_redactor_that_fails_at_a_cancel_never_lets_the_raw_value_pass():
    class Breaks:
        @hookimpl
        def after_tool(self):
            raise ValueError("no")

    async def body():
        return "secret"

    async with Stack([Breaks()]).open(
        Agent(model=ScriptModel([call("a"), "ok"]), tools=[Tool(name="a", call=body)])
    ) as driver:
        result = await driver.prompt("hi")
    answer = result.messages[2].parts[0]
    assert (answer.status, "secret" in str(answer)) == ("error", False)


async def test_a_stream_that_ignores_the_cancel_is_left_behind():
    model = Slow(TextDelta("text"), stubborn=True)
    async with Stack().open(Agent(model=model, limits=QUICK)) as driver:
        receipt = await driver.follow_up("hi")
        await model.reached.wait()
        driver.cancel()
        assert (await receipt.result()).reason == "aborted"
        model.go.set()


@pytest.mark.parametrize("hook", ["before_step", "transform_context", "on_turn_stopping", "before_tool", "after_tool"])
async def test_a_hook_that_hangs_ends_at_a_cancel(hook):
    reached = anyio.Event()

    async def hang(self):
        reached.set()
        await anyio.sleep_forever()

    plugin = type("Hangs", (), {hook: hookimpl(hang)})()
    hang.__name__ = hook
    model = ScriptModel([call("t"), "ok"])
    async with Stack([plugin]).open(Agent(model=model, tools=[Tool(name="t", call=lambda: "x")], limits=QUICK)) as d:
        receipt = await d.follow_up("hi")
        await reached.wait()
        d.cancel()
        with anyio.fail_after(5):
            fate = await receipt.fate()
        await d.until_idle()
        assert (await d.read())[-1].data.reason == "aborted" and fate


async def test_a_hook_that_hangs_ends_at_hook_seconds():
    class Hangs:
        @hookimpl
        async def on_turn_stopping(self):
            await anyio.sleep_forever()

        @hookimpl
        async def before_tool(self):
            await anyio.sleep_forever()

    model = ScriptModel([call("t"), "ok"])
    agent = Agent(model=model, tools=[Tool(name="t", call=lambda: "x")], limits=Limits(hook_seconds=0.02))
    result = await Stack([Hangs()]).run(agent, "hi")
    assert (result.reason, result.text, result.messages[2].parts[0].status) == ("completed", "ok", "denied")


async def test_a_cancel_while_waiting_for_a_retry_beats_the_verdict():
    class Retries:
        @hookimpl
        def on_model_error(self):
            return Retry(after_seconds=3600)

        @hookimpl
        def on_event(self, event):
            if event.type == "model/failed":
                failed.set()

    from treadle.errors import ProviderError

    failed = anyio.Event()
    async with Stack([Retries()]).open(Agent(model=ScriptModel([ProviderError("server", "x")]))) as driver:
        receipt = await driver.follow_up("hi")
        await failed.wait()
        driver.cancel()
        result = await receipt.result()
        assert result.reason == "aborted"


async def test_the_first_cause_wins():
    model = Slow()
    async with Stack().open(Agent(model=model)) as driver:
        receipt = await driver.follow_up("hi")
        await model.reached.wait()
        driver.cancel(cause="first")
        driver.cancel(cause="second")
        assert (await receipt.result()).detail == "first"


async def test_a_cancel_when_idle_only_drops_and_does_not_poison_the_next_prompt():
    async with Stack().open(Agent(model=ScriptModel(["ok"]))) as driver:
        aside = await driver.inject("aside")
        assert driver.cancel("all") is False
        while driver.pending:
            await anyio.lowlevel.checkpoint()
        assert (await driver.prompt("hi")).reason == "completed"
        assert aside.id not in [m.id for m in driver.view]


async def test_cancel_of_the_model_call_lets_a_plugin_retry():
    class Retries:
        @hookimpl
        def on_model_error(self, error):
            assert error.kind == "cancelled"
            return Retry()

    model = Slow(TextDelta("x"))
    async with Stack([Retries()]).open(Agent(model=model)) as driver:
        receipt = await driver.follow_up("hi")
        await model.reached.wait()
        model.reached = anyio.Event()
        assert driver.cancel("model")
        await model.reached.wait()
        model.go.set()
        result = await receipt.result()
        assert (result.reason, result.text) == ("completed", "x")


async def test_cancel_of_the_model_call_without_a_retry_fails_the_turn():
    model = Slow(TextDelta("x"))
    async with Stack().open(Agent(model=model)) as driver:
        receipt = await driver.follow_up("hi")
        await model.reached.wait()
        driver.cancel("model")
        assert (await receipt.result()).reason == "failed"


async def test_cancel_of_one_call_leaves_the_others_and_the_turn():
    first, second = Held(), Held()
    model = ScriptModel([calls(call("a"), call("b")), "ok"])
    tools = [Tool(name="a", call=first), Tool(name="b", call=second)]
    async with Stack().open(Agent(model=model, tools=tools)) as driver:
        receipt = await driver.follow_up("hi")
        await first.reached.wait()
        await second.reached.wait()
        asked = (await driver.read())[-3].data.message.calls
        assert driver.cancel("call", call=asked[0].id)
        assert not driver.cancel("call", call="nobody")
        second.go.set()
        result = await receipt.result()
        statuses = [m.parts[0].status for m in result.messages if m.role == "tool"]
        assert (statuses, result.text) == (["cancelled", "ok"], "ok")


async def test_a_tool_times_out_and_the_model_reads_it():
    body = Held()
    model = ScriptModel([call("a"), "ok"])
    tool = Tool(name="a", call=body, timeout_seconds=0.02)
    result = await Stack().run(Agent(model=model, tools=[tool]), "hi")
    assert (result.messages[2].parts[0].status, body.ended != "ok", result.text) == ("timeout", True, "ok")


async def test_a_tool_that_ignores_its_time_out_is_left_behind_after_the_grace_period():
    body = Held(stubborn=True)
    model = ScriptModel([call("a"), "ok"])
    agent = Agent(model=model, tools=[Tool(name="a", call=body, timeout_seconds=0.02)], limits=QUICK)
    async with Stack().open(agent) as driver:
        result = await driver.prompt("hi")
        assert (result.messages[2].parts[0].status, result.text) == ("detached", "ok")
        body.go.set()


async def test_a_sync_tool_that_never_returns_is_left_behind_and_the_turn_goes_on():
    release = threading.Event()
    model = ScriptModel([call("a"), "ok"])
    agent = Agent(
        model=model, tools=[Tool(name="a", call=lambda: release.wait(20), timeout_seconds=0.02)], limits=QUICK
    )
    try:
        result = await Stack().run(agent, "hi")
        assert (result.messages[2].parts[0].status, result.text) == ("detached", "ok")
    finally:
        release.set()


async def test_tc_017_a_body_that_raises_cancelled_by_itself_takes_nobody_down():
    async def cancels():
        raise anyio.get_cancelled_exc_class()() if anyio_is_asyncio() else RuntimeError("trio cannot make one")

    model = ScriptModel([calls(call("u1"), call("u2")), "ok"])
    tools = [Tool(name="u1", call=cancels), Tool(name="u2", call=lambda: "ok")]
    result = await Stack().run(Agent(model=model, tools=tools), "hi")
    statuses = [m.parts[0].status for m in result.messages if m.role == "tool"]
    assert (statuses, result.text) == (["error", "ok"], "ok")


def anyio_is_asyncio():
    import sniffio

    return sniffio.current_async_library() == "asyncio"


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_cancelling_the_task_that_awaits_run_cancels_the_turn_and_leaves_a_lawful_log(where):
    store, body, model = MemoryStore(), Held(), Slow(TextDelta("half"))
    if where == "tool":
        agent = Agent(model=ScriptModel([call("a")]), tools=[Tool(name="a", call=body)])
    else:
        agent = Agent(model=model)
    async with anyio.create_task_group() as group:

        async def run():
            await Stack(store=store).run(agent, "hi", session="s")

        group.start_soon(run)
        await (body if where == "tool" else model).reached.wait()
        group.cancel_scope.cancel()
    events = await (await store.open("s", write=False)).read()
    assert events[-1].data.reason == "aborted"


async def test_a_body_does_not_begin_when_the_cancel_came_before_it():
    ran = []

    class Cancels:
        @hookimpl
        async def before_tool(self):
            driver.cancel()

    model = ScriptModel([call("a")])
    tool = Tool(name="a", call=lambda: ran.append(1))
    async with Stack([Cancels()]).open(Agent(model=model, tools=[tool])) as driver:
        receipt = await driver.follow_up("hi")
        result = await receipt.result()
        assert (ran, result.messages[-1].parts[0].status) == ([], "not_started")


async def test_a_cancelled_resumed_call_stays_deferred_if_it_had_not_begun():
    ran = []

    class Cancels:
        on = False

        @hookimpl
        async def before_tool(self):
            if self.on:
                driver.cancel()

    plugin = Cancels()
    tool = Tool(name="a", call=lambda: ran.append(1) or "ran", needs_approval=True)
    model = ScriptModel([call("a"), "ok"])
    async with Stack([plugin]).open(Agent(model=model, tools=[tool])) as driver:
        waiting = (await driver.prompt("hi")).waiting[0]
        plugin.on = True
        result = await (await driver.decide({waiting.id: Allow()})).result()
        assert (result.reason, ran, [c.id for c in driver.waiting]) == ("aborted", [], [waiting.id])
        plugin.on = False
        assert (await (await driver.decide({waiting.id: Allow()})).result()).text == "ok"
        assert ran == [1]


async def test_cancel_all_drops_what_pends_at_that_instant_and_keeps_what_comes_later():
    model = Slow(TextDelta("x"))
    async with Stack().open(Agent(model=model)) as driver:
        await driver.follow_up("a")
        await model.reached.wait()
        dropped = await driver.follow_up("b")
        driver.cancel("all", cause="all")
        later = await driver.follow_up("c")
        assert await dropped.fate() == WasDropped("cancelled", "all")
        driver.use(Agent(model=ScriptModel(["c answered"])))
        assert (await later.result()).text == "c answered"


async def test_closing_a_driver_leaves_its_messages_and_a_lawful_log():
    store, model = MemoryStore(), Slow()
    stack = Stack(store=store)
    async with stack.open(Agent(model=model), "s") as driver:
        await driver.follow_up("a")
        await model.reached.wait()
        await driver.follow_up("b")
    async with stack.open(Agent(model=ScriptModel(["b answered"])), "s") as driver:
        assert [m.text for m in driver.pending] == ["b"] and not driver.running
        assert (await driver.nudge()).reason == "completed"


async def test_a_put_whose_append_is_under_way_when_the_driver_closes_is_in_the_log_and_parked():
    stepper, receipts = Stepper(hold={"append"}), []

    async def put():
        receipts.append(await driver.follow_up("hi"))

    async with anyio.create_task_group() as group:
        async with stepper.stack().open(stepper.agent(Agent(model=ScriptModel())), "s") as driver:
            group.start_soon(put)
            await stepper.settle()
            group.start_soon(driver.close)
            await stepper.settle()
            assert driver.status != "closed"
            while stepper.waiting:
                await stepper.release()
        assert driver.status == "closed"
    assert await receipts[0].fate() == IsParked("aborted", "closed")
    assert [e.type for e in await driver.read()] == ["session/open", "inbox/put", "turn/start", "turn/end"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_interrupt_that_lands_in_a_body_comes_out_as_itself_and_the_log_is_lawful(backend):
    async def body():
        raise KeyboardInterrupt  # as trio's signal handler does

    store = MemoryStore()
    agent = Agent(model=ScriptModel([call("a")]), tools=[Tool(name="a", call=body)], limits=QUICK)
    with pytest.raises(KeyboardInterrupt):
        anyio.run(partial(Stack(store=store).run, agent, "hi", session="s"), backend=backend)
    events = store._sessions["s"].events
    results = [e.data.status for e in events if e.type == "tool/result"]
    assert (results, events[-1].data.reason, faults_of(events)) == (["cancelled"], "aborted", [])


async def test_a_body_whose_host_is_cancelled_was_cancelled_and_did_not_time_out():
    store, body = MemoryStore(), Held()
    agent = Agent(model=ScriptModel([call("a")]), tools=[Tool(name="a", call=body)])
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(Stack(store=store).run, agent, "hi", session="s"))
            await body.reached.wait()
            scope.cancel()
    assert [e.data.status for e in store._sessions["s"].events if e.type == "tool/result"] == ["cancelled"]


@pytest.fixture
def on_asyncio(anyio_backend):
    """Tasks that are cancelled as such, past every shield, exist on asyncio alone."""
    import asyncio

    return asyncio


ASYNCIO_ALONE = pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio cancels scopes, never tasks


@ASYNCIO_ALONE
@pytest.mark.parametrize("kind", ["append", "sync"])
async def test_a_task_that_is_cancelled_while_it_puts_a_message_harms_neither_message_nor_session(kind, on_asyncio):
    stepper = Stepper(hold={kind})
    async with stepper.stack().open(stepper.agent(Agent(model=ScriptModel(["one", "two"]))), "s") as driver:
        task = on_asyncio.create_task(driver.follow_up("hi"))
        await stepper.settle()
        task.cancel()
        await stepper.settle()
        assert task.cancelled()
        stepper.free()
        await stepper.settle()
        assert (await driver.prompt("again")).text == "two"
        assert [m.text for m in driver.view] == ["hi", "one", "again", "two"]


@ASYNCIO_ALONE
async def test_a_task_that_is_cancelled_again_while_its_driver_closes_leaves_the_session_closed_and_free(on_asyncio):
    async def run():
        async with stack.open(agent, "s") as driver:
            await driver.prompt("hi")

    stepper, body = Stepper(hold=()), Held()
    stack = Stack(store=stepper.store(MemoryStore()))
    agent = Agent(model=ScriptModel([call("a")]), tools=[Tool(name="a", call=body)])
    task = on_asyncio.create_task(run())
    await body.reached.wait()
    stepper.hold("append")  # what closes the turn waits
    task.cancel()
    await stepper.settle()
    assert [str(effect) for effect in stepper.waiting] == ["append tool/result"]
    task.cancel()
    await stepper.settle()
    stepper.free()
    await on_asyncio.wait([task])
    async with stack.open(Agent(model=ScriptModel(["free"])), "s") as driver:
        assert [e.data.reason for e in await driver.read() if e.type == "turn/end"] == ["aborted"]


class Bang(BaseException):
    """What neither a plugin's fault nor a cancel is, such as the KeyboardInterrupt that trio raises anywhere."""


class Bangs:
    """An observer that blows up at the nth event of a type."""

    def __init__(self, type, nth=1):
        self.type, self.left = type, nth

    @hookimpl
    def on_event(self, event):
        self.left -= event.type == self.type
        if event.type == self.type and self.left == 0:
            raise Bang


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("type", ["step/start", "model/request", "assistant/message", "tool/call", "tool/result"])
async def test_an_observer_that_blows_up_between_a_commit_and_the_loop_leaves_a_lawful_log(type, nth):
    store = MemoryStore()
    tools = [Tool(name=name, call=lambda: "x", needs_approval=name == "asks") for name in ("a", "b", "asks")]
    agent = Agent(model=ScriptModel([calls(call("a"), call("b")), call("asks"), "ok"]), tools=tools)
    with pytest.raises(BaseExceptionGroup):
        async with Stack([Bangs(type, nth)], store=store).open(agent, "s") as driver:
            await driver.prompt("hi")
    events = store._sessions["s"].events
    assert (events[-1].data.reason, faults_of(events)) == ("aborted", [])


async def test_an_observer_that_blows_up_as_a_resuming_step_starts_leaves_its_call_deferred():
    store, ran = MemoryStore(), []
    tool = Tool(name="asks", call=lambda: ran.append(1), needs_approval=True)
    agent = Agent(model=ScriptModel([call("asks")]), tools=[tool])
    with pytest.raises(BaseExceptionGroup):
        async with Stack([Bangs("step/start", 2)], store=store).open(agent, "s") as driver:
            waiting = (await driver.prompt("hi")).waiting[0]
            await (await driver.decide({waiting.id: Allow()})).fate()
    state = fold(store._sessions["s"].events)
    assert (ran, list(state.deferred), state.idle) == ([], [waiting.id], True)


async def test_a_cancel_keeps_no_event_from_an_observer_and_leaves_no_turn_open():
    heard, second = [], anyio.Event()

    class Waits:
        @hookimpl
        async def on_event(self, event):
            if (event.type, event.turn) == ("turn/start", 2):
                second.set()
                await anyio.sleep(0.01)

    class Hears:
        @hookimpl
        def on_event(self, event):
            heard.append(event.seq)

    store = MemoryStore()
    agent = Agent(model=ScriptModel(["one", "two"]))
    with anyio.CancelScope() as scope:
        async with (
            Stack([Waits(), Hears()], store=store).open(agent, "s") as driver,
            anyio.create_task_group() as group,
        ):
            group.start_soon(driver.follow_up, "one")
            group.start_soon(driver.follow_up, "two")
            await second.wait()
            scope.cancel()
    events = store._sessions["s"].events
    assert heard == [event.seq for event in events] and faults_of(events) == []


async def test_an_objection_that_comes_with_a_cancel_does_not_wake_the_session_again():
    class Objects:
        @hookimpl
        async def on_turn_stopping(self):
            await anyio.lowlevel.checkpoint()
            driver.cancel()
            return "are you sure?"

    async with Stack([Objects()]).open(Agent(model=ScriptModel(["ok"]))) as driver:
        await driver.prompt("hi")
        await driver.until_idle()
        assert [e.type for e in await driver.read()][-2:] == ["step/end", "turn/end"] and not driver.pending


async def test_a_heartbeat_goes_on_while_sync_tools_block_their_threads():
    """TC-079: two blocking tools run side by side, off the loop."""
    both = threading.Barrier(2, timeout=10)
    model = ScriptModel([calls(call("a"), call("b")), "ok"])
    tools = [Tool(name=name, call=lambda: str(both.wait() in (0, 1))) for name in ("a", "b")]
    result = await Stack().run(Agent(model=model, tools=tools), "hi")
    assert [m.text for m in result.messages if m.role == "tool"] == ["", ""]
    assert [m.parts[0].parts for m in result.messages if m.role == "tool"] == [(Text("True"),)] * 2


async def test_a_cancel_between_two_turns_of_one_activity_aborts_the_next():
    class Cancels:
        @hookimpl
        async def on_event(self, event):
            if event.type == "turn/end" and event.turn == 1:
                driver.cancel(cause="between")

    model = ScriptModel(["one"])
    async with Stack([Cancels()]).open(Agent(model=model)) as driver:
        await driver.follow_up("a")
        await driver.follow_up("b")
        await driver.until_idle()
        ends = [(e.data.reason, e.data.detail) for e in await driver.read() if e.type == "turn/end"]
        assert ends == [("completed", ""), ("aborted", "between")]
        assert len(model.asked) == 1 and [m.text for m in driver.pending] == ["b"]
