"""Tool calls: bad arguments, unknown names, repeated ids, order, barriers, threads, whatever a body raises."""

import contextvars
import threading

import anyio
import pytest

from treadle import Agent, CallContext, Limits, Stack, Text, Tool, ToolAnswer, TurnContext, hookimpl
from treadle.messages import Call
from treadle.model import CallDelta, Finish
from treadle.store import MemoryStore
from treadle_script import ScriptModel, call, calls

ANY = {"type": "object"}


def raw(name, arguments, provider_id=""):
    return Call(id="", name=name, arguments=arguments, provider_id=provider_id)


def results(messages):
    return [m.parts[0] for m in messages if m.role == "tool"]


async def answered(tool, arguments, **agent):
    model = ScriptModel([raw(tool.name, arguments), "ok"])
    result = await Stack().run(Agent(model=model, tools=[tool], **agent), "hi")
    (answer,) = results(result.messages)
    return answer.status, answer.parts[0].text


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.parametrize("arguments", ["", "  \n", "{}"])
async def test_tc_019_empty_arguments_are_none_and_a_missing_name_is_said_plainly(arguments):
    assert await answered(Tool(name="ping", call=lambda: "pong"), arguments) == ("ok", "pong")
    status, text = await answered(Tool(name="get", parameters=CITY, call=lambda city: city), arguments)
    assert (status, text) == ("invalid_arguments", "Missing: city.")


async def test_tc_021_arguments_encoded_twice_are_unwrapped_once():
    tool = Tool(name="get", parameters=CITY, call=lambda city: city)
    once = '{"city": "Oslo"}'
    import json

    assert await answered(tool, json.dumps(once)) == ("ok", "Oslo")
    status, text = await answered(tool, json.dumps(json.dumps(once)))
    assert (status, "object" in text) == ("invalid_arguments", True)


@pytest.mark.parametrize("arguments", ['{"city": ', "[1]", "7", '"text"', '{"city": NaN}', "{" * 5000])
async def test_what_is_no_json_object_is_an_invalid_arguments_result_without_decoder_words(arguments):
    status, text = await answered(Tool(name="get", parameters=CITY, call=lambda city: city), arguments)
    assert status == "invalid_arguments"
    assert not any(word in text for word in ("char", "line 1", "Expecting", "column"))


async def test_wrong_types_at_the_top_level_are_refused_and_booleans_are_no_numbers():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = Tool(name="t", parameters=schema, call=lambda n: str(n))
    assert (await answered(tool, '{"n": true}'))[1] == "n must be of type integer, not boolean."
    assert (await answered(tool, '{"n": "1"}'))[1] == "n must be of type integer, not string."
    assert await answered(tool, '{"n": 3}') == ("ok", "3")


async def test_tc_023_the_unknown_tool_text_names_only_this_steps_tools_and_is_bounded():
    class Hides:
        @hookimpl
        def provide_tools(self, context):
            return [Tool(name=f"hidden{n}", call=lambda: "x") for n in range(40)] if context.step > 1 else []

    tools = [Tool(name=f"tool{n}", call=lambda: "x") for n in range(3)]
    model = ScriptModel([raw("hidden7", "{}"), "ok"])
    result = await Stack([Hides()]).run(Agent(model=model, tools=tools), "hi")
    answer = results(result.messages)[0]
    assert answer.status == "unknown_tool"
    assert answer.parts[0].text == 'There is no tool named "hidden7". Tools: tool0, tool1, tool2.'
    many = [Tool(name=f"tool{n}" + "x" * 200, call=lambda: "x") for n in range(500)]
    model = ScriptModel([raw("n" * 10000, "{}"), "ok"])
    result = await Stack().run(Agent(model=model, tools=many), "hi")
    assert len(results(result.messages)[0].parts[0].text) < 2000


async def test_tc_025_the_same_call_twice_in_one_reply_runs_once_and_different_ones_get_their_own_ids():
    ran = []
    tool = Tool(name="run", parameters=ANY, call=lambda cmd: ran.append(cmd) or "ok")
    twice = calls(raw("run", '{"cmd":"a"}', "d1"), raw("run", '{"cmd":"a"}', "d1"))
    model = ScriptModel([twice, "ok"])
    await Stack().run(Agent(model=model, tools=[tool]), "hi")
    assert ran == ["a"] and len(model.requests[1][1].calls) == 1 and len(results(model.requests[1])) == 1
    ran.clear()
    model = ScriptModel([calls(raw("run", '{"cmd":"a"}', "d1"), raw("run", '{"cmd":"b"}', "d1")), "ok"])
    await Stack().run(Agent(model=model, tools=[tool]), "hi")
    made = model.requests[1][1].calls
    assert sorted(ran) == ["a", "b"] and len({c.id for c in made}) == 2
    assert [c.provider_id for c in made] == ["d1", ""]
    assert [r.call_id for r in results(model.requests[1])] == [c.id for c in made]


