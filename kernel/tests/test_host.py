"""The hook host: order, joins, faults, and hooks that are partials, callables, sync or async, or return nonsense."""

import functools

import anyio
import attrs
import pytest

from treadle import Agent, Answer, CallContext, Deny, Halt, Limits, Stack, Text, Tool, hookimpl
from treadle.errors import CompositionError, Parked, PluginError, UnreadableLog, UsageError
from treadle.hooks import JOINS, Specs
from treadle.store import MemoryStore
from treadle_script import ScriptModel, call

T = Tool(name="t", call=lambda: "raw")


def results(messages):
    return [m.parts[0] for m in messages if m.role == "tool"]


class Named:
    def __init__(self, name, log):
        self.name, self.log = name, log

    @hookimpl
    async def before_step(self, batch):
        self.log.append(f"before {self.name}")

    @hookimpl
    def after_tool(self, result):
        self.log.append(f"after {self.name}")
        return attrs.evolve(result, parts=(Text(result.parts[0].text + self.name),))

    @hookimpl
    async def around_tool(self, call_next, call):
        self.log.append(f"> {self.name}")
        answer = await call_next(call)
        self.log.append(f"< {self.name}")
        return answer


async def test_hooks_run_in_the_stacks_order_and_after_tool_in_reverse():
    log = []
    model = ScriptModel([call("t"), "ok"])
    result = await Stack([Named(n, log) for n in "abc"]).run(Agent(model=model, tools=[T]), "hi")
    assert log[:3] == ["before a", "before b", "before c"]
    assert log[3:9] == ["> a", "> b", "> c", "< c", "< b", "< a"]
    assert log[9:12] == ["after c", "after b", "after a"]
    assert results(result.messages)[0].parts == (Text("rawcba"),)


async def test_a_redactor_marked_tryfirst_is_last():
    class Last(Named):
        @hookimpl(tryfirst=True)
        def after_tool(self, result):
            return super().after_tool(result)

    log = []
    model = ScriptModel([call("t"), "ok"])
    await Stack([Named("a", log), Last("z", log), Named("b", log)]).run(Agent(model=model, tools=[T]), "hi")
    assert [each for each in log if each.startswith("after")] == ["after b", "after a", "after z"]


class Callable:
    def __init__(self, seen):
        self.seen = seen

    def __call__(self, batch):
        self.seen.append("callable")


async def test_partials_and_callables_are_hooks_too():
    seen = []

    async def note(seen, batch, context):
        seen.append("partial")

    class Odd:
        before_step = hookimpl(functools.partial(note, seen))

    class Odder:
        before_step = hookimpl(Callable(seen))

    await Stack([Odd(), Odder()]).run(Agent(model=ScriptModel(["ok"])), "hi")
    assert seen == ["partial", "callable"]


@pytest.mark.parametrize("hook", ["before_step", "transform_context", "shape_request", "after_tool"])
async def test_a_waterfall_that_returns_nonsense_is_its_plugins_fault(hook):
    class Nonsense:
        pass

    setattr(Nonsense, hook, hookimpl(eval("lambda self: 42")))
    getattr(Nonsense, hook).__name__ = hook
    model = ScriptModel([call("t"), "ok"])
    async with Stack([Nonsense()]).open(Agent(model=model, tools=[T])) as driver:
        receipt = await driver.follow_up("hi")
        await receipt.fate()
        await driver.until_idle()
        end = (await driver.read())[-1].data
        texts = str(end) + str([e.data for e in await driver.read() if e.type == "tool/result"])
    assert "nonsense" in texts
    assert (end.reason == "failed") == (hook != "after_tool")


async def test_tc_097_a_guard_that_fails_denies_and_an_observer_that_fails_is_reported():
    told, ran = [], []

    class Guard:
        @hookimpl
        def before_tool(self):
            raise RuntimeError("guard broke")

    class Observer:
        @hookimpl
        async def on_event(self):
            raise RuntimeError("observer broke")

        @hookimpl
        def on_hook_error(self, hook, plugin, error):
            told.append((hook, plugin, str(error)))

    model = ScriptModel([call("delete"), "ok"])
    tool = Tool(name="delete", call=lambda: ran.append(1))
    stack = Stack([Guard(), Observer()])
    result = await stack.run(Agent(model=model, tools=[tool]), "hi")
    assert (ran, results(result.messages)[0].status, result.reason) == ([], "denied", "completed")
    assert ("before_tool", "guard", "guard broke") in told
    assert ("on_event", "observer", "observer broke") in told and stack.host.faults == len(told)


