"""The stepper: what it holds, in which order it lets go, and that holding changes nothing but the order."""

from contextlib import asynccontextmanager
from random import Random

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from treadle import Agent, Allow, CallContext, Defer, Retry, Stack, Tool, ToolAnswer, hookimpl
from treadle.errors import ProviderError, UsageError
from treadle.store import MemoryStore
from treadle.testing import Stepper, faults_of, normalised
from treadle_script import ScriptModel, call, calls

ANY = {"type": "object"}
ADD = Tool(name="add", call=lambda: "3", parameters=ANY)


def waiting(stepper):
    return [str(effect) for effect in stepper.waiting]


@asynccontextmanager
async def prompted(stepper, agent, plugins=(), **given):
    """A driver that was just prompted, with everything waiting."""
    stack = stepper.stack(plugins, **given)
    async with anyio.create_task_group() as group, stack.open(stepper.agent(agent), "s") as driver:
        group.start_soon(driver.follow_up, "hi")
        await stepper.settle()
        yield driver


async def until(stepper, effect):
    """Release in order until this effect waits; returns its place."""
    while effect not in waiting(stepper):
        await stepper.release()
    return waiting(stepper).index(effect)


async def test_every_effect_of_a_turn_waits_to_be_let_go():
    class Guard:
        @hookimpl
        def before_tool(self):
            return None

    stepper, seen = Stepper(), []
    async with prompted(stepper, Agent(model=ScriptModel([call("add"), "3"]), tools=[ADD]), [Guard()]):
        while stepper.waiting:
            seen.append(str(await stepper.release()))
    assert seen == [
        "append session/open, inbox/put, turn/start",
        "sync",  # the put's own, before its receipt
        "append step/start, user/message",
        "append model/request", "sync", "model CallDelta", "model Finish", "append assistant/message",
        "hook before_tool of guard", "append tool/call", "sync", "tool add starts", "tool add ends",
        "append tool/result", "sync",
        "append step/end", "sync",
        "append step/start",
        "append model/request", "sync", "model TextDelta", "model Finish", "append assistant/message",
        "append step/end", "sync",
        "append turn/end", "sync",
    ]  # fmt: skip


async def test_bodies_end_in_the_order_of_the_test_and_their_results_stand_in_the_models():
    tools = [Tool(name=name, call=lambda name=name: name, parameters=ANY) for name in ("a", "b")]
    stepper = Stepper(hold={"tool"})
    async with prompted(stepper, Agent(model=ScriptModel([calls(call("a"), call("b")), "ok"]), tools=tools)) as driver:
        assert sorted(waiting(stepper)) == ["tool a starts", "tool b starts"]
        await stepper.release(waiting(stepper).index("tool b starts"))
        assert waiting(stepper) == ["tool a starts", "tool b ends"]
        await stepper.release(1)
        assert [e.type for e in await driver.read()][-1] == "tool/call"  # b has settled, and waits for a's result
        await stepper.release()
        await stepper.release()
        results = [e.data.parts[0].text for e in await driver.read() if e.type == "tool/result"]
    assert results == ["a", "b"]


async def test_a_cancel_takes_a_waiting_effect_away():
    stepper = Stepper(hold={"tool"})
    async with prompted(stepper, Agent(model=ScriptModel([call("add")]), tools=[ADD])) as driver:
        assert waiting(stepper) == ["tool add starts"]
        driver.cancel()
        await stepper.settle()
        assert (waiting(stepper), driver.running) == ([], False)


async def test_releasing_what_does_not_wait_says_what_does():
    stepper = Stepper(hold={"tool"})
    async with prompted(stepper, Agent(model=ScriptModel([call("add"), "ok"]), tools=[ADD])):
        with pytest.raises(UsageError, match=r"No effect 1 waits\. Waiting: tool add starts\."):
            await stepper.release(1)
    with pytest.raises(UsageError, match="Waiting: nothing"):
        await stepper.release()


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="'clock' is none of them"):
        Stepper(hold={"clock"})


async def test_leaving_a_driver_lets_go_of_what_a_failing_test_still_holds():
    stepper = Stepper()
    with pytest.raises(ExceptionGroup) as raised, anyio.fail_after(5):
        async with prompted(stepper, Agent(model=ScriptModel(["ok"]))):
            raise ValueError("the test failed")
    assert (raised.value.exceptions[0].args, stepper.waiting) == (("the test failed",), [])


async def test_times_stand_still_until_the_clock_is_advanced():
    stepper = Stepper(hold=())
    async with stepper.stack().open(stepper.agent(Agent(model=ScriptModel(["a", "b"])))) as driver:
        await driver.prompt("one")
        stepper.advance(60)
        await driver.prompt("two")
        times = [(e.turn, e.time - 1_700_000_000) for e in await driver.read() if e.type == "turn/end"]
    assert times == [(1, 0.0), (2, 60.0)]


