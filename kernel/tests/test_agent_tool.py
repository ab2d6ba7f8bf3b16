"""An agent as a tool: its session, its budget, what it costs, what waits in it, and what a crash leaves of it."""

import anyio
import pytest

from treadle import Agent, Allow, Deny, Limits, Stack, Tool, Usage
from treadle.errors import UsageError
from treadle.events import ToolResult, TurnEnd, UserMessage
from treadle.functions import agent_tool
from treadle.store import MemoryStore, SessionFilter, _Kept
from treadle_script import ScriptModel, call, calls


def helper(*lines, tools=(), limits=None):
    return Agent(name="helper", model=ScriptModel(lines), tools=list(tools), limits=limits or Limits())


def boss(*lines, tools, limits=None):
    return Agent(name="boss", model=ScriptModel(lines), tools=list(tools), limits=limits or Limits())


def answers(result):
    return [part for m in result.messages if m.role == "tool" for part in m.parts]


async def test_the_task_goes_to_a_session_named_after_the_parents_and_the_call_and_its_answer_comes_back():
    store = MemoryStore()
    agent = boss(call("helper", task="Count."), "Three, it says.", tools=[agent_tool(helper("There are three."))])
    result = await Stack(store=store).run(agent, "How many?", session="s")
    (answer,) = answers(result)
    assert (answer.status, answer.parts[0].text, result.text) == ("ok", "There are three.", "Three, it says.")
    names = {each.id for each in await store.list(SessionFilter())}
    assert names == {"s", f"s/{answer.call_id}"}
    log = await store.open(f"s/{answer.call_id}", write=False)
    (said,) = [e.data.message for e in await log.read() if isinstance(e.data, UserMessage)]
    assert (said.text, said.origin) == ("Count.", f"call:{answer.call_id}")


async def test_a_session_in_memory_has_its_child_in_the_same_memory():
    agent = boss(call("helper", task="Count."), "ok", tools=[agent_tool(helper("three"))])
    result = await Stack().run(agent, "go")
    assert answers(result)[0].parts[0].text == "three"


async def test_its_usage_is_a_part_of_the_turns():
    agent = boss(call("helper", task="Count."), "ok", tools=[agent_tool(helper("three"))])
    result = await Stack().run(agent, "go")
    assert (result.usage.input, result.usage.output) == (30, 15)  # the script counts 10 and 5 for each of three replies


async def test_user_and_deps_reach_the_child():
    seen = []

    def look(context):
        seen.append((context.user, context.deps, context.session.count("/")))
        return "Look."

    child = Agent(name="helper", model=ScriptModel(["ok"]), instructions=look)
    agent = boss(call("helper", task="x"), "ok", tools=[agent_tool(child)])
    await Stack().run(agent, "go", user="ada", deps="mine")
    assert seen == [("ada", "mine", 1)]


async def test_a_child_gets_its_share_of_the_tokens_that_are_left():
    seen = []

    def look(context):
        seen.append(context.limits.tokens)
        return "Look."

    child = Agent(name="helper", model=ScriptModel(["ok"]), instructions=look)
    limits = Limits(tokens=1000)
    agent = boss(call("helper", task="x"), "ok", tools=[agent_tool(child, share=0.5)], limits=limits)
    await Stack().run(agent, "go")
    assert seen == [492]  # half of 1000 less the 15 of the reply that called


async def test_a_childs_own_smaller_budget_stays():
    look = Tool(name="look", call=lambda: "x")
    child = helper(calls(call("look"), text="a"), "b", tools=[look], limits=Limits(tokens=7))
    agent = boss(call("helper", task="x"), "ok", tools=[agent_tool(child)], limits=Limits(tokens=1000))
    (answer,) = answers(await Stack().run(agent, "go"))
    assert answer.parts[0].text == "helper came to no answer (limit, tokens). It said last: a"