async def test_every_guard_is_asked_and_deny_beats_answer_whatever_their_order():
    class Says:
        def __init__(self, name, verdict):
            self.name, self.verdict = name, verdict

        @hookimpl
        def before_tool(self):
            asked.append(self.name)
            return self.verdict

    asked = []
    model = ScriptModel([call("t"), "ok"])
    plugins = [Says("a", Answer("by hand")), Says("b", None), Says("c", Deny("no"))]
    result = await Stack(plugins).run(Agent(model=model, tools=[T]), "hi")
    assert (asked, results(result.messages)[0].parts) == (["a", "b", "c"], (Text("The call was denied: no"),))


async def test_a_failing_plugins_notes_stay():
    class Notes:
        @hookimpl
        def before_tool(self, context):
            context.note("saw", {"x": 1})
            raise RuntimeError("after the note")

    model = ScriptModel([call("t"), "ok"])
    async with Stack([Notes()]).open(Agent(model=model, tools=[T])) as driver:
        await driver.prompt("hi")
        assert "notes/saw" in [e.type for e in await driver.read()]


async def test_a_note_stands_before_the_loops_next_append_in_the_same_batch():
    class Notes:
        @hookimpl
        def transform_context(self, context):
            context.note("recalled", ["a"])

    async with Stack([Notes()]).open(Agent(model=ScriptModel(["ok"]))) as driver:
        await driver.prompt("hi")
        types = [e.type for e in await driver.read()]
        event = next(e for e in await driver.read() if e.type == "notes/recalled")
    assert types[types.index("notes/recalled") + 1] == "model/request"
    assert (event.owner, event.required, event.turn, event.step) == ("notes", False, 1, 1)


@pytest.mark.parametrize("bad", [object(), float("nan"), {1: {2}}])
async def test_a_note_that_json_does_not_keep_is_refused(bad):
    class Notes:
        @hookimpl
        def transform_context(self, context):
            context.note("x", bad)

    result = await Stack([Notes()]).run(Agent(model=ScriptModel(["ok"])), "hi")
    assert (result.reason, "plain data" in result.detail) == ("failed", True)


async def test_notify_hooks_have_no_note():
    told = []

    class Notes:
        @hookimpl
        def on_event(self, event, context):
            if context is not None:
                context.note("x")

        @hookimpl
        def on_hook_error(self, error):
            told.append(str(error))

    async with Stack([Notes()]).open(Agent(model=ScriptModel(["ok"]))) as driver:
        await driver.prompt("hi")
        assert all("/" in e.type and not e.type.startswith("notes/") for e in await driver.read())
    assert told and "from within a plugin's hook" in told[0]


async def test_an_edit_from_on_model_error_counts_in_the_retry():
    from treadle import Retry
    from treadle.errors import ProviderError

    class Compacts:
        @hookimpl
        async def on_model_error(self, error, context):
            items = driver.view.items
            context.edit(items[0].seq, items[1].seq, "in short")
            return Retry()

    model = ScriptModel(["a", ProviderError("context_overflow", "too long"), "b"])
    async with Stack([Compacts()]).open(Agent(model=model)) as driver:
        await driver.prompt("one")
        assert (await driver.prompt("two")).text == "b"
        types = [e.type for e in await driver.read()]
    assert [m.text for m in model.requests[2]] == ["in short", "two"]
    at = types.index("context/edit")
    assert types[at - 1 : at + 2] == ["model/failed", "context/edit", "model/request"]


async def test_around_model_may_wrap_but_not_change_the_request_and_holds_deltas():
    class Guards:
        @hookimpl
        async def around_model(self, call_next, request, context):
            context.hold_deltas()
            reply = await call_next(request)
            return attrs.evolve(reply, parts=(Text("[checked]"),))

    async with Stack([Guards()]).stream(Agent(model=ScriptModel(["raw words"])), "hi") as stream:
        assert [text async for text in stream.text()] == ["[checked]"]
        assert (await stream.result()).text == "[checked]"

    class Changes:
        @hookimpl
        async def around_model(self, call_next, request):
            return await call_next(attrs.evolve(request, params={"x": 1}))

    result = await Stack([Changes()]).run(Agent(model=ScriptModel(["ok"])), "hi")
    assert (result.reason, "shape_request" in result.detail) == ("failed", True)


async def test_a_duplicate_tool_name_names_both_owners():
    class Provides:
        @hookimpl
        def provide_tools(self):
            return [T]

    with pytest.raises(Parked) as caught:  # the turn failed before the message entered it
        await Stack([Provides()]).run(Agent(model=ScriptModel(["ok"]), tools=[T], name="mine"), "hi")
    assert 'Plugin "provides"' in str(caught.value) and 'tool "t" is provided by agent mine too' in str(caught.value)


