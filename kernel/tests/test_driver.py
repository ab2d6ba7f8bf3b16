"""The handle: steer, follow-up, inject, withdraw, receipts, parked endings, maintenance, watching."""

import gc
import weakref

import anyio
import pytest

from treadle import Agent, Allow, Answer, Defer, Deny, Limits, Message, Stack, Text, Tool, ToolAnswer, hookimpl
from treadle.errors import Closed, Dropped, Parked, ProviderError, Reentrant, UsageError
from treadle.events import Event
from treadle.hooks import Delta
from treadle.model import TextDelta
from treadle.results import Entered, IsParked, WasDropped
from treadle.store import MemoryStore, PostCancel, PostDecision, PostMessage
from treadle.testing import Stepper
from treadle_script import ScriptModel, call, calls


def texts(messages) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in messages]


ANY = {"type": "object"}


class Gate:
    """A tool body or reply that waits until it is let go."""

    def __init__(self, then="done"):
        self.reached, self.go, self.then = anyio.Event(), anyio.Event(), then

    async def __call__(self, *args, **given):
        self.reached.set()
        await self.go.wait()
        return self.then


async def test_steer_joins_the_next_step_and_follow_up_waits_for_the_next_turn():
    gate = Gate()
    model = ScriptModel([call("slow"), "steered", "followed"])
    async with Stack().open(Agent(model=model, tools=[Tool(name="slow", call=gate)])) as driver:
        first = await driver.follow_up("start")
        await gate.reached.wait()
        follow = await driver.follow_up("later")
        steer = await driver.steer("now")
        gate.go.set()
        assert (await first.result()).text == "steered"
        assert (await steer.result()).turn == 1
        assert (await follow.result()).turn == 2
    assert texts(model.requests[1])[-1] == ("user", "now")
    assert texts(model.requests[2])[-1] == ("user", "later")


async def test_a_steer_never_skips_a_call_that_the_model_already_made():
    gate, ran = Gate(), []
    tools = [Tool(name="slow", call=gate, exclusive=True), Tool(name="next", call=lambda: ran.append(1))]
    model = ScriptModel([calls(call("slow"), call("next")), "ok"])
    async with Stack().open(Agent(model=model, tools=tools)) as driver:
        first = await driver.follow_up("start")
        await gate.reached.wait()
        await driver.steer("stop that")
        gate.go.set()
        await first.result()
    assert ran == [1]


async def test_one_turn_takes_one_follow_up_and_all_steers_in_seq_order():
    model = ScriptModel(["a", "b"])
    gate = Gate("zero")
    model = ScriptModel([gate, "a", "b"])
    async with Stack().open(Agent(model=model)) as driver:
        await driver.follow_up("zero")
        await gate.reached.wait()
        one = await driver.follow_up("one")
        await driver.inject("two")
        three = await driver.follow_up("three")
        gate.go.set()
        await three.result()
        assert (await one.result()).turn == 2
    # the inject does not wake a step of turn 1; turn 2 takes it with the oldest follow-up
    assert texts(model.requests[1])[2:] == [("user", "one"), ("user", "two")]
    assert texts(model.requests[2])[-1] == ("user", "three")


async def test_inject_while_idle_opens_no_turn_and_joins_the_next_one():
    model = ScriptModel(["ok"])
    async with Stack().open(Agent(model=model)) as driver:
        receipt = await driver.inject("by the way")
        assert isinstance(await receipt.fate(), IsParked) and not driver.running
        await driver.prompt("hi")
    assert texts(model.requests[0]) == [("user", "by the way"), ("user", "hi")]


async def test_an_inject_alone_never_buys_a_model_call():
    gate = Gate("first")
    model = ScriptModel([gate])
    async with Stack().open(Agent(model=model)) as driver:
        first = await driver.follow_up("hi")
        await gate.reached.wait()
        await driver.inject("aside")
        gate.go.set()
        assert (await first.result()).steps == 1
        await driver.until_idle()
        assert [m.text for m in driver.pending] == ["aside"]


async def test_steer_while_idle_opens_a_turn():
    async with Stack().open(Agent(model=ScriptModel(["ok"]))) as driver:
        assert (await (await driver.steer("hi")).result()).text == "ok"


