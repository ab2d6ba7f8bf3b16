"""Tool sets: modules, objects and classes as bundles; their lives, their state, their names."""

from contextlib import asynccontextmanager
from types import ModuleType

import anyio
import pytest

from treadle import Agent, Stack, Tool, TurnContext, tool
from treadle.errors import Parked, UsageError
from treadle.functions import ToolSet, tools_of
from treadle_script import ScriptModel, call


class Basket:
    """What a session wants to buy."""

    shop = "corner"

    def __init__(self):
        self.things = []

    def add(self, thing: str) -> int:
        """Put a thing in."""
        self.things.append(thing)
        return len(self.things)

    async def show(self) -> list[str]:
        """What is in it."""
        return self.things

    @staticmethod
    def price(thing: str) -> int:
        """What it costs."""
        return len(thing)

    @property
    def heavy(self) -> bool:
        raise AssertionError("no property is read")

    def _hidden(self): ...


def module(**names):
    made = ModuleType("weather_tools")
    for name, value in names.items():
        if hasattr(value, "__module__") and not isinstance(value, Tool):
            value.__module__ = "weather_tools"
        setattr(made, name, value)
    return made


def names(tools):
    return [each.name for each in tools]


async def run(stack, *lines, session=None, agent=None):
    agent = agent or Agent(model=ScriptModel(lines))
    result = await stack.run(agent, "go", session=session)
    return [part.parts[0].text for m in result.messages if m.role == "tool" for part in m.parts]


# --- which tools -----------------------------------------------------------------------------------------------------


def test_an_objects_public_methods_are_tools_in_the_order_they_were_written():
    made = tools_of(Basket())
    assert names(made) == ["add", "show", "price"]
    assert made[0].description == "Put a thing in."
    assert made[0].parameters["required"] == ["thing"]


def test_an_inherited_method_stands_where_it_was_first_written():
    class Big(Basket):
        def empty(self):
            """Take all out."""

        def add(self, thing: str) -> int:
            """Put a big thing in."""
            return 0

    made = tools_of(Big())
    assert names(made) == ["add", "show", "price", "empty"]
    assert made[0].description == "Put a big thing in."


def test_a_modules_own_public_functions_and_its_tools_are_tools():
    def rain(city: str): ...
    def _hidden(): ...
    def lifespan(): ...

    made = tools_of(module(rain=rain, _hidden=_hidden, lifespan=lifespan, wind=tool(print_wind), limit=3))
    assert names(made) == ["rain", "print_wind"]


def print_wind(city: str): ...


def test_what_a_module_only_imported_is_no_tool():
    made = ModuleType("m")
    made.print_wind = print_wind
    with pytest.raises(UsageError, match="no public function"):
        tools_of(made)


def test_a_modules_own_list_counts():
    made = ModuleType("m")
    made.print_wind, made.__all__ = print_wind, ["print_wind"]
    assert names(tools_of(made)) == ["print_wind"]


def test_a_prefix_stands_before_all_but_the_renamed_and_only_picks():
    made = tools_of(Basket(), prefix="shop", rename={"show": "basket"}, only=["add", "show"])
    assert names(made) == ["shop_add", "basket"]


def test_options_are_those_of_a_tool():
    (made,) = tools_of(Basket(), only=["add"], options={"add": {"needs_approval": True, "timeout_seconds": 2.0}})
    assert (made.needs_approval, made.timeout_seconds) == (True, 2.0)


def test_a_name_that_is_not_there_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r'Basket has no tool "ad"\. Did you mean add\?'):
        tools_of(Basket(), only=["ad"])


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(UsageError, match='two tools named "add"'):
        tools_of(Basket(), rename={"show": "add"})


def test_a_class_has_no_tools_yet():
    with pytest.raises(UsageError, match=r"ToolSet\(Basket\)"):
        tools_of(Basket)


# --- as plugins ------------------------------------------------------------------------------------------------------


async def test_a_class_keeps_its_state_per_session_and_over_turns():
    model = ScriptModel([call("add", thing="tea"), "1", call("add", thing="rice"), "2"])
    other = ScriptModel([call("show"), "ok"])
    async with Stack([ToolSet(Basket)]) as stack, stack.open(Agent(model=model), "a") as driver:
        await driver.prompt("one")
        assert await run(stack, agent=Agent(model=other), session="b") == ["[]"]
        result = await driver.prompt("two")
    assert [p.parts[0].text for m in result.messages if m.role == "tool" for p in m.parts] == ["2"]


async def test_the_state_goes_when_the_sessions_driver_closes():
    async with Stack([ToolSet(Basket)]) as stack:
        assert await run(stack, call("add", thing="tea"), "ok", session="a") == ["1"]
        assert await run(stack, call("show"), "ok", session="a") == ["[]"]


