"""Composition and the front door: what stacks refuse, how references are found, running from sync code."""

import anyio
import attrs
import pytest

from treadle import Agent, Limits, Stack, Tool, hookimpl
from treadle.discovery import Found, StackSpec, installed, read_config, resolve
from treadle.errors import (
    CompositionError,
    PluginError,
    SessionBusy,
    SettingsError,
    UnknownReference,
    UsageError,
)
from treadle.settings import Source, build_settings
from treadle.store import MemoryStore
from treadle_script import ScriptModel, call


class Opens:
    """A plugin that claims every model of a scheme."""

    def __init__(self, scheme="x", name="opens"):
        self.scheme, self.name = scheme, name

    @hookimpl
    def open_model(self, ref):
        return ScriptModel(["from " + self.name], ref=ref) if ref.startswith(self.scheme) else None


async def test_an_unknown_model_names_the_plugins_and_what_to_install():
    with pytest.raises(UnknownReference) as caught:
        await Stack([Opens()]).run(Agent(model="openai:gpt-5"), "hi")
    assert str(caught.value) == (
        'No plugin opens the model "openai:gpt-5". In this stack: opens. '
        "Install one that does, for example: pip install treadle-http"
    )


async def test_two_claimants_of_one_reference_are_an_error_unless_one_is_ordered_first():
    class First(Opens):
        @hookimpl(tryfirst=True)
        def open_model(self, ref):
            return super().open_model(ref)

    with pytest.raises(UnknownReference, match=r"Several plugins open the model .*: a, b"):
        await Stack([Opens(name="a"), Opens(name="b")]).run(Agent(model="x:y"), "hi")
    result = await Stack([Opens(name="a"), First(name="b")]).run(Agent(model="x:y"), "hi")
    assert result.text == "from b"


async def test_an_unknown_store_is_named():
    with pytest.raises(UnknownReference, match='No plugin opens the store "nowhere:x"'):
        await Stack().run(Agent(model=ScriptModel()), "hi", session="nowhere:x#s")


async def test_a_reference_without_a_session_says_how_to_write_one():
    with pytest.raises(UsageError, match='Write "memory:#NAME"'):
        await Stack().run(Agent(model=ScriptModel()), "hi", session="memory:")


async def test_session_names_are_percent_decoded_behind_the_hash():
    stack = Stack(store=MemoryStore())
    async with stack, stack.open(Agent(model=ScriptModel(["ok"])), "memory:a#user%2042%23") as driver:
        assert driver.session_id == "user 42#"


async def test_a_second_writer_is_refused_and_told_who_holds_the_session():
    stack = Stack(store=MemoryStore())
    async with stack.open(Agent(model=ScriptModel(["ok"])), "s") as driver:
        await driver.prompt("hi")
        with pytest.raises(SessionBusy, match='Session "s" is open for writing in this process'):
            async with stack.open(Agent(model=ScriptModel()), "s"):
                pass


def test_every_fault_of_a_composition_is_reported_at_once():
    class Typo:
        @hookimpl
        def before_stepp(self, batch):
            return None

    class Keyword:
        @hookimpl
        def after_tool(self, *, result):
            return None

    class Generator:
        @hookimpl(wrapper=True)
        def around_model(self, request):
            yield

    class AsyncOnSync:
        @hookimpl
        async def on_delta(self, delta):
            return None

    class Unknown:
        @hookimpl
        def after_tool(self, result, nonsense):
            return None

    class Tool:
        pass

    with pytest.raises(CompositionError) as caught:
        Stack([Typo(), Keyword(), Generator(), AsyncOnSync(), Unknown(), Tool()])
    text = str(caught.value)
    for part in (
        "did you mean before_step?",
        "keyword-only",
        "use around_model or around_tool",
        "this hook is sync",
        "nonsense",
        'plugin "tool" is named like a core event type',
    ):
        assert part in text


def test_two_plugins_of_one_name_are_refused():
    with pytest.raises(CompositionError, match='two plugins are named "opens"'):
        Stack([Opens(), Opens()])


def test_a_class_instead_of_an_instance_is_refused():
    with pytest.raises(CompositionError, match="pass an instance: Opens"):
        Stack([Opens])