async def test_a_failed_turn_parks_what_pends_and_its_receipts_resolve():
    gate = Gate(ProviderError("server", "boom"))
    model = ScriptModel([gate, "later"])
    async with Stack().open(Agent(model=model)) as driver:
        first = await driver.follow_up("one")
        await gate.reached.wait()
        second = await driver.follow_up("two")
        gate.go.set()
        assert (await first.result()).reason == "failed"
        # put before the failure was decided: parked
        with pytest.raises(Parked, match="failed"):
            await second.result()
        assert driver.parked and [m.text for m in driver.pending] == ["two"]


async def test_prompt_raises_parked_and_the_message_stays():
    gate = Gate(ProviderError("server", "boom"))
    async with Stack().open(Agent(model=ScriptModel([gate]))) as driver:
        await driver.follow_up("one")
        await gate.reached.wait()
        async with anyio.create_task_group() as group:

            async def second():
                with pytest.raises(Parked):
                    await driver.prompt("two")

            group.start_soon(second)
            while not driver.pending:
                await anyio.lowlevel.checkpoint()
            gate.go.set()
        assert [m.text for m in driver.pending] == ["two"]


async def test_a_wake_after_the_failure_was_decided_goes_on():
    class Late:
        @hookimpl
        async def on_model_error(self, error):
            return None

        @hookimpl
        async def on_event(self, event):
            if event.type == "model/failed":
                self.receipt = await driver.follow_up("after")

    plugin = Late()
    model = ScriptModel([ProviderError("server", "boom"), "fine"])
    async with Stack([plugin]).open(Agent(model=model)) as driver:
        assert (await driver.prompt("hi")).reason == "failed"
        await driver.until_idle()
        # the failure is decided once model/failed is logged; what comes later runs
        assert (await plugin.receipt.fate()).result.text == "fine"


async def test_withdraw_takes_a_pending_message_back_and_only_a_pending_one():
    async with Stack().open(Agent(model=ScriptModel(["ok"]))) as driver:
        receipt = await driver.inject("x")
        other = await driver.inject("y")
        assert await receipt.withdraw() is True
        assert await receipt.withdraw() is False
        assert await driver.withdraw("nobody") is False
        await driver.prompt("go")
        assert await other.withdraw() is False


async def test_a_message_withdrawn_while_before_step_runs_has_one_fate():
    class Slow:
        @hookimpl
        async def before_step(self, batch):
            if not self.done:
                self.done = True
                await driver.withdraw(batch[0].id)

        done = False

    model = ScriptModel(["never"])
    async with Stack([Slow()]).open(Agent(model=model)) as driver:
        receipt = await driver.follow_up("x")
        assert await receipt.fate() == WasDropped("withdrawn")
        await driver.until_idle()
        assert model.asked == []


async def test_the_same_message_id_is_taken_once():
    message = Message(id="m1", role="user", parts=(Text("hi"),))
    async with Stack().open(Agent(model=ScriptModel(["ok", "again"]))) as driver:
        await driver.prompt(message)
        with pytest.raises(UsageError, match="m1 was used before"):
            await driver.prompt(message)


async def test_two_prompts_at_once_are_two_turns():
    """TC-067: the second is queued before anything of it runs."""
    gate = Gate("a")
    model = ScriptModel([gate, "b"])
    results = {}
    async with Stack().open(Agent(model=model)) as driver, anyio.create_task_group() as group:

        async def ask(text):
            results[text] = await driver.prompt(text)

        group.start_soon(ask, "one")
        await gate.reached.wait()
        group.start_soon(ask, "two")
        while not driver.pending:
            await anyio.lowlevel.checkpoint()
        gate.go.set()
    assert [(r.turn, r.text) for r in results.values()] == [(1, "a"), (2, "b")]


async def test_cancelling_the_wait_for_a_result_does_not_cancel_the_turn():
    gate = Gate("late")
    async with Stack().open(Agent(model=ScriptModel([gate]))) as driver:
        async with anyio.create_task_group() as group:
            group.start_soon(driver.prompt, "hi")
            await gate.reached.wait()
            group.cancel_scope.cancel()
        gate.go.set()
        await driver.until_idle()
        assert (await driver.read())[-1].data.reason == "completed"