async def test_a_child_that_ends_at_a_limit_is_an_error_with_what_it_said_last():
    look = Tool(name="look", call=lambda: "nothing")
    child = helper(calls(call("look"), text="Let me look."), tools=[look], limits=Limits(max_steps=1))
    agent = boss(call("helper", task="x"), "ok", tools=[agent_tool(child)])
    (answer,) = answers(await Stack().run(agent, "go"))
    assert answer.status == "error"
    assert answer.parts[0].text == "helper came to no answer (limit, max_steps). It said last: Let me look."


async def test_children_side_by_side_have_sessions_of_their_own():
    model = ScriptModel(["one", "two"])
    child = Agent(name="helper", model=model)
    both = calls(call("helper", task="a"), call("helper", task="b"))
    result = await Stack().run(boss(both, "ok", tools=[agent_tool(child)]), "go")
    assert sorted(each.parts[0].text for each in answers(result)) == ["one", "two"]
    assert len({each.call_id for each in answers(result)}) == 2


async def test_an_agent_under_an_agent_under_an_agent_is_named_by_the_whole_path():
    store = MemoryStore()
    leaf = Agent(name="leaf", model=ScriptModel(["deep"]))
    middle = Agent(name="middle", model=ScriptModel([call("leaf", task="x"), "middle"]), tools=[agent_tool(leaf)])
    await Stack(store=store).run(boss(call("middle", task="x"), "ok", tools=[agent_tool(middle)]), "go", session="s")
    assert sorted(each.id.count("/") for each in await store.list(SessionFilter())) == [0, 1, 2]


async def test_a_structured_answer_comes_as_json():
    child = helper(call("final_answer", value=42))
    agent = boss(call("helper", task="x"), "ok", tools=[agent_tool(child, output=int)])
    (answer,) = answers(await Stack().run(agent, "go"))
    assert (answer.status, answer.parts[0].text) == ("ok", '{"value": 42}')


async def test_a_cancel_of_the_parent_closes_the_child_aborted():
    store, begun = MemoryStore(), anyio.Event()

    async def wait():
        begun.set()
        await anyio.sleep_forever()

    child = helper(call("wait"), tools=[Tool(name="wait", call=wait)])
    async with Stack(store=store).open(boss(call("helper", task="x"), tools=[agent_tool(child)]), "s") as driver:
        receipt = await driver.follow_up("go")
        await begun.wait()
        driver.cancel(cause="enough")
        assert (await receipt.result()).reason == "aborted"
    (name,) = [each.id for each in await store.list(SessionFilter()) if each.id != "s"]
    log = await store.open(name, write=False)
    assert [e.data.reason for e in await log.read() if isinstance(e.data, TurnEnd)] == ["aborted"]


# --- what waits in a child -------------------------------------------------------------------------------------------


def asks_first():
    done = []
    delete = Tool(
        name="delete",
        parameters={"type": "object", "properties": {"path": {"type": "string"}}},
        call=lambda path: done.append(path) or "deleted",
        needs_approval=True,
    )
    return done, helper(call("delete", path="/tmp/x"), "It is gone.", tools=[delete])


async def test_a_call_that_waits_in_the_child_makes_the_parents_call_wait_and_says_which():
    done, child = asks_first()
    async with Stack().open(boss(call("helper", task="x"), tools=[agent_tool(child)]), "s") as driver:
        result = await driver.prompt("go")
    assert (result.reason, done) == ("waiting", [])
    (answer,) = answers(result)
    assert answer.status == "deferred"
    assert 'helper waits for a decision about: delete {"path": "/tmp/x"}.' in answer.parts[0].text


async def test_to_allow_the_parents_call_is_to_allow_what_waits_and_each_turn_counts_once():
    done, child = asks_first()
    agent = boss(call("helper", task="x"), "Done.", tools=[agent_tool(child)])
    async with Stack().open(agent, "s") as driver:
        first = await driver.prompt("go")
        receipt = await driver.decide({first.waiting[0].id: Allow()})
        second = await receipt.result()
    assert (done, second.text, second.reason) == (["/tmp/x"], "Done.", "completed")
    assert answers(second)[0].parts[0].text == "It is gone."
    # Two replies in each turn, one of the parent and one of the child, 15 tokens each.
    assert (first.usage.tokens, second.usage.tokens) == (30, 30)