def test_a_plugin_that_needs_another_says_so():
    class Needs:
        requires = ("runs",)

    with pytest.raises(CompositionError, match='"needs" needs the plugin "runs"'):
        Stack([Needs()])


def test_tc_101_a_plugin_that_fails_half_way_leaves_nothing():
    class Half:
        @hookimpl
        def open_model(self, ref):
            return None

        @hookimpl
        def after_tool(self, wrong):
            return None

    with pytest.raises(CompositionError):
        Stack([Half(), Opens()])
    assert Stack([Opens()]).plugins == ("opens",)  # nothing of it survives in another stack


def test_an_unknown_plugin_name_lists_what_is_installed():
    with pytest.raises(CompositionError, match='there is no plugin "nonsense"'):
        Stack(["nonsense"])


# --- discovery, against declared metadata ------------------------------------------------------------------------


class Declared:
    """A distribution as importlib.metadata shows it."""

    def __init__(self, name, version, **points):
        from importlib.metadata import EntryPoint

        self.metadata = {"Name": name}
        self.version = version
        self.entry_points = [EntryPoint(key, value, "treadle") for key, value in points.items()]


@pytest.mark.parametrize("swap", [False, True])
def test_tc_103_one_plugin_name_in_two_distributions_is_an_error_in_any_order(swap):
    both = [Declared("dist-a", "1.0", openai="a:A"), Declared("dist-b", "2.0", openai="b:B")]
    with pytest.raises(CompositionError, match=r'"openai": dist-a 1.0 and dist-b 2.0'):
        installed(found=both[::-1] if swap else both)


def test_the_same_distribution_twice_on_the_path_counts_once():
    twice = [Declared("dist-a", "2.0", x="a:A"), Declared("Dist-A", "1.0", x="a:A")]
    assert [(f.name, f.origin) for f in installed(found=twice)] == [("x", "dist-a 2.0")]


def test_a_broken_plugin_disables_itself_alone_unless_it_was_named():
    known = [
        Found(name="broken", value="no_such_module_here:X", distribution="dist-x", version="3.1"),
        Found(name="script", value="treadle_script:Script", distribution="treadle-script", version="0.1.0"),
    ]
    loaded, broken = resolve(["broken", "script"], environ={}, required=False, known=known)
    assert [each.name for each in loaded] == ["script"]
    assert str(broken[0]).startswith('plugin "broken" (dist-x 3.1): ModuleNotFoundError')
    with pytest.raises(CompositionError, match=r'"broken" \(dist-x 3.1\): ModuleNotFoundError: .*no_such_module_here'):
        resolve(["broken"], environ={}, known=known)


def test_settings_come_from_code_then_environment_then_file_then_the_stacks_default():
    known = [Found(name="script", value="treadle_script:Script", distribution="treadle-script", version="0.1.0")]
    files, defaults = {"script": {"folder": "file"}}, {"script": {"folder": "default"}}

    def folder(environ, config):
        loaded, _ = resolve(["script"], environ=environ, config=config, defaults=defaults, known=known)
        return loaded[0].plugin.settings.folder

    assert folder({"TREADLE_SCRIPT_FOLDER": "env"}, files) == "env"
    assert folder({}, files) == "file"
    assert folder({}, {}) == "default"


@attrs.frozen(kw_only=True)
class Sample:
    url: str = ""
    port: int = 1
    share: float = 0.5
    on: bool = False
    names: tuple[str, ...] = ()
    key: str | None = None


def test_settings_are_read_as_their_fields_types():
    env = {"port": "8", "share": "0.25", "on": "yes", "names": "a, b", "key": "k"}
    made = build_settings("x", Sample, [Source("environment", env), Source("file", {"url": "u", "share": 1})])
    assert made == Sample(url="u", port=8, share=0.25, on=True, names=("a", "b"), key="k")


@pytest.mark.parametrize(
    ("values", "source", "words"),
    [
        ({"prot": 1}, "file", "there is no such setting. Known: key, names, on, port, share, url"),
        ({"port": "many"}, "environment", "must be int"),
        ({"port": True}, "file", "must be int, not bool"),
        ({"on": "maybe"}, "environment", "must be bool"),
    ],
)
def test_wrong_settings_name_plugin_field_source_and_reason(values, source, words):
    with pytest.raises(SettingsError) as caught:
        build_settings("x", Sample, [Source(source, values)])
    assert words in str(caught.value) and f'of plugin "x" ({source})' in str(caught.value)