@pytest.mark.parametrize("method", ["prompt", "until_idle", "nudge", "maintain", "close", "receipt"])
async def test_awaiting_ones_own_session_inside_its_turn_is_reentrant(method):
    async def own():
        if method == "receipt":
            await (await driver.follow_up("x")).fate()
        elif method in ("until_idle", "nudge", "close"):
            await getattr(driver, method)()
        else:
            await getattr(driver, method)("x")

    model = ScriptModel([call("own"), "after", "x"])
    async with Stack().open(Agent(model=model, tools=[Tool(name="own", call=own)])) as driver:
        result = await driver.prompt("hi")
        answer = result.messages[2].parts[0]
    assert (answer.status, "Reentrant" in answer.parts[0].text) == ("error", True)


async def test_a_tool_may_steer_its_own_session_without_waiting():
    async def note():
        await driver.steer("from inside")
        return "ok"

    model = ScriptModel([call("note"), "done"])
    async with Stack().open(Agent(model=model, tools=[Tool(name="note", call=note)])) as driver:
        result = await driver.prompt("hi")
    assert texts(model.requests[1])[-1] == ("user", "from inside")
    assert result.messages[3].origin == "turn:inside"


async def test_nudge_takes_what_pends_if_nothing_is_owed_and_raises_if_there_is_nothing():
    async with Stack().open(Agent(model=ScriptModel(["ok"]))) as driver:
        with pytest.raises(UsageError, match="owes nothing"):
            await driver.nudge()
        await driver.inject("hi")
        assert (await driver.nudge()).text == "ok"


async def test_a_closed_driver_says_so():
    async with Stack().open(Agent(model=ScriptModel())) as driver:
        pass
    with pytest.raises(Closed):
        await driver.prompt("hi")
    assert driver.cancel() is False


# --- decisions -----------------------------------------------------------------------------------------------


class Guard:
    @hookimpl
    def before_tool(self, call, context):
        return Defer("ask first") if call.name == "danger" else None


def danger(ran):
    return Tool(name="danger", parameters=ANY, call=lambda **given: ran.append(given) or f"did {given}")


@pytest.mark.parametrize("how", ["plugin", "needs_approval"])
async def test_a_deferred_call_ends_the_turn_waiting_and_allow_runs_it_as_asked(how):
    ran = []
    tool = (
        danger(ran)
        if how == "plugin"
        else Tool(name="danger", parameters=ANY, call=danger(ran).call, needs_approval=True)
    )
    model = ScriptModel([call("danger", n=1), "it is done"])
    async with Stack([Guard()] if how == "plugin" else []).open(Agent(model=model, tools=[tool])) as driver:
        result = await driver.prompt("do it")
        assert (result.reason, [c.name for c in result.waiting], ran) == ("waiting", ["danger"], [])
        waiting = result.waiting[0].id
        done = await (await driver.decide({waiting: Allow()})).result()
        assert (done.text, done.turn, ran) == ("it is done", 2, [{"n": 1}])
        assert driver.waiting == ()
    # the late result takes the placeholder's place
    assert [m.role for m in model.requests[1]] == ["user", "assistant", "tool"]
    assert model.requests[1][2].parts[0].parts == (Text("did {'n': 1}"),)


async def test_allow_with_arguments_runs_the_edited_call_and_both_are_logged():
    ran = []
    model = ScriptModel([call("danger", n=1), "ok"])
    async with Stack([Guard()]).open(Agent(model=model, tools=[danger(ran)])) as driver:
        waiting = (await driver.prompt("do it")).waiting[0]
        await (await driver.decide({waiting.id: Allow(arguments={"n": 2})})).result()
        logged = [e.data.arguments for e in await driver.read() if e.type == "tool/call"]
    assert (ran, waiting.arguments, logged) == ([{"n": 2}], '{"n": 1}', ['{"n": 1}', '{"n": 2}'])


