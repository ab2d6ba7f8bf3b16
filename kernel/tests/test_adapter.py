"""Four methods over a dict, plain and async, back sessions; and what goes wrong over them is said."""

import anyio
import pytest

from treadle import Agent, Stack
from treadle.adapter import AdaptedStore
from treadle.errors import StoreFault, TurnNotCompleted, UnreadableLog
from treadle.testing import HistoryKit, faults_of
from treadle.testing.stores import noted, numbered, stored, written
from treadle_script import ScriptModel


class Shelf:
    def __init__(self):
        self.shelf = {}

    def get_history(self, session_id):
        return self.shelf.get(session_id, [])

    def append_messages(self, session_id, messages):
        self.shelf[session_id] = [*self.get_history(session_id), *messages]

    def clear(self, session_id):
        self.shelf.pop(session_id, None)

    def list_sessions(self):
        return list(self.shelf)


class SlowShelf(Shelf):
    """The same, where each method is async and suspends."""

    async def get_history(self, session_id):
        await anyio.lowlevel.checkpoint()
        return super().get_history(session_id)

    async def append_messages(self, session_id, messages):
        await anyio.lowlevel.checkpoint()
        self.shelf[session_id] = [*self.shelf.get(session_id, ()), *messages]

    async def clear(self, session_id):
        await anyio.lowlevel.checkpoint()
        super().clear(session_id)

    async def list_sessions(self):
        await anyio.lowlevel.checkpoint()
        return super().list_sessions()


@pytest.fixture(autouse=True)
def checked_logs():
    """Not here: it reads each log after its loop has ended, where these would suspend. The tests look themselves."""


class TestPlain(HistoryKit):
    @pytest.fixture
    def history(self):
        return Shelf()


class TestAsync(HistoryKit):
    @pytest.fixture
    def history(self):
        return SlowShelf()


@pytest.mark.parametrize("kind", [Shelf, SlowShelf])
async def test_a_conversation_goes_on_over_another_store_of_the_same_history(kind):
    history = kind()
    agent = Agent(model=ScriptModel(["one", "two"]))
    first = await Stack(store=AdaptedStore(history)).run(agent, "a", session="s")
    second = await Stack(store=AdaptedStore(history)).run(agent, "b", session="s")
    assert (first.text, second.text) == ("one", "two")
    assert [event.seq for event in await stored(AdaptedStore(history), "s")] == list(
        range(1, len(history.shelf["s"]) + 1)
    )


async def test_two_processes_that_wrote_at_once_are_found_at_the_next_opening():
    history = Shelf()
    one, other = AdaptedStore(history), AdaptedStore(history)
    log, rival = await one.open("s", write=True), await other.open("s", write=True)
    await log.append(numbered(1, 1), 0)
    await rival.append([noted("rival")], 0)
    with pytest.raises(UnreadableLog, match="message 2 is numbered 1"):
        await AdaptedStore(history).open("s", write=True)


async def test_a_history_that_keeps_a_part_and_fails_is_repaired_at_the_next_opening():
    class Torn(Shelf):
        broken = True

        def append_messages(self, session_id, messages):
            if self.broken and any(each["type"] == "step/start" for each in messages):
                super().append_messages(session_id, messages[:1])
                raise OSError("the wire broke")
            super().append_messages(session_id, messages)

    history = Torn()
    agent = Agent(model=ScriptModel(["well"]))
    with pytest.raises((StoreFault, TurnNotCompleted), match="the wire broke"):
        (await Stack(store=AdaptedStore(history)).run(agent, "a", session="s")).check()
    history.broken = False
    assert (await Stack(store=AdaptedStore(history)).run(agent, "b", session="s")).text == "well"
    assert faults_of(await stored(AdaptedStore(history), "s")) == []


async def test_a_message_that_is_none_of_ours_is_named():
    history = Shelf()
    history.append_messages("s", [{"role": "user", "content": "hi"}])
    with pytest.raises(UnreadableLog, match='session "s"'):
        await AdaptedStore(history).open("s", write=False)


async def test_a_writer_that_is_open_can_be_read_before_its_first_append():
    store = AdaptedStore(Shelf())
    log = await store.open("s", write=True)
    reader = await store.open("s", write=False)
    assert list(await reader.read()) == []
    await log.close()
    await written(store, "s", numbered(1, 1))
    assert list(await reader.read()) == numbered(1, 1)