async def test_empty_provider_ids_never_collide():
    deltas = [CallDelta(key=n, name="f", arguments=f'{{"n": {n}}}') for n in range(2)]
    model = ScriptModel([[*deltas, Finish(finish="calls")], "ok"])
    result = await Stack().run(Agent(model=model, tools=[Tool(name="f", parameters=ANY, call=lambda n: str(n))]), "hi")
    assert [r.parts[0].text for r in results(result.messages)] == ["0", "1"]


async def test_tc_015_results_stand_in_model_order_whatever_settles_first():
    gate = anyio.Event()

    class Guard:
        @hookimpl
        def before_tool(self, call):
            from treadle import Deny

            if call.name == "f2":
                gate.set()  # f1 ends only after f2 was denied
                return Deny("no")
            return None

    async def f1():
        await gate.wait()
        return "slow"

    model = ScriptModel([calls(call("f1"), call("f2"), call("f3")), "ok"])
    tools = [Tool(name="f1", call=f1), Tool(name="f2", call=lambda: "never")]
    result = await Stack([Guard()]).run(Agent(model=model, tools=tools), "hi")
    assert [(r.name, r.status) for r in results(result.messages)] == [
        ("f1", "ok"), ("f2", "denied"), ("f3", "unknown_tool"),
    ]  # fmt: skip
    assert [r.name for r in results(model.requests[1])] == ["f1", "f2", "f3"]


class Bodies:
    """Bodies that count how many of them run at once."""

    def __init__(self):
        self.now = self.most = 0
        self.log: list[str] = []

    def tool(self, name, **given):
        async def body():
            self.now += 1
            self.most = max(self.most, self.now)
            self.log.append(f"+{name}")
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            self.log.append(f"-{name}")
            self.now -= 1
            return name

        return Tool(name=name, call=body, **given)


async def test_parallel_bodies_stay_within_the_cap():
    bodies = Bodies()
    model = ScriptModel([calls(*[call("a") for _ in range(9)]), "ok"])
    await Stack().run(Agent(model=model, tools=[bodies.tool("a")], limits=Limits(max_parallel=3)), "hi")
    assert bodies.most == 3


async def test_an_exclusive_call_is_a_barrier():
    bodies = Bodies()
    model = ScriptModel([calls(call("a"), call("a"), call("x"), call("b"), call("b")), "ok"])
    tools = [bodies.tool("a"), bodies.tool("x", exclusive=True), bodies.tool("b")]
    await Stack().run(Agent(model=model, tools=tools), "hi")
    assert bodies.log == ["+a", "+a", "-a", "-a", "+x", "-x", "+b", "+b", "-b", "-b"]


@pytest.mark.parametrize(
    "error",
    [ValueError("v"), SystemExit(3), ExceptionGroup("g", [ValueError("v")]), BaseException("b")],
)
@pytest.mark.parametrize("sync", [True, False])
async def test_whatever_a_body_raises_is_an_error_the_model_reads(error, sync):
    def plain():
        raise error

    async def coroutine():
        raise error

    status, text = await answered(Tool(name="t", call=plain if sync else coroutine), "{}")
    assert (status, type(error).__name__ in text) == ("error", True)


async def test_a_sync_tools_own_keyboard_interrupt_is_an_error_the_model_reads():
    def body():
        raise KeyboardInterrupt

    status, text = await answered(Tool(name="t", call=body), "{}")
    assert (status, "KeyboardInterrupt" in text) == ("error", True)


async def test_sync_tools_see_the_callers_context_variables_in_a_worker_thread():
    variable = contextvars.ContextVar("v", default="unset")
    seen = []

    def body():
        seen.append((variable.get(), threading.current_thread() is threading.main_thread()))
        return "ok"

    variable.set("set")
    async with Stack().open(Agent(model=ScriptModel([call("t"), "ok"]), tools=[Tool(name="t", call=body)])) as driver:
        await driver.prompt("hi")
    assert seen == [("set", False)]