@pytest.mark.parametrize(
    ("decision", "status", "text"),
    [(Deny("no"), "denied", "The call was denied: no"), (Answer("by hand"), "ok", "by hand")],
)
async def test_deny_and_answer_run_nothing(decision, status, text):
    ran = []
    model = ScriptModel([call("danger", n=1), "ok"])
    async with Stack([Guard()]).open(Agent(model=model, tools=[danger(ran)])) as driver:
        waiting = (await driver.prompt("do it")).waiting[0]
        await (await driver.decide({waiting.id: decision})).result()
    result = model.requests[1][2].parts[0]
    assert (ran, result.status, result.parts) == ([], status, (Text(text),))


async def test_a_deny_of_a_guard_beats_the_persons_allow():
    class Never:
        strict = False

        @hookimpl
        def before_tool(self, call):
            return Deny("locked") if self.strict else Defer()

    ran, plugin = [], Never()
    async with Stack([plugin]).open(Agent(model=ScriptModel([call("danger"), "ok"]), tools=[danger(ran)])) as driver:
        waiting = (await driver.prompt("do it")).waiting[0]
        plugin.strict = True
        result = await (await driver.decide({waiting.id: Allow()})).result()
    assert (ran, result.messages[0].parts[0].status) == ([], "denied")


async def test_tc_009_decisions_are_keyed_by_call_and_unknown_ids_run_nothing():
    ran = []
    tools = [
        Tool(name="alpha", parameters=ANY, call=lambda n: ran.append(("alpha", n)), needs_approval=True),
        Tool(name="beta", parameters=ANY, call=lambda n: ran.append(("beta", n)), needs_approval=True),
    ]
    model = ScriptModel([calls(call("alpha", n=0), call("beta", n=0)), "ok"])
    async with Stack().open(Agent(model=model, tools=tools)) as driver:
        alpha, beta = (await driver.prompt("both")).waiting
        with pytest.raises(UsageError, match="nobody"):
            await driver.decide({alpha.id: Allow(), "nobody": Allow()})
        with pytest.raises(UsageError, match="none given"):
            await driver.decide({})
        assert ran == []
        decided = {beta.id: Deny("no"), alpha.id: Allow(arguments={"n": 1})}
        await (await driver.decide(decided)).result()
        with pytest.raises(UsageError, match="do not wait"):
            await driver.decide({alpha.id: Allow()})
    assert ran == [("alpha", 1)]


async def test_who_writes_instead_gets_an_answer_and_the_call_stays_decidable():
    ran = []
    model = ScriptModel([call("danger", n=1), "I still wait", "now it is done"])
    async with Stack([Guard()]).open(Agent(model=model, tools=[danger(ran)])) as driver:
        waiting = (await driver.prompt("do it")).waiting[0]
        assert (await driver.prompt("well?")).text == "I still wait"
        assert (await (await driver.decide({waiting.id: Allow()})).result()).text == "now it is done"
    # an answer is younger than the placeholder: the result stands where it was logged, as a user-role item
    last = model.requests[2]
    assert [m.role for m in last] == ["user", "assistant", "tool", "user", "assistant", "context"]
    assert "danger" in last[-1].text and "did {'n': 1}" in last[-1].text


async def test_a_deferred_call_beside_others_waits_alone():
    ran = []
    tools = [danger(ran), Tool(name="safe", call=lambda: "safe")]
    model = ScriptModel([calls(call("danger"), call("safe")), "ok"])
    async with Stack([Guard()]).open(Agent(model=model, tools=tools)) as driver:
        result = await driver.prompt("both")
        assert [p.status for m in result.messages if m.role == "tool" for p in m.parts] == ["deferred", "ok"]
        await (await driver.decide({result.waiting[0].id: Allow()})).result()
    assert [m.parts[0].status for m in model.requests[1] if m.role == "tool"] == ["ok", "ok"]


# --- maintenance -----------------------------------------------------------------------------------------------