async def test_models_stores_and_tools_that_plugins_bring_are_held_too():
    class Brings:
        @hookimpl
        def open_model(self, ref):
            return ScriptModel([call("add"), "ok"], ref=ref) if ref.startswith("mine:") else None

        @hookimpl
        def open_store(self, ref):
            return MemoryStore(ref) if ref.startswith("kept:") else None

        @hookimpl
        def provide_tools(self):
            return [ADD]

    stepper, seen = Stepper(), []
    async with prompted(stepper, Agent(model="mine:model"), [Brings()], store="kept:here"):
        while stepper.waiting:
            seen.append(str(await stepper.release()))
    assert {"append turn/end", "hook provide_tools of brings", "model CallDelta", "tool add ends"} <= set(seen)


async def test_a_tools_context_and_a_handoff_reach_through_the_wrapper():
    keys = []

    async def over(context: CallContext):
        keys.append(context.key)
        return ToolAnswer(parts="over", agent=Agent(name="other", model=ScriptModel(["from the other"])))

    stepper = Stepper()
    tool = Tool(name="over", call=over, parameters=ANY)
    async with prompted(stepper, Agent(model=ScriptModel([call("over")]), tools=[tool])):
        await stepper.release(await until(stepper, "tool over starts"))
        await until(stepper, "model TextDelta")
        assert keys and keys[0].startswith("s:")


# --- the property ---------------------------------------------------------------------------------------------


class Plays:
    """Hooks of a script: asks for approval, retries, objects once a turn."""

    def __init__(self):
        self.objected = 0

    @hookimpl
    async def before_tool(self, call):
        return Defer("ask") if call.name == "asks" else None

    @hookimpl
    async def on_model_error(self):
        return Retry()

    @hookimpl
    async def on_turn_stopping(self, context):
        if context.turn == self.objected:
            return None
        self.objected = context.turn
        return "are you sure?"


async def _body():
    await anyio.lowlevel.checkpoint()
    return "done"


def _raises():
    raise ValueError("as asked")


TOOLS = [
    Tool(name="a", call=_body, parameters=ANY),
    Tool(name="b", call=_body, parameters=ANY),
    Tool(name="alone", call=_body, parameters=ANY, exclusive=True),
    Tool(name="sync", call=lambda: "sync", parameters=ANY),
    Tool(name="raises", call=_raises, parameters=ANY),
    Tool(name="asks", call=_body, parameters=ANY),
    Tool(name="final", call=lambda: ToolAnswer(parts="the end", concludes=True), parameters=ANY),
]
NAMES = st.sampled_from([*(tool.name for tool in TOOLS), "unknown"])
LINES = st.lists(st.one_of(st.just("text"), st.just("error"), st.lists(NAMES, min_size=1, max_size=4)), max_size=6)


def script(lines):
    """A model that plays these lines, then only says that it is done."""
    words = {"text": "some words", "error": None}
    made = [words[line] if isinstance(line, str) else calls(*[call(name) for name in line]) for line in lines]
    return ScriptModel([ProviderError("server", "as asked") if line is None else line for line in made] + ["done"] * 40)


async def played(driver):
    """The script's part of the application: two prompts, and a decision for whatever waits."""
    for text in ("one", "two"):
        await driver.prompt(text)
        if driver.waiting:
            await (await driver.decide({each.id: Allow() for each in driver.waiting})).result()
    return normalised(await driver.read())


async def plainly(lines):
    async with Stack([Plays()]).open(Agent(model=script(lines), tools=TOOLS), "s") as driver:
        found = await played(driver)
        assert faults_of(await driver.read()) == []
    return found


async def stepped(lines, stepper, order):
    """The same, with the effects let go in this order."""
    found = []

    async def play():
        found.extend(await played(driver))

    agent = stepper.agent(Agent(model=script(lines), tools=TOOLS))
    async with anyio.create_task_group() as group, stepper.stack([Plays()]).open(agent, "s") as driver:
        group.start_soon(play)
        await stepper.settle()
        while stepper.waiting:
            await stepper.release(order(len(stepper.waiting)))
    return found


@pytest.fixture
def checked_logs():
    """The property below checks its logs itself, and makes too many to keep."""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(lines=LINES, seed=st.integers(0, 2**32))
@example(lines=["error", ["a", "alone", "b", "asks"], ["sync", "raises"]], seed=0)
def test_a_script_runs_to_the_same_log_freely_and_stepped_in_any_order(backend, lines, seed):
    async def runs():
        plain = await plainly(lines)
        assert await stepped(lines, Stepper(hold=()), None) == plain
        assert await stepped(lines, Stepper(hold=(), shake=Random(seed)), None) == plain
        assert await stepped(lines, Stepper(), lambda count: 0) == plain
        assert await stepped(lines, Stepper(), lambda count: count - 1) == plain
        assert await stepped(lines, Stepper(), Random(seed).randrange) == plain

    anyio.run(runs, backend=backend)