def test_a_config_file_with_an_unknown_key_is_refused(tmp_path):
    file = tmp_path / "treadle.toml"
    file.write_text("plugin = 1\n")
    with pytest.raises(UsageError, match="unknown key plugin"):
        read_config(file)
    file.write_text("= 1\n")
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(file)


def test_treadle_plugins_replaces_the_set_of_discover_and_never_a_stack_in_code():
    assert Stack.discover(environ={"TREADLE_PLUGINS": ""}).plugins == ()
    assert Stack([Opens()]).plugins == ("opens",)
    assert StackSpec(name="s", plugins=("a",)).store == "memory:"


# --- running --------------------------------------------------------------------------------------------------------


def test_run_sync_works_in_a_plain_script_more_than_once():
    stack = Stack(store=MemoryStore())
    agent = Agent(model=ScriptModel(["one", "two"]))
    assert [stack.run_sync(agent, "hi", session="s").text for _ in range(2)] == ["one", "two"]


async def test_tc_083_run_sync_works_inside_a_running_loop():
    assert Stack().run_sync(Agent(model=ScriptModel(["ok"])), "hi").text == "ok"


def test_a_stack_is_a_blocking_context_manager_too():
    opened = []

    class Opened:
        @hookimpl
        def lifespan(self):
            from contextlib import asynccontextmanager

            @asynccontextmanager
            async def life():
                opened.append("open")
                yield
                opened.append("closed")

            return life()

    with Stack([Opened()]) as stack:
        agent = Agent(model=ScriptModel(["a", "b"]))
        assert stack.run_sync(agent, "hi").text == "a"
        assert stack.run_sync(agent, "hi").text == "b"
        assert opened == ["open"]
    assert opened == ["open", "closed"]


async def test_run_sync_on_a_stack_that_is_open_in_a_loop_names_the_async_call():
    async with Stack() as stack:
        with pytest.raises(UsageError, match=r"await stack\.run"):
            stack.run_sync(Agent(model=ScriptModel()), "hi")


async def test_lifespans_are_entered_in_order_and_left_in_reverse_and_a_fault_names_the_plugin():
    from contextlib import asynccontextmanager

    seen = []

    class Lives:
        def __init__(self, name, fails=False):
            self.name, self.fails = name, fails

        @hookimpl
        @asynccontextmanager
        async def lifespan(self, stack):
            if self.fails:
                raise ValueError("no port")
            seen.append("+" + self.name)
            try:
                yield
            finally:
                seen.append("-" + self.name)

    async with Stack([Lives("a"), Lives("b")]):
        pass
    assert seen == ["+a", "+b", "-b", "-a"]
    seen.clear()
    with pytest.raises(PluginError, match='Plugin "c" failed in lifespan: ValueError: no port'):
        async with Stack([Lives("a"), Lives("c", fails=True)]):
            pass
    assert seen == ["+a", "-a"]


async def test_attach_shares_one_live_driver_and_closes_it_when_idle():
    model = ScriptModel(["a", "b"])
    agent = Agent(model=model)
    async with Stack(store=MemoryStore()) as stack:
        one, two = await stack.attach(agent, "s"), await stack.attach(agent, "s")
        assert one is two
        assert (await one.prompt("hi")).text == "a"
        while one.status != "closed":
            await anyio.lowlevel.checkpoint()
        three = await stack.attach(agent, "s")
        assert three is not one and (await three.prompt("hi")).turn == 2


async def test_a_failed_body_of_open_comes_out_as_it_is():
    with pytest.raises(ZeroDivisionError):
        async with Stack().open(Agent(model=ScriptModel())) as driver:
            await driver.inject("x")
            raise ZeroDivisionError


async def test_structured_output_is_decoded_and_concludes_the_turn():
    @attrs.frozen
    class Answer:
        total: int
        note: str = ""

    model = ScriptModel([call("final_answer", total="many"), call("final_answer", total=42)])
    result = await Stack().run(Agent(model=model), "17 + 25?", output=Answer)
    assert result.output == Answer(total=42)
    assert result.messages[2].parts[0].status == "invalid_arguments"  # the model was told, and repaired it