async def test_maintain_edits_the_context_between_turns_in_one_append():
    model = ScriptModel(["a", "b", "c"])
    async with Stack().open(Agent(model=model)) as driver:
        await driver.prompt("one")
        await driver.prompt("two")
        seen = []

        async def fold_away(context):
            first, last = context.view.items[0].seq, context.view.items[1].seq
            context.note("compact", "done", {"items": 2})
            context.edit(first, last, "They said one, and a.", plugin="compact")
            seen.append(len(context.view))

        await driver.maintain(fold_away)
        assert [e.type for e in await driver.read()][-2:] == ["compact/done", "context/edit"]
        await driver.prompt("three")
    assert texts(model.requests[2]) == [
        ("context", "They said one, and a."), ("user", "two"), ("assistant", "b"), ("user", "three"),
    ]  # fmt: skip


async def test_a_wake_during_maintenance_waits_for_its_end():
    model = ScriptModel(["a"])
    async with Stack().open(Agent(model=model)) as driver:
        receipts = []

        async def work(context):
            receipts.append(await driver.follow_up("hi"))
            assert driver.running and model.asked == []

        await driver.maintain(work)
        assert (await receipts[0].result()).text == "a"


async def test_an_edit_that_would_leave_half_a_call_is_refused_at_once():
    model = ScriptModel([call("t"), "ok"])
    async with Stack().open(Agent(model=model, tools=[Tool(name="t", call=lambda: "x")])) as driver:
        await driver.prompt("one")

        async def bad(context):
            items = context.view.items
            with pytest.raises(UsageError, match="together"):
                context.edit(items[1].seq, items[1].seq, "half")
            with pytest.raises(UsageError, match="begin with a user"):
                context.edit(items[0].seq, items[0].seq)
            with pytest.raises(UsageError, match="no live item"):
                context.edit(999, 999)
            context.edit(items[2].seq, items[2].seq, "shorter")  # one result may be replaced

        await driver.maintain(bad)
        assert [m.parts[0].parts for m in driver.view if m.role == "tool"] == [(Text("shorter"),)]


# --- watching ----------------------------------------------------------------------------------------------------


async def test_any_number_of_watchers_see_events_and_deltas_in_order_across_turns():
    model = ScriptModel(["one two", "three"])
    async with Stack().open(Agent(model=model)) as driver:
        watches = [driver.watch() for _ in range(3)]
        await driver.prompt("a")
        await driver.prompt("b")
        events = await driver.read()
    for watch in watches:
        seen = [item async for item in watch]
        assert [item for item in seen if isinstance(item, Event)] == list(events)
        assert "".join(d.text for d in seen if isinstance(d, Delta)) == "one twothree"


async def test_a_watcher_after_a_seq_gets_everything_behind_it_once():
    model = ScriptModel(["one", "two"])
    async with Stack().open(Agent(model=model)) as driver:
        await driver.prompt("a")
        watch = driver.watch(after_seq=3)
        await driver.prompt("b")
        events = await driver.read()
    assert [i.seq async for i in watch if isinstance(i, Event)] == [e.seq for e in events[3:]]


async def test_who_joins_in_mid_message_gets_the_text_so_far_as_one_snapshot():
    gate = Gate()

    class Paused(ScriptModel):
        pass

    from contextlib import asynccontextmanager

    class Halves:
        ref, family, window_tokens = "x:y", "x", None

        @asynccontextmanager
        async def stream(self, request):
            from treadle.model import Finish

            async def pieces():
                yield TextDelta("first ")
                yield TextDelta("half ")
                await gate()
                yield TextDelta("rest")
                yield Finish(finish="end")

            yield pieces()

    async with Stack().open(Agent(model=Halves())) as driver:
        receipt = await driver.follow_up("hi")
        await gate.reached.wait()
        watch = driver.watch()
        gate.go.set()
        await receipt.result()
    deltas = [i async for i in watch if isinstance(i, Delta)]
    assert [(d.text, d.snapshot) for d in deltas] == [("first half ", True), ("rest", False)]


async def test_a_failed_attempts_deltas_are_voided():
    from treadle import Retry

    class Retries:
        @hookimpl
        def on_model_error(self):
            return Retry()

    model = ScriptModel([[TextDelta("half"), ProviderError("server", "boom")], "whole"])
    async with Stack([Retries()]).open(Agent(model=model)) as driver:
        watch = driver.watch()
        await driver.prompt("hi")
    deltas = [(d.kind, d.text, d.attempt) async for d in watch if isinstance(d, Delta)]
    assert deltas == [("text", "half", 1), ("void", "", 1), ("text", "whole", 2)]