async def test_halt_stops_the_waterfall():
    seen = []

    class Stops:
        name = "stops"

        @hookimpl
        def before_step(self):
            return Halt("enough")

    class Later:
        @hookimpl
        def before_step(self):
            seen.append("later")

    async with Stack([Stops(), Later()]).open(Agent(model=ScriptModel())) as driver:
        await (await driver.follow_up("x")).fate()
    assert seen == []


async def test_tc_099_every_begin_has_its_end_on_every_exit():
    """step/start and step/end, turn/start and turn/end, request and its closing stand in pairs in the log."""
    from treadle.errors import ProviderError

    async def hang():
        reached.set()
        await anyio.sleep_forever()

    def broken():
        raise ValueError

    scripts = {
        "tool raises": ([call("broken"), "ok"], None),
        "model raises": ([ProviderError("server", "x")], None),
        "cancel in a tool": ([call("hang")], "cancel"),
    }
    tools = [Tool(name="hang", call=hang), Tool(name="broken", call=broken)]
    for lines, act in scripts.values():
        reached = anyio.Event()
        store = MemoryStore()
        async with Stack(store=store).open(Agent(model=ScriptModel(lines), tools=tools), "s") as driver:
            receipt = await driver.follow_up("hi")
            if act:
                await reached.wait()
                driver.cancel()
            await receipt.fate()
            types = [e.type for e in await driver.read()]
        for begin, ends in {
            "turn/start": ["turn/end"],
            "step/start": ["step/end"],
            "model/request": ["model/failed", "assistant/message"],
            "tool/call": ["tool/result"],
        }.items():
            assert types.count(begin) == sum(types.count(end) for end in ends)


async def test_every_spec_is_fired_by_one_set_of_turns():
    """A hook that is declared and never called would be a lie."""
    from contextlib import asynccontextmanager

    from treadle import Retry
    from treadle.errors import ProviderError

    fired = set()

    class All:
        name = "all"

    def spec(hook):
        def sync(self, *args):
            fired.add(hook)
            if hook == "on_model_error":
                return Retry()
            if hook == "open_model":
                return ScriptModel([ProviderError("server", "x"), call("t"), "end"], ref="all:model")
            if hook == "open_store":
                return MemoryStore("all:store")
            if hook == "on_event":
                raise ValueError("so that on_hook_error fires")
            return None

        if hook == "lifespan":

            @asynccontextmanager
            async def life(self, stack):
                fired.add(hook)
                yield

            return life
        if hook.startswith("around_"):

            async def around(self, call_next, value, context):
                fired.add(hook)
                return await call_next(value)

            names = list(__import__("inspect").signature(getattr(Specs, hook)).parameters)[1:]
            return eval(f"lambda self, {', '.join(names)}: f(self, {', '.join(names)})", {"f": around})
        names = list(__import__("inspect").signature(getattr(Specs, hook)).parameters)[1:]
        return eval(f"lambda self, {', '.join(names)}: f(self, {', '.join(names)})", {"f": sync})

    for hook in JOINS:
        made = spec(hook)
        made.__name__ = hook
        setattr(All, hook, hookimpl(made))
    agent = Agent(model="all:model", tools=[T], limits=Limits())
    result = await Stack([All()]).run(agent, "hi", session="all:store#s")
    assert result.text == "end"
    assert fired == set(JOINS) == {name for name in vars(Specs) if not name.startswith("_")}


async def test_a_plugin_may_publish_hooks_that_others_implement():
    from treadle.hooks import hookspec

    class Published:
        @hookspec
        def before_compact(self, items):
            """Called before a compaction."""

    class Owner:
        hookspecs = Published

    class Other:
        def __init__(self, answer):
            self.name, self.answer = f"other{answer}", answer

        @hookimpl(optionalhook=True)
        async def before_compact(self, items):
            if self.answer == 0:
                raise ValueError("broken")
            return (self.answer, items)

    stack = Stack([Owner(), Other(0), Other(1), Other(2)])
    assert await stack.fire("before_compact", items=3) == [(1, 3), (2, 3)] and stack.host.faults == 1
    with pytest.raises(UsageError, match="takes items"):
        await stack.fire("before_compact", item=3)
    without = Stack([Other(1)])  # without its owner an optional hook is simply not called
    with pytest.raises(UsageError, match="publishes a hook"):
        await without.fire("before_compact", items=3)


async def test_a_session_with_required_events_is_read_only_with_their_plugin():
    class Ledger:
        required_events = ("spent",)

        @hookimpl
        def transform_context(self, context):
            context.note("spent", 1)
            context.note("seen", 1)

    store = MemoryStore()
    await Stack([Ledger()], store=store).run(Agent(model=ScriptModel(["ok"])), "hi", session="s")
    events = await (await store.open("s", write=False)).read()
    assert {e.type: e.required for e in events if e.owner == "ledger"} == {"ledger/spent": True, "ledger/seen": False}
    with pytest.raises(UnreadableLog, match='Add the plugin "ledger"'):
        await Stack(store=store).run(Agent(model=ScriptModel(["ok"])), "hi", session="s")
    assert (await Stack([Ledger()], store=store).run(Agent(model=ScriptModel(["ok"])), "hi", session="s")).turn == 2


