"""Ctrl-C, as the terminal sends it, in the middle of a tool and of a stream: the log on disk is whole afterwards."""

import signal
import subprocess
import sys

import pytest
from trust import interrupted

from treadle import Agent, Stack
from treadle.testing import faults_of
from treadle_script import ScriptModel
from treadle_sqlite import Sqlite

SECONDS = 20


@pytest.fixture
def anyio_backend():
    """The process under test has its own event loop; the reader needs but one."""
    return "asyncio"


def interrupted_in(entrance, where, database):
    """Run the program, press Ctrl-C once it is there; returns how it ended and the last line it said."""
    command = [sys.executable, interrupted.__file__, entrance, where, str(database)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, told.splitlines()[-1]


@pytest.mark.parametrize("where", ["tool", "thread", "stream"])
@pytest.mark.parametrize("entrance", ["asyncio", "trio", "sync"])
async def test_an_interrupt_leaves_a_lawful_log_and_the_session_goes_on(entrance, where, tmp_path):
    database = tmp_path / "app.db"
    assert interrupted_in(entrance, where, database) == (-signal.SIGINT, "KeyboardInterrupt")
    stack, model = Stack([Sqlite()], store=f"sqlite:///{database}"), ScriptModel(["went on"])
    events = await stack.sessions().read("s")
    # On asyncio the interrupt cancels the program's task. Trio raises it in whatever runs, be it in the middle of a
    # write: then it is repair that closes the turn.
    whole = faults_of(events) == [] and events[-1].data.reason == "aborted"
    assert whole or entrance == "trio"
    async with stack.open(Agent(model=model), "s") as driver:
        repaired = await driver.read()
        assert faults_of(repaired) == [] and (list(repaired) == list(events)) == whole
        assert (await driver.prompt("next")).text == "went on"
    said = [message.text for message in model.requests[0]]
    assert (said[0], said[-1]) == ("hi", "next")
    assert not whole or ("Once upon" in said) == (where == "stream")