async def test_a_slow_watcher_reads_what_it_missed_from_the_log():
    model = ScriptModel(["x"], last=True)
    async with Stack().open(Agent(model=model, limits=Limits())) as driver:
        watch = driver.watch(after_seq=0)
        watch.LAG = 2
        for _ in range(20):
            await driver.prompt("hi")
        events = await driver.read()
        assert len(watch._items) < 40
        seen = []
        while len(seen) < len(events):
            item = await anext(watch)
            if isinstance(item, Event):
                seen.append(item.seq)
    assert seen == [e.seq for e in events]


async def test_stream_yields_the_turn_and_its_result():
    model = ScriptModel([call("t"), "hello there"])
    agent = Agent(model=model, tools=[Tool(name="t", call=lambda: "x")])
    async with Stack().stream(agent, "hi") as stream:
        text = [piece async for piece in stream.text()]
        result = await stream.result()
    assert ("".join(text), result.text) == ("hello there", "hello there")


async def test_leaving_a_stream_early_cancels_the_turn():
    store, gate = MemoryStore(), Gate()
    stack = Stack(store=store)
    async with stack.stream(Agent(model=ScriptModel([gate])), "hi", session="s") as stream:
        await gate.reached.wait()
        assert stream.driver.running
    events = await (await store.open("s", write=False)).read()
    assert (events[-1].data.reason, events[-1].data.detail) == ("aborted", "closed")


# --- posts ---------------------------------------------------------------------------------------------------------


async def test_a_post_becomes_an_inbox_put_once_and_is_forgotten():
    store = MemoryStore()
    message = Message(id="p1", role="user", parts=(Text("posted"),))
    await store.post("s", PostMessage(message=message))
    await store.post("s", PostMessage(message=message))
    model = ScriptModel(["ok"])
    async with Stack(store=store).open(Agent(model=model), "s") as driver:
        watch = driver.watch()
        async for item in watch:
            if isinstance(item, Event) and item.type == "turn/end":
                break
        await driver.until_idle()
        while store._sessions["s"].posts:
            await anyio.lowlevel.checkpoint()
        puts = [e.data.message.id for e in await driver.read() if e.type == "inbox/put"]
    assert puts == ["p1"] and texts(model.requests[0]) == [("user", "posted")]


async def test_a_posted_decision_and_a_posted_cancel_reach_the_writer():
    store, ran, gate = MemoryStore(), [], Gate()
    model = ScriptModel([call("danger", n=1), "done", gate])
    async with Stack([Guard()], store=store).open(Agent(model=model, tools=[danger(ran)]), "s") as driver:
        waiting = (await driver.prompt("do it")).waiting[0]
        await store.post("s", PostDecision(call_id=waiting.id, verdict="allow", arguments='{"n": 5}'))
        watch = driver.watch()
        async for item in watch:
            if isinstance(item, Event) and item.type == "turn/end":
                break
        assert ran == [{"n": 5}]
        receipt = await driver.follow_up("more")
        await gate.reached.wait()
        await store.post("s", PostCancel(cause="posted"))
        result = await receipt.result()
        assert (result.reason, result.detail) == ("aborted", "posted")


async def test_a_dropped_message_is_an_error_for_who_waits_for_its_result():
    gate = Gate()
    async with Stack().open(Agent(model=ScriptModel([gate]))) as driver:
        await driver.follow_up("a")
        await gate.reached.wait()
        second = await driver.follow_up("b")
        driver.cancel("all", cause="enough")
        with pytest.raises(Dropped, match="enough"):
            await second.result()
        assert isinstance(await second.fate(), WasDropped)


async def test_an_entered_fate_carries_the_turns_result():
    async with Stack().open(Agent(model=ScriptModel(["ok"]))) as driver:
        fate = await (await driver.follow_up("a")).fate()
        assert isinstance(fate, Entered) and fate.result.text == "ok"