async def test_to_deny_the_parents_call_runs_nothing():
    done, child = asks_first()
    agent = boss(call("helper", task="x"), "Then not.", tools=[agent_tool(child)])
    async with Stack().open(agent, "s") as driver:
        first = await driver.prompt("go")
        result = await (await driver.decide({first.waiting[0].id: Deny("no")})).result()
    assert (done, result.text) == ([], "Then not.")


# --- after a crash ---------------------------------------------------------------------------------------------------


async def whole_run(make):
    """Both logs of a run that nothing disturbed: the parent's and the child's."""
    store = MemoryStore()
    _, agent = make()
    await Stack(store=store).run(agent, "go", session="s")
    (name,) = [each for each in store._sessions if each != "s"]
    return store._sessions["s"].events, name, store._sessions[name].events


def died(events, name, child_events, upto):
    store = MemoryStore()
    called = next(e.seq for e in events if e.type == "tool/call")
    store._sessions["s"] = _Kept("s", 0.0, events=list(events[:called]))
    if upto:
        store._sessions[name] = _Kept(name, 0.0, events=list(child_events[:upto]))
    return store


LOOK = Tool(name="look", call=lambda: "three", replay="pure")


SAID = (call("look"), "There are three.")


def make(said=SAID):
    child = helper(*said, tools=[LOOK])
    return child, boss(call("helper", task="Count."), "ok", tools=[agent_tool(child)])


INSIDE = (1, 2, 4)  # session/open, inbox/put and turn/start are one append; so are step/start and user/message


@pytest.mark.parametrize("upto", [upto for upto in range(16) if upto not in INSIDE])
async def test_wherever_the_process_died_the_child_is_found_again_and_answers(upto):
    events, name, child_events = await whole_run(make)
    assert upto <= len(child_events)
    steps = sum(e.type == "assistant/message" for e in child_events[:upto])
    store = died(events, name, child_events, upto)
    child, _ = make(SAID[steps:])
    agent = boss("ok", tools=[agent_tool(child)])
    async with Stack(store=store).open(agent, "s") as driver:
        result = await driver.nudge()
    (answer,) = answers(result)
    assert (answer.status, answer.parts[0].text) == ("ok", "There are three.")
    log = store._sessions[name].events
    assert [e.data.message.text for e in log if isinstance(e.data, UserMessage)] == ["Count."]
    assert child.model.left == 0  # nothing was asked twice


async def test_a_child_that_waited_when_the_process_died_waits_on():
    done, child = asks_first()
    events, name, child_events = await whole_run(
        lambda: (child, boss(call("helper", task="x"), tools=[agent_tool(child)]))
    )
    store = died(events, name, child_events, len(child_events))
    _, child = asks_first()
    async with Stack(store=store).open(boss(tools=[agent_tool(child)]), "s") as driver:
        result = await driver.nudge()
    assert (result.reason, done) == ("waiting", [])
    assert [e.data.usage for e in store._sessions["s"].events if isinstance(e.data, ToolResult)][-1] == Usage(
        input=10, output=5
    )


@pytest.mark.parametrize("share", [0, -1, 1.1])
def test_a_share_is_above_nothing_and_at_most_all(share):
    with pytest.raises(UsageError, match="up to 1"):
        agent_tool(helper(), share=share)


def test_an_agent_whose_name_cannot_name_a_tool_needs_another():
    with pytest.raises(UsageError, match="agent_tool"):
        agent_tool(Agent(name="my helper", model="script:x"))
    assert agent_tool(Agent(name="my helper", model="script:x"), name="helper").name == "helper"