async def test_limits_may_be_given_per_run():
    model = ScriptModel([call("t")], last=True)
    agent = Agent(model=model, tools=[Tool(name="t", call=lambda: "x")])
    assert (await Stack().run(agent, "hi", limits=Limits(max_steps=2))).steps == 2


@pytest.mark.parametrize("bad", [{"max_steps": 0}, {"tokens": -1}, {"tool_seconds": -0.1}])
def test_limits_refuse_what_makes_no_sense(bad):
    with pytest.raises(UsageError, match=next(iter(bad))):
        Limits(**bad)


async def test_sessions_are_listed_read_and_forked_without_a_lease():
    store = MemoryStore()
    stack = Stack(store=store)
    await stack.run(Agent(model=ScriptModel(["a"])), "one", session="s")
    assert [info.id for info in await stack.sessions().list()] == ["s"]
    events = await stack.sessions().read("s")
    fork = await stack.sessions().fork("s", name="child")
    result = await stack.run(Agent(model=(model := ScriptModel(["b"]))), "two", session=fork)
    assert (result.turn, [m.text for m in model.requests[0]]) == (2, ["one", "a", "two"])
    assert (await stack.sessions().read("s")) == events
    inside = next(e.seq for e in events if e.type == "model/request")
    with pytest.raises(UsageError, match="inside a step"):
        await stack.sessions().fork("s", inside)


def test_a_bad_setting_of_a_plugin_nobody_named_is_reported_and_one_of_a_named_plugin_raises():
    known = [Found(name="script", value="treadle_script:Script", distribution="treadle-script", version="0.1.0")]
    environ = {"TREADLE_SCRIPT_FOLDERS": "x"}
    loaded, broken = resolve(["script"], environ=environ, required=False, known=known)
    assert loaded == [] and "there is no such setting" in str(broken[0])
    with pytest.raises(SettingsError, match="folders"):
        resolve(["script"], environ=environ, known=known)


def test_a_variable_belongs_to_the_longest_plugin_name_that_fits():
    from treadle.settings import environment_source

    environ = {"TREADLE_RUNS_DBOS_URL": "a", "TREADLE_RUNS_QUEUE": "b"}
    assert environment_source("runs", environ, ["runs", "runs-dbos"]).values == {"queue": "b"}
    assert environment_source("runs-dbos", environ, ["runs", "runs-dbos"]).values == {"url": "a"}


async def test_a_stacks_clock_stamps_every_event_also_those_of_a_fork():
    store = MemoryStore()
    stack = Stack(store=store, clock=lambda: 12.5)
    await stack.run(Agent(model=ScriptModel(["ok"])), "hi", session="s")
    child = await stack.sessions().fork("s")
    assert {event.time for event in await stack.sessions().read(child)} == {12.5}


async def test_runs_at_once_on_a_stack_that_nobody_opened_share_one_opening():
    from contextlib import asynccontextmanager

    seen = []

    class Slow:
        @hookimpl
        @asynccontextmanager
        async def lifespan(self):
            await anyio.lowlevel.checkpoint()
            seen.append("open")
            try:
                yield
            finally:
                seen.append("closed")

    stack = Stack([Slow()])
    texts = []

    async def one(n):
        texts.append((await stack.run(Agent(model=ScriptModel([f"answer {n}"])), "hi")).text)

    async with anyio.create_task_group() as group:
        for n in range(5):
            group.start_soon(one, n)
    assert sorted(texts) == [f"answer {n}" for n in range(5)]
    assert seen == ["open", "closed"] and not stack.is_open


async def test_two_who_attach_at_once_get_the_same_driver():
    class Late(MemoryStore):
        async def open(self, session_id, write):
            await anyio.lowlevel.checkpoint()
            return await super().open(session_id, write)

    got = []
    agent = Agent(model=ScriptModel(["ok"]))
    async with Stack(store=Late()) as stack, anyio.create_task_group() as group:

        async def one():
            got.append(await stack.attach(agent, "s"))

        group.start_soon(one)
        group.start_soon(one)
    assert len(got) == 2 and got[0] is got[1]
