"""Turns and steps: what the loop does with replies, budgets, objections and failures."""

import attrs
import pytest

from treadle import Agent, Halt, Limits, Message, Retry, Stack, Text, Tool, ToolAnswer, hookimpl
from treadle.driver import Driver
from treadle.errors import BudgetExceeded, ProviderError, TurnNotCompleted
from treadle.messages import Usage
from treadle.model import Finish, Reply, TextDelta
from treadle.store import MemoryStore
from treadle_script import ScriptModel, call, calls

ADD = Tool(
    name="add",
    description="Add two integers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    call=lambda a, b: str(a + b),
)


async def types(driver: Driver, after: int = 0) -> list[str]:
    return [event.type for event in await driver.read(after)]


def texts(messages) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in messages]


async def test_a_turn_is_steps_until_the_model_owes_nothing():
    model = ScriptModel([call("add", a=17, b=25), call("add", a=42, b=1), "The answer is 43."])
    result = await Stack().run(Agent(model=model, tools=[ADD]), "What is 17 plus 25 plus 1?")
    assert (result.text, result.reason, result.steps) == ("The answer is 43.", "completed", 3)
    assert [m.role for m in model.requests[2]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert model.requests[2][2].parts[0].parts == (Text("42"),)


async def test_the_log_of_a_turn_with_one_tool_call_is_the_grammars_plainest_sentence():
    async with Stack().open(Agent(model=ScriptModel([call("add", a=1, b=2), "3"]), tools=[ADD])) as driver:
        await driver.prompt("1 + 2?")
        assert await types(driver) == [
            "session/open", "inbox/put", "turn/start",
            "step/start", "user/message", "model/request", "assistant/message", "tool/call", "tool/result", "step/end",
            "step/start", "model/request", "assistant/message", "step/end",
            "turn/end",
        ]  # fmt: skip


async def test_looking_at_a_session_adds_nothing():
    store = MemoryStore()
    async with Stack(store=store).open(Agent(model=ScriptModel()), "s") as driver:
        assert driver.seq == 0
    assert await store.list() == []


async def test_turns_count_on_in_one_session_and_steps_begin_at_one():
    store, model = MemoryStore(), ScriptModel(["a", "b"])
    stack = Stack(store=store)
    first = await stack.run(Agent(model=model), "one", session="s")
    second = await stack.run(Agent(model=model), "two", session="s")
    assert (first.turn, second.turn, second.steps) == (1, 2, 1)
    assert texts(model.requests[1]) == [("user", "one"), ("assistant", "a"), ("user", "two")]


async def test_max_steps_ends_an_owing_turn_with_its_name():
    model = ScriptModel([call("add", a=1, b=1)], last=True)
    agent = Agent(model=model, tools=[ADD], limits=Limits(max_steps=3))
    result = await Stack().run(agent, "go on for ever")
    assert (result.reason, result.detail, result.steps) == ("limit", "max_steps", 3)
    with pytest.raises(BudgetExceeded, match="max_steps"):
        result.check()


async def test_an_answered_turn_at_max_steps_is_completed_and_a_steer_that_raced_it_runs_in_a_new_turn():
    class Steers:
        @hookimpl
        async def on_event(self, event):
            if event.type == "assistant/message" and not self.done:
                self.done = True
                self.receipt = await driver.steer("and more")

        done = False

    plugin = Steers()
    model = ScriptModel(["first", "second"])
    agent = Agent(model=model, limits=Limits(max_steps=1))
    async with Stack([plugin]).open(agent) as driver:
        result = await driver.prompt("hi")
        assert (result.reason, result.steps) == ("completed", 1)
        assert (await plugin.receipt.result()).text == "second"
        await driver.until_idle()
        assert [e.data.reason for e in await driver.read() if e.type == "turn/end"] == ["completed", "completed"]


async def test_a_token_budget_is_tested_before_each_attempt():
    model = ScriptModel([call("add", a=1, b=1)], last=True)
    agent = Agent(model=model, tools=[ADD], limits=Limits(tokens=25))
    result = await Stack().run(agent, "go")  # each reply costs 15
    assert (result.reason, result.detail, len(model.asked)) == ("limit", "tokens", 2)


async def test_a_turn_of_seconds_is_closed_like_a_cancel_and_named():
    async def for_ever(request):
        import anyio

        await anyio.sleep_forever()

    agent = Agent(model=ScriptModel([for_ever]), limits=Limits(seconds=0.02))
    async with Stack().open(agent) as driver:
        result = await driver.prompt("hi")
        assert (result.reason, result.detail) == ("limit", "seconds")
        assert (await types(driver))[-3:] == ["model/failed", "step/end", "turn/end"]


async def test_tc_095_an_objection_to_the_end_buys_a_step_and_vetoes_run_out_whether_or_not_tools_run():
    class Objects:
        seen: list[int] = []

        @hookimpl
        def on_turn_stopping(self, context):
            self.seen.append(context.vetoes)
            return "go on"

    plugin = Objects()
    model = ScriptModel(["a", call("add", a=1, b=1), "b", "c", "d", "e"])
    async with Stack([plugin]).open(Agent(model=model, tools=[ADD], limits=Limits(max_vetoes=2))) as driver:
        result = await driver.prompt("hi")
        end = next(e.data for e in await driver.read() if e.type == "turn/end")
    assert plugin.seen == [0, 1, 2]
    assert (result.text, result.reason, result.detail, end.ignored) == ("c", "completed", "objections ignored", 1)


async def test_halt_blocks_the_turn_and_rejects_its_batch():
    class Stops:
        @hookimpl
        def before_step(self, batch):
            return Halt("not today")

    async with Stack([Stops()]).open(Agent(model=ScriptModel())) as driver:
        receipt = await driver.follow_up("hi")
        fate = await receipt.fate()
        assert (fate.why, fate.detail) == ("rejected", "not today")
        await driver.until_idle()
        end = (await driver.read())[-1].data
        assert (end.reason, end.detail, end.park) == ("blocked", "not today", True)


async def test_before_step_rewrites_removes_and_adds_messages():
    class Edits:
        @hookimpl
        async def before_step(self, batch, context):
            _, second = batch
            return [
                attrs.evolve(second, parts=(Text("rewritten"),)),
                Message(id="new", role="context", parts=(Text("added"),)),
            ]

    model = ScriptModel(["ok"])
    async with Stack([Edits()]).open(Agent(model=model)) as driver:
        a = await driver.inject("remove me")
        b = await driver.steer("rewrite me")
        result = await b.result()
        assert texts(result.messages[:2]) == [("user", "rewritten"), ("context", "added")]
        assert (await a.fate()).ending == "before any turn"
        assert "inbox/drop" in await types(driver)


async def test_a_batch_that_hooks_empty_ends_the_turn_without_a_model_call():
    class Drops:
        @hookimpl
        def before_step(self, batch):
            return []

    model = ScriptModel()
    async with Stack([Drops()]).open(Agent(model=model)) as driver:
        receipt = await driver.follow_up("poison")
        assert (await receipt.fate()).why == "rejected"
        await driver.until_idle()
        assert model.asked == []
        assert (await driver.read())[-1].data.reason == "completed"


async def test_a_before_step_that_raises_fails_the_turn_and_its_batch_can_be_withdrawn():
    class Breaks:
        @hookimpl
        def before_step(self):
            raise ValueError("broken")

    async with Stack([Breaks()]).open(Agent(model=ScriptModel())) as driver:
        receipt = await driver.follow_up("hi")
        fate = await receipt.fate()
        assert fate.ending == "failed"
        assert [m.text for m in driver.pending] == ["hi"] and driver.parked
        assert 'Plugin "breaks" failed in before_step' in (await driver.read())[-1].data.detail
        assert await receipt.withdraw() and not await receipt.withdraw()


async def test_a_model_error_ends_the_turn_failed_and_a_nudge_asks_again():
    model = ScriptModel([ProviderError("server", "boom", status=500), "fine"])
    async with Stack().open(Agent(model=model)) as driver:
        result = await driver.prompt("hi")
        assert (result.reason, "boom" in result.detail) == ("failed", True)
        with pytest.raises(TurnNotCompleted):
            result.check()
        again = await driver.nudge()
        assert (again.text, again.turn) == ("fine", 2)
        assert texts(model.requests[1]) == [("user", "hi")]


async def test_a_retry_stays_in_its_step_and_each_attempt_is_logged_and_paid():
    class Retries:
        @hookimpl
        async def on_model_error(self, error):
            return Retry()

    broken = ProviderError("overloaded", "busy", usage=Usage(input=7))
    model = ScriptModel([broken, broken, "fine"])
    async with Stack([Retries()]).open(Agent(model=model)) as driver:
        result = await driver.prompt("hi")
        events = [e for e in await driver.read() if e.type.startswith(("model/", "step/"))]
    assert [(e.type, getattr(e.data, "attempt", 0)) for e in events] == [
        ("step/start", 0), ("model/request", 1), ("model/failed", 1), ("model/request", 2), ("model/failed", 2),
        ("model/request", 3), ("step/end", 0),
    ]  # fmt: skip
    assert result.usage.input == 7 + 7 + 10


async def test_retries_end_at_max_attempts():
    class Retries:
        @hookimpl
        def on_model_error(self):
            return Retry()

    model = ScriptModel([ProviderError("server", "boom")], last=True)
    result = await Stack([Retries()]).run(Agent(model=model, limits=Limits(max_attempts=2)), "hi")
    assert (result.reason, len(model.asked), result.detail[:12]) == ("failed", 2, "max_attempts")


async def test_calls_of_a_truncated_reply_never_run():
    ran = []
    tool = Tool(name="add", call=lambda **given: ran.append(given))
    model = ScriptModel([Reply(parts=(call("add", a=1),), finish="length"), "shorter"])
    result = await Stack().run(Agent(model=model, tools=[tool]), "hi")
    assert (ran, result.text) == ([], "shorter")
    assert model.requests[1][2].parts[0].status == "not_started"


@pytest.mark.parametrize(("finish", "detail"), [("refused", "refused"), ("length", "length"), ("end", "")])
async def test_how_the_model_stopped_is_in_the_result(finish, detail):
    result = await Stack().run(Agent(model=ScriptModel([Reply(parts=(Text("I"),), finish=finish)])), "hi")
    assert (result.reason, result.finish, result.detail) == ("completed", finish, detail)


async def test_tc_051_a_content_filter_stop_is_one_call_and_a_visible_refusal():
    model = ScriptModel([Reply(parts=(), finish="refused")])
    result = await Stack().run(Agent(model=model), "hi")
    assert (len(model.asked), result.reason, result.finish) == (1, "completed", "refused")


async def test_tc_117_an_empty_answer_ends_the_turn_after_one_step():
    model = ScriptModel([None, "never"])
    async with Stack().open(Agent(model=model)) as driver:
        result = await driver.prompt("hi")
        assert (result.steps, result.reason, result.detail) == (1, "completed", "empty answer")
        await driver.prompt("again")
    assert texts(model.requests[1]) == [("user", "hi"), ("user", "again")]


async def test_a_stream_that_just_stops_is_interrupted_and_leaves_no_message():
    model = ScriptModel([[TextDelta("The answer is")], "42"])
    async with Stack().open(Agent(model=model)) as driver:
        result = await driver.prompt("hi")
        failed = next(e.data for e in await driver.read() if e.type == "model/failed")
    assert (result.reason, failed.kind, result.text) == ("failed", "interrupted", "")
    assert failed.usage is not None and failed.usage.estimated


async def test_a_fault_reply_is_a_failed_attempt():
    model = ScriptModel([[Finish(finish="fault")]])
    result = await Stack().run(Agent(model=model), "hi")
    assert (result.reason, "tool_use_failed" in result.detail) == ("failed", True)


async def test_a_result_that_concludes_owes_no_reply_but_steering_goes_on():
    final = Tool(name="final", call=lambda: ToolAnswer(parts="done", concludes=True))
    model = ScriptModel([call("final"), call("final"), "steered"])
    async with Stack().open(Agent(model=model, tools=[final])) as driver:
        result = await driver.prompt("hi")
        assert (result.steps, len(model.asked), result.reason) == (1, 1, "completed")


async def test_one_concluding_result_of_several_is_enough():
    final = Tool(name="final", call=lambda: ToolAnswer(parts="done", concludes=True))
    model = ScriptModel([calls(call("final"), call("add", a=1, b=1))])
    result = await Stack().run(Agent(model=model, tools=[final, ADD]), "hi")
    assert (len(model.asked), result.reason) == (1, "completed")


async def test_a_handoff_acts_from_the_next_step_to_the_end_of_the_turn():
    second_model = ScriptModel(["I am the second", "still?"])
    second = Agent(name="second", model=second_model, instructions="Be second.")
    hand = Tool(name="hand", call=lambda: ToolAnswer(parts="handing over", agent=second))
    first_model = ScriptModel([call("hand"), "first again"])
    async with Stack().open(Agent(name="first", model=first_model, tools=[hand])) as driver:
        assert (await driver.prompt("hi")).text == "I am the second"
        assert (await driver.prompt("who?")).text == "first again"
        steps = [(e.data.agent, e.turn) for e in await driver.read() if e.type == "step/start"]
    assert steps == [("first", 1), ("second", 1), ("first", 2)]
    assert second_model.asked[0].request.instructions == (Text("Be second."),)


async def test_use_changes_the_agent_from_the_next_step():
    other = Agent(name="other", model=ScriptModel(["from the other"]))
    switch = Tool(name="switch", call=lambda: driver.use(other))
    async with Stack().open(Agent(name="one", model=ScriptModel([call("switch")]), tools=[switch])) as driver:
        assert (await driver.prompt("hi")).text == "from the other"


async def test_instructions_are_evaluated_once_a_turn_and_read_session_user_and_step():
    seen = []

    async def instructions(context):
        seen.append((context.session, context.user, context.turn, context.step, context.deps))
        return f"You serve {context.user}."

    model = ScriptModel([call("add", a=1, b=1), "2", "3"])
    agent = Agent(model=model, tools=[ADD], instructions=instructions)
    async with Stack(store=MemoryStore()).open(agent, "s", user="ada", deps="mine") as driver:
        await driver.prompt("one")
        await driver.prompt("two")
    assert seen == [("s", "ada", 1, 1, "mine"), ("s", "ada", 2, 1, "mine")]
    assert model.asked[1].request.instructions == (Text("You serve ada."),)


async def test_a_plugin_that_follows_up_after_each_turn_is_stopped_by_max_turns_alone():
    class Chatters:
        @hookimpl
        async def on_event(self, event):
            if event.type == "turn/end" and event.data.reason == "completed":
                await driver.follow_up("again")

    model = ScriptModel(["x"], last=True)
    async with Stack([Chatters()]).open(Agent(model=model, limits=Limits(max_turns_alone=3))) as driver:
        await driver.prompt("hi")
        await driver.until_idle()
        ends = [e.data for e in await driver.read() if e.type == "turn/end"]
    assert [(end.reason, end.detail) for end in ends[-1:]] == [("limit", "max_turns_alone")]
    assert ends[-1].park and len(ends) == 5  # one with an outside message, three alone, the one refused


async def test_one_agent_in_a_thousand_turns_at_once_is_unchanged():
    import anyio

    model = ScriptModel([lambda request: "same"], last=True)
    agent = Agent(model=model, tools=[ADD], instructions="x")
    before = (agent.digest, agent.tools, agent.instructions, agent.limits)
    results = []

    async def one(stack):
        results.append((await stack.run(agent, "hi")).text)

    async with Stack() as stack, anyio.create_task_group() as group:
        for _ in range(1000):
            group.start_soon(one, stack)
    assert results == ["same"] * 1000
    assert before == (agent.digest, agent.tools, agent.instructions, agent.limits)