async def test_an_object_is_shared_by_all_sessions():
    async with Stack([ToolSet(Basket())]) as stack:
        await run(stack, call("add", thing="tea"), "ok", session="a")
        assert await run(stack, call("show"), "ok", session="b") == ['["tea"]']


class Life:
    """Says when it is entered and left, and in which task."""

    said: list[str] = []

    def __init__(self, turn: TurnContext):
        self.session = turn.session

    async def __aenter__(self):
        self.scope = anyio.CancelScope()
        self.scope.__enter__()  # fails if it is left in another task
        self.said.append(f"enter {self.session}")

    async def __aexit__(self, *exc):
        self.scope.__exit__(*exc)
        self.said.append(f"leave {self.session}")

    def ping(self):
        """Answer."""
        return "pong"


async def test_a_sessions_bundle_lives_from_its_first_step_to_the_end_of_its_driver_in_one_task():
    Life.said.clear()
    agent = Agent(model=ScriptModel([call("ping"), "ok", "ok"]))
    async with Stack([ToolSet(Life)]) as stack, stack.open(agent, "a") as driver:
        assert Life.said == []
        await driver.prompt("one")
        await driver.prompt("two")
        assert Life.said == ["enter a"]
    assert Life.said == ["enter a", "leave a"]


async def test_a_shared_bundle_lives_as_long_as_the_stack():
    said = []

    @asynccontextmanager
    async def lifespan():
        said.append("enter")
        yield
        said.append("leave")

    def rain(city: str):
        said.append("rain")

    async with Stack([ToolSet(module(lifespan=lifespan, rain=rain))]) as stack:
        assert said == ["enter"]
        await run(stack, call("rain", city="Oslo"), "ok")
        await run(stack, "ok")
        assert said == ["enter", "rain"]
    assert said == ["enter", "rain", "leave"]


async def test_a_bundle_that_cannot_be_entered_fails_the_turn_and_is_tried_again_in_the_next():
    tries = []

    class Flaky:
        async def __aenter__(self):
            tries.append("try")
            if len(tries) == 1:
                raise OSError("no such host")

        async def __aexit__(self, *exc): ...

        def ping(self):
            return "pong"

    async with Stack([ToolSet(Flaky)]) as stack, stack.open(Agent(model=ScriptModel(["ok"])), "a") as driver:
        with pytest.raises(Parked, match=r'Plugin "flaky" failed in provide_tools: .*no such host'):
            await driver.prompt("go")
        assert (await driver.nudge()).reason == "completed"


async def test_a_fault_of_the_stacks_user_comes_out_as_it_is():
    with pytest.raises(ZeroDivisionError):
        async with Stack([ToolSet(Basket)]) as stack:
            await run(stack, call("show"), "ok")
            raise ZeroDivisionError


async def test_a_bundle_that_fails_at_its_end_harms_nobody(caplog):
    class Bad:
        async def __aenter__(self): ...

        async def __aexit__(self, *exc):
            raise OSError("broken pipe")

        def ping(self):
            return "pong"

    async with Stack([ToolSet(Bad)]) as stack:
        assert await run(stack, call("ping"), "ok") == ["pong"]
    assert "broken pipe" in caplog.text


async def test_tools_are_offered_where_the_context_says_so():
    model = ScriptModel(["a", "b"])
    async with Stack([ToolSet(Basket, when=lambda turn: turn.user == "ada")]) as stack:
        for user in ("ada", "eve"):
            await stack.run(Agent(model=model), "go", user=user)
    assert [[tool.name for tool in each.request.tools] for each in model.asked] == [["add", "show", "price"], []]


async def test_two_sets_with_one_name_of_a_tool_fail_naming_both_and_a_prefix_mends_it():
    class Shop:
        def add(self, number: int):
            return number

    clash = [ToolSet(Basket()), ToolSet(Shop())]
    with pytest.raises(Parked, match='"shop" failed in provide_tools: tool "add" is provided by plugin basket too'):
        await run(Stack(clash), "x")
    mended = Stack([ToolSet(Basket()), ToolSet(Shop(), prefix="shop")])
    assert await run(mended, call("shop_add", number=3), "ok") == ["3"]


def test_a_set_is_named_like_its_source_or_its_prefix():
    assert ToolSet(Basket).name == "basket"
    assert ToolSet(Basket, prefix="shop").name == "shop"
    assert ToolSet(module(rain=lambda: 1)).name == "weather-tools"
    assert ToolSet(Basket, name="cart", prefix="shop").name == "cart"


async def test_a_set_that_cannot_be_read_fails_at_composition_if_shared_and_in_the_turn_if_not():
    class Odd:
        def ping(self, *args): ...

    with pytest.raises(UsageError, match="ping"):
        ToolSet(Odd())
    with pytest.raises(Parked, match="ping"):
        await run(Stack([ToolSet(Odd)]), "x")