async def test_title_labels_and_metadata_are_said_and_the_last_wins():
    store = MemoryStore()
    async with Stack(store=store).open(Agent(model=ScriptModel()), "s") as driver:
        await driver.label(title="First", labels=["a"])
        await driver.label(title="Second", metadata={"x": 1})
    (info,) = await store.list()
    assert (info.title, info.labels, info.metadata) == ("Second", ("a",), {"x": 1})


async def test_a_concluding_answer_by_a_person_ends_the_turn():
    model = ScriptModel([call("danger")])
    async with Stack([Guard()]).open(Agent(model=model, tools=[danger([])])) as driver:
        waiting = (await driver.prompt("x")).waiting[0]
        answer = Answer(ToolAnswer(parts="final", concludes=True))
        result = await (await driver.decide({waiting.id: answer})).result()
    assert (result.reason, len(model.asked)) == ("completed", 1)


async def test_reentrant_is_told_from_another_sessions_turn():
    store = MemoryStore()
    stack = Stack(store=store)

    async def ask_other():
        return (await stack.run(Agent(model=ScriptModel(["from below"])), "hi", session="child")).text

    async with stack.open(
        Agent(model=ScriptModel([call("ask"), "ok"]), tools=[Tool(name="ask", call=ask_other)]), "parent"
    ) as driver:
        result = await driver.prompt("hi")
    assert result.messages[2].parts[0].parts == (Text("from below"),)
    assert Reentrant  # the class is public for who wants to catch it


async def test_a_message_that_waits_to_be_put_while_the_driver_goes_idle_is_not_parked_but_taken():
    stepper, fates = Stepper(hold=("append", "sync")), {}

    async def put(how, text):
        fates[text] = await (await how(text)).fate()

    async with anyio.create_task_group() as group:
        agent = stepper.agent(Agent(model=ScriptModel(["one", "two"])))
        async with stepper.stack().open(agent, "s") as driver:
            group.start_soon(put, driver.follow_up, "first")
            await stepper.settle()
            while str(await stepper.release()) != "append turn/end":
                pass
            group.start_soon(put, driver.inject, "aside")  # its append is held, and the lock with it
            await stepper.settle()
            await stepper.release(0)  # the turn's last barrier: the driver waits for the lock to look at the inbox
            group.start_soon(put, driver.follow_up, "second")  # waits behind it
            await stepper.settle()
            stepper.free()
            await stepper.settle()
    assert {text: type(fate) for text, fate in fates.items()} == {
        "first": Entered, "aside": IsParked, "second": Entered,
    }  # fmt: skip


async def test_tc_093_receipts_tell_what_was_taken_from_what_was_queued_and_what_closing_left_behind():
    stepper = Stepper(hold={"tool"})
    world = [ADD_ONE], ScriptModel([call("t"), "took the steer", call("t")])
    agent = stepper.agent(Agent(tools=world[0], model=world[1]))
    async with stepper.stack().open(agent, "s") as driver:
        first = await driver.follow_up("F")
        await stepper.settle()
        steer = await driver.steer("S")
        assert (first.turn, steer.turn) == (1, None)  # one was taken, the other only accepted
        second = await driver.follow_up("the second turn")
        await stepper.release()
        await stepper.release()
        late = await driver.follow_up("G")
        assert (steer.turn, second.turn, late.turn) == (1, 2, None)
        steps = {each: e.step for e in await driver.read() if e.type == "step/start" for each in e.data.claims}
    assert [steps[each.id] for each in (first, steer, second)] == [1, 2, 1] and late.id not in steps
    assert [type(await each.fate()) for each in (first, steer, second)] == [Entered] * 3
    assert await late.fate() == IsParked("aborted", "closed")
    assert (await steer.result()).text == "took the steer"


ADD_ONE = Tool(name="t", call=lambda: "x", parameters=ANY)


async def test_a_closed_driver_is_freed_without_the_collector():
    async def body():
        return "x"

    model = ScriptModel([call("t"), "ok"])
    gc.disable()
    try:
        async with Stack().open(Agent(model=model, tools=[Tool(name="t", call=body)])) as driver:
            assert (await driver.prompt("hi")).text == "ok"
        seen = weakref.ref(driver)
        del driver
        assert seen() is None
    finally:
        gc.enable()