async def test_contexts_are_passed_by_annotation_and_the_key_is_the_same_when_resumed():
    keys = []

    def body(n: int, context: CallContext[str], turn: "TurnContext"):
        keys.append(context.key)
        assert context.turn is turn and context.deps == "mine" and turn.deps == "mine"
        return "ok"

    tool = Tool(name="t", parameters=ANY, call=body, needs_approval=True)
    from treadle import Allow

    model = ScriptModel([raw("t", '{"n": 1}'), "ok"])
    async with Stack(store=MemoryStore()).open(Agent(model=model, tools=[tool]), "s", deps="mine") as driver:
        waiting = (await driver.prompt("hi")).waiting[0]
        await (await driver.decide({waiting.id: Allow()})).result()
    assert keys == [f"s:{waiting.id}"]


async def test_progress_and_notes_of_a_body_reach_watchers_and_log():
    def body(context: CallContext):
        context.progress("half way")
        context.note("seen", {"n": 1})
        return "ok"

    async with Stack().open(Agent(model=ScriptModel([call("t"), "ok"]), tools=[Tool(name="t", call=body)])) as driver:
        watch = driver.watch()
        await driver.prompt("hi")
        types = [e.type for e in await driver.read()]
        note = next(e for e in await driver.read() if e.type == "app/seen")
    assert types.index("tool/call") < types.index("app/seen") < types.index("tool/result")
    assert (note.data.value, note.owner, note.required) == ({"n": 1}, "app", False)
    assert [i.text async for i in watch if getattr(i, "kind", "") == "progress"] == ["half way"]


@pytest.mark.parametrize(
    ("value", "text"),
    [("words", "words"), (None, "null"), ({"a": [1]}, '{"a": [1]}'), (3, "3"), ([], "[]"), (Text("part"), "part")],
)
async def test_what_a_tool_returns_becomes_parts(value, text):
    assert await answered(Tool(name="t", call=lambda: value), "{}") == ("ok", text)


async def test_reconcile_is_asked_before_a_resumed_call_runs_again():
    from treadle import Allow

    ran, asked = [], []

    async def reconcile(key):
        asked.append(key)
        return "already done"

    tool = Tool(name="pay", call=lambda: ran.append(1), replay="reconcile", reconcile=reconcile, needs_approval=True)
    model = ScriptModel([call("pay"), "ok"])
    async with Stack().open(Agent(model=model, tools=[tool])) as driver:
        waiting = (await driver.prompt("hi")).waiting[0]
        result = await (await driver.decide({waiting.id: Allow()})).result()
    assert (ran, len(asked), results(result.messages)[0].parts) == ([], 1, (Text("already done"),))


async def test_tc_085_leaving_a_half_read_stream_raises_nothing_and_ends_the_producer():
    model = ScriptModel(["word " * 30])
    async with Stack().stream(Agent(model=model), "hi") as stream:
        texts = stream.text()
        async for _ in texts:
            break
        await texts.aclose()
        await texts.aclose()
    assert stream.driver.status == "closed"


async def test_tc_115_a_child_that_cancels_itself_leaves_its_parent_going_on():
    async def child():
        itself = ScriptModel([lambda request: inner.cancel() and "never"])
        async with Stack().open(Agent(model=itself, name="child")) as inner:
            result = await inner.prompt("hi")
            status = "cancelled" if result.reason == "aborted" else "ok"
            return ToolAnswer(parts=result.reason, status=status)

    model = ScriptModel([call("child"), "the parent goes on"])
    result = await Stack().run(Agent(model=model, tools=[Tool(name="child", call=child)]), "hi")
    assert (results(result.messages)[0].status, result.text) == ("cancelled", "the parent goes on")


async def test_tc_089_a_tools_own_time_out_beats_the_agents_and_can_be_read():
    left = {}

    async def patient(context: CallContext):
        left["patient"] = context.deadline - anyio.current_time()
        await anyio.sleep(0.2)  # longer than the agent's tool_seconds
        return "in time"

    async def hasty(context: CallContext):
        left["hasty"] = context.deadline - anyio.current_time()
        await anyio.sleep_forever()

    async def plain(context: CallContext):
        left["plain"] = context.deadline - anyio.current_time()
        await anyio.sleep_forever()

    tools = [
        Tool(name="patient", call=patient, parameters=ANY, timeout_seconds=60),
        Tool(name="hasty", call=hasty, parameters=ANY, timeout_seconds=0.05),
        Tool(name="plain", call=plain, parameters=ANY),
    ]
    model = ScriptModel([calls(call("patient"), call("hasty"), call("plain")), "ok"])
    result = await Stack().run(Agent(model=model, tools=tools, limits=Limits(tool_seconds=0.1)), "hi")
    assert [each.status for each in results(result.messages)] == ["ok", "timeout", "timeout"]
    assert 50 < left["patient"] <= 60 and left["hasty"] <= 0.05 and left["plain"] <= 0.1
