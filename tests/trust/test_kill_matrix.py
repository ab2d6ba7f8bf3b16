"""A session killed with SIGKILL at every append, barrier and tool boundary in turn, then opened again."""

import os
import signal
import subprocess
import sys
from collections import Counter

import anyio
import pytest
from trust import scripted

from treadle import Agent, Allow, Stack
from treadle.errors import UsageError
from treadle.events import InboxDrop, InboxPut, StepStart, ToolCall, ToolResult, UserMessage
from treadle.testing import faults_of
from treadle_script import ScriptModel
from treadle_sqlite import Sqlite

pytestmark = pytest.mark.slow


class Process:
    """The process that forks the sessions, and what its forks say."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", scripted.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self.heard() == ["ready"]

    def heard(self):
        line = self.process.stdout.readline()
        assert line, "the process ended"
        return line.decode().split()

    def tell(self, text=""):
        self.process.stdin.write(f"{text}\n".encode())

    def played(self, kill_at, *given):
        """Play a session, and kill it at a point; 0 lets it run. Returns what it had said by then."""
        self.tell(" ".join(map(str, given)))
        said = Said(int(self.heard()[1]))
        while True:
            kind, *words = self.heard()
            if kind == "at":
                said.points += 1
                said.appended, said.synced = int(words[0]), int(words[1])
                if said.points == kill_at:
                    os.kill(said.pid, signal.SIGKILL)
                    assert self.heard() == ["gone", str(int(signal.SIGKILL))]
                    return said
                if words[2] == "append":
                    said.types += [word.removesuffix(",") for word in words[3:]]
                self.tell()
            elif kind == "accepted":
                said.accepted.append(words[0])
            elif kind == "over":
                said.over = True
            else:
                assert [kind, *words] == ["gone", "0"] and said.over
                return said


class Said:
    """What a session said: its points, how far its log was, and which messages it had accepted."""

    def __init__(self, pid):
        self.pid, self.points, self.appended, self.synced, self.over = pid, 0, 0, 0, False
        self.types, self.accepted = [], []


@pytest.fixture(scope="module")
def process():
    started = Process()
    yield started
    started.process.kill()
    started.process.communicate()


async def read(database):
    """The log as it lies there, unrepaired; nothing if the process died before its first append."""
    store = Sqlite().open_store(f"sqlite:///{database}")
    try:
        return list(await (await store.open("s", write=False)).read())
    except Exception as error:
        assert type(error).__name__ == "NoSuchSession"
        return []
    finally:
        await store.close()


def opened(database, witness, model):
    stack = Stack([Sqlite()], store=f"sqlite:///{database}")
    return stack.open(Agent(model=model, tools=scripted.tools(witness)), "s")


async def gone_on(database, witness):
    """Open again, twice; let the session go on; return the log, and the last request's messages."""
    model = ScriptModel(["went on"], last=True)
    async with opened(database, witness, model) as driver:
        repaired = list(await driver.read())
    async with opened(database, witness, model) as driver:
        assert list(await driver.read()) == repaired
        try:
            await driver.nudge()
        except UsageError:
            pass  # it owes nothing and nothing pends
        if driver.waiting:
            await (await driver.decide({each.id: Allow() for each in driver.waiting})).result()
        await driver.until_idle()
        assert (await driver.prompt("next")).check().text == "went on"
        assert not driver.pending and not driver.waiting
        return list(await driver.read()), [message.text for message in model.requests[-1]]


def check_prefix(said, found):
    """What was synced is there; what is there is what was appended, in order."""
    assert said.synced <= said.appended <= len(found)
    assert [event.type for event in found] == said.types[: len(found)]
    put = {event.data.message.id for event in found if isinstance(event.data, InboxPut)}
    assert set(said.accepted) <= put


def check_messages(events):
    """Each message that was put was taken or dropped once, and entered the conversation at most once."""
    fates, entered = Counter(), Counter()
    for event in events:
        if isinstance(event.data, StepStart):
            fates.update(event.data.claims)
        elif isinstance(event.data, InboxDrop):
            fates.update(event.data.ids)
        elif isinstance(event.data, UserMessage):
            entered[event.data.message.id] += 1
    put = [event.data.message.id for event in events if isinstance(event.data, InboxPut)]
    assert sorted(fates.elements()) == sorted(put) and max(entered.values()) == 1


def check_bodies(events, witness):
    """A tool that may run once ran once at most; every body that began is done in the log, or said to be unknown."""
    lines = witness.read_text("utf-8").splitlines() if witness.exists() else []
    begun = Counter(line.split()[2] for line in lines if line.startswith("begun"))
    calls = {f"s:{event.data.call_id}": event.data for event in events if isinstance(event.data, ToolCall)}
    last = {f"s:{event.data.call_id}": event.data.status for event in events if isinstance(event.data, ToolResult)}
    safe = {line.split()[2] for line in lines if " safe " in line}
    assert all(count == 1 or key in safe for key, count in begun.items())
    assert set(begun) <= set(calls)
    assert {last[key] for key in begun} <= {"ok", "outcome_unknown"}
    done = {line.split()[2] for line in lines if line.startswith("done")}
    assert {key for key, status in last.items() if status == "ok"} <= done


DURABILITY = {"asyncio": "full", "trio": "normal"}
"""A store whose appends wait on a thread, and one whose appends never wait."""


def test_whatever_point_a_process_is_killed_at_the_session_goes_on(process, anyio_backend, tmp_path, capsys):
    given = (anyio_backend, DURABILITY[anyio_backend])
    free = process.played(0, *given, tmp_path / "free.db", tmp_path / "free.txt")
    visited = 0
    for point in range(1, free.points + 1):
        database, witness = tmp_path / f"{point}.db", tmp_path / f"{point}.txt"
        said = process.played(point, *given, database, witness)
        visited += not said.over

        async def look(said=said, database=database, witness=witness):
            check_prefix(said, await read(database))
            events, asked = await gone_on(database, witness)
            assert faults_of(events) == [] and asked[-1] == "next"
            check_messages(events)
            check_bodies(events, witness)

        anyio.run(look, backend=anyio_backend)
    with capsys.disabled():
        print(f"\n{visited} of {free.points} points killed at ({', '.join(given)})", end=" ")
    assert visited == free.points > 60