async def test_observers_get_the_turns_context_also_with_its_end_and_none_outside_a_turn():
    seen = []

    class Observer:
        @hookimpl
        def on_event(self, event, context):
            seen.append((event.type, context.user if context else None, context.turn if context else None))

    async with Stack([Observer()]).open(Agent(model=ScriptModel(["a", "b"])), user="ada") as driver:
        await driver.prompt("one")
        await driver.prompt("two")
    ends = [each for each in seen if each[0] == "turn/end"]
    assert ends == [("turn/end", "ada", 1), ("turn/end", "ada", 2)]
    assert [each for each in seen if each[0] == "inbox/put"] == [("inbox/put", None, None)] * 2


async def test_wrappers_may_note_and_each_note_is_its_own_plugins():
    class Wraps:
        def __init__(self, name):
            self.name = name

        @hookimpl
        async def around_model(self, call_next, request, context):
            context.note("before")
            reply = await call_next(request)
            context.note("after")
            return reply

        @hookimpl
        async def around_tool(self, call_next, call, context):
            context.note("tool")
            answer = await call_next(call)
            context.note("tool-after")
            return answer

    def body(context: CallContext):
        context.note("body")
        return "ok"

    agent = Agent(model=ScriptModel([call("t"), "ok"]), tools=[Tool(name="t", call=body)])
    async with Stack([Wraps("a"), Wraps("b")]).open(agent) as driver:
        await driver.prompt("hi")
        notes = [e.type for e in await driver.read() if e.owner != "treadle"]
    assert notes == [
        "a/before", "b/before", "b/after", "a/after", "a/tool", "b/tool", "app/body", "b/tool-after", "a/tool-after",
        "a/before", "b/before", "b/after", "a/after",
    ]  # fmt: skip


async def test_tc_105_an_outer_wrapper_is_torn_down_before_the_call_returns_and_sees_what_the_inner_raised():
    seen = []

    class Outer:
        @hookimpl
        async def around_tool(self, call_next, call):
            try:
                return await call_next(call)
            except PluginError as error:
                seen.append(("outer saw", error.plugin, str(error.cause)))
                raise
            finally:
                await anyio.lowlevel.checkpoint()
                seen.append("outer is down")

    class Inner:
        @hookimpl
        async def around_tool(self, call_next, call):
            answer = await call_next(call)
            raise ValueError(f"after {answer.parts[0].text}")

    class Hears:
        @hookimpl
        def on_event(self, event):
            if event.type == "tool/result":
                seen.append(event.data.status)

    agent = Agent(model=ScriptModel([call("t"), "ok"]), tools=[T])
    await Stack([Outer(), Inner(), Hears()]).run(agent, "hi")
    assert seen == [("outer saw", "inner", "after raw"), "outer is down", "error"]


def test_tc_105_a_generator_wrapper_is_refused():
    class Old:
        @hookimpl(wrapper=True)
        def around_tool(self):
            yield

    with pytest.raises(CompositionError, match="generator wrappers are not awaited"):
        Stack([Old()])


class Guard:
    def __init__(self, name, seconds):
        self.name, self.seconds = name, seconds

    @hookimpl
    async def before_tool(self):
        await anyio.sleep(self.seconds)


class Faults:
    def __init__(self):
        self.seen = []

    @hookimpl
    def on_hook_error(self, hook, plugin, error):
        self.seen.append((hook, plugin, type(error)))


async def test_each_guard_has_hook_seconds_of_its_own():
    faults = Faults()
    slow = [Guard(name, 0.3) for name in ("a", "b", "c")]  # together more than one may take
    agent = Agent(model=ScriptModel([call("t"), "ok"]), tools=[T], limits=Limits(hook_seconds=0.8))
    result = await Stack([*slow, faults]).run(agent, "hi")
    assert (results(result.messages)[0].status, faults.seen) == ("ok", [])


async def test_a_guard_that_times_out_is_named_and_those_behind_it_are_asked():
    faults = Faults()
    guards = [Guard("quick", 0), Guard("hangs", 3600), Guard("behind", 0), Guard("hangs-too", 3600)]
    agent = Agent(model=ScriptModel([call("t"), "ok"]), tools=[T], limits=Limits(hook_seconds=0.05))
    result = await Stack([*guards, faults]).run(agent, "hi")
    assert results(result.messages)[0].status == "denied"
    assert faults.seen == [("before_tool", "hangs", TimeoutError), ("before_tool", "hangs-too", TimeoutError)]
