"""What must not be kept alive when a run is over."""

import contextvars
import gc
import weakref

import anyio
import pytest

from treadle import Agent, Stack, Tool
from treadle_script import ScriptModel, call


@pytest.fixture
def checked_logs():
    """The usual check keeps sessions alive, which is what is asked here."""


async def test_tc_077_nothing_of_a_run_is_kept_alive_by_a_copy_of_its_context_variables():
    kept = []

    def body():
        kept.append(contextvars.copy_context())
        return "ok"

    class Deps:
        pass

    deps = Deps()
    agent = Agent(model=ScriptModel([call("t"), "ok"]), tools=[Tool(name="t", call=body)])
    async with Stack().open(agent, deps=deps) as driver:
        await driver.prompt("hi")
        reference = weakref.ref(driver)
    gone = weakref.ref(deps)
    del driver, deps, agent
    for _ in range(3):
        gc.collect()
        await anyio.lowlevel.checkpoint()
    assert kept and gone() is None and reference() is None
