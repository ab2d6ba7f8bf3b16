"""Sessions that released treadles wrote are read, in each form, and go on."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from treadle import Agent, Stack
from treadle.codec import event_from_plain, event_to_plain
from treadle.events import AssistantMessage, PluginData, ToolResult, TurnEnd, UserMessage
from treadle.grammar import fold
from treadle.plugin import export_sessions, import_sessions
from treadle.store import MemoryStore, SessionFilter
from treadle.testing import faults_of, prefix_faults
from treadle.testing.stores import stored
from treadle_jsonl import Jsonl
from treadle_script import ScriptModel
from treadle_sqlite import Sqlite

RELEASES = sorted(Path(__file__).with_name("golden").iterdir())
NAMES = {"sums", "failed", "waits", "again"}


@pytest.fixture(params=RELEASES, ids=lambda folder: folder.name)
def folder(request):
    return request.param


def exported(folder):
    return (folder / "export.jsonl").read_text().splitlines()


@pytest.fixture(params=["export", "jsonl", "sqlite"])
async def golden(request, folder, tmp_path):
    """A store with the sessions of a release, from each of its forms."""
    if request.param == "export":
        store = MemoryStore()
        await import_sessions(store, exported(folder))
    elif request.param == "jsonl":
        shutil.copytree(folder / "jsonl", tmp_path / "jsonl")
        store = Jsonl().open_store(f"jsonl:{tmp_path}/jsonl")
    else:
        connection = sqlite3.connect(tmp_path / "golden.db")
        connection.executescript((folder / "sqlite.sql").read_text())
        connection.close()
        store = Sqlite().open_store(f"sqlite:///{tmp_path}/golden.db")
    yield store
    await store.close()


async def test_every_form_holds_the_same_sessions(golden, folder):
    assert sorted([line async for line in export_sessions(golden)]) == sorted(exported(folder))


async def test_every_log_is_lawful_in_all_its_prefixes(golden):
    infos = [*await golden.list(), *await golden.list(SessionFilter(archived=True))]
    assert {info.id for info in infos} == NAMES
    for info in infos:
        events = await stored(golden, info.id)
        assert faults_of(events) == []
        assert prefix_faults(events) == []


async def test_what_was_said_and_done_is_what_the_release_was_told(golden):
    events = await stored(golden, "sums")
    said = [e.data.message.text for e in events if isinstance(e.data, UserMessage | AssistantMessage)]
    assert said == ["What is 17 plus 25?", "", "42.", "Try the other one. 😀", "", "It failed."]
    results = [(e.data.status, e.data.parts[0].text) for e in events if isinstance(e.data, ToolResult)]
    assert results[0] == ("ok", "42")
    assert results[1][0] == "error" and "a\0b \ud800" in results[1][1]
    notes = [e.data.value for e in events if isinstance(e.data, PluginData)]
    assert notes == [{"big": 10**30, "nul": "\0", "none": None}] * 2
    view = fold(events).view
    assert view[0].text == "We added 17 and 25: 42."
    assert [message.role for message in view] == ["context", "user", "assistant", "tool", "assistant"]


async def test_names_forks_and_endings_are_there(golden):
    infos = {info.id: info for info in await golden.list()}
    assert (infos["sums"].title, infos["sums"].labels) == ("Sums", ("numbers",))
    assert infos["again"].parent == "sums"
    assert dict(infos["again"].metadata) == {"k\0": ["x"]}
    ends = {name: [e.data.reason for e in await stored(golden, name) if isinstance(e.data, TurnEnd)] for name in NAMES}
    assert ends["failed"] == ["failed"]
    assert ends["waits"] == ["waiting"]
    assert ends["again"] == ["completed"] * 3
    assert [call.call.name for call in fold(await stored(golden, "waits")).deferred.values()] == ["wipe"]


async def test_a_session_of_the_release_goes_on(golden):
    agent = Agent(model=ScriptModel(["Here I am."]))
    result = await Stack(store=golden).run(agent, "Still there?", session="again")
    assert result.text == "Here I am."
    assert faults_of(await stored(golden, "again")) == []


def test_an_event_is_written_as_it_was_read(folder):
    lines = [json.loads(line) for line in exported(folder)]
    events = [line for line in lines if "seq" in line]
    assert len(events) > 50
    written = [event_to_plain(event_from_plain(line)) for line in events]
    assert json.loads(json.dumps(written)) == events
