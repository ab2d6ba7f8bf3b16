"""The one door to a log, by itself: notes that wait, edits that come too late, shields, faults and what they say."""

import anyio
import pytest

from treadle.errors import StoreFault
from treadle.events import KERNEL, ContextEdit, PluginData, SessionOpen, StepStart, TurnStart
from treadle.grammar import State
from treadle.session import Note, Session, open_session
from treadle.store import MemoryStore, _Kept

OPENING = SessionOpen(reason="new", kernel="0", plugins=())
STEP = StepStart(agent="a", digest="d")
NOTE = Note(PluginData("p/n", 1), "p")


@pytest.fixture
def checked_logs():
    """These sessions have no loop behind them that would close their turns."""


async def opened(store=None, log=None, **given):
    log = log or await (store or MemoryStore()).open("s", write=True)
    return Session(log, State("s"), opening=OPENING, **given)


async def types(session):
    return [event.type for event in await session.log.read()]


class Waits:
    """A log whose appends and syncs wait to be let go, or raise."""

    def __init__(self, log, error=None):
        self.log, self.error = log, error
        self.reached, self.go = anyio.Event(), anyio.Event()

    def __getattr__(self, name):
        return getattr(self.log, name)

    async def _wait(self):
        self.reached.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error

    async def append(self, events, expected_seq):
        await self._wait()
        await self.log.append(events, expected_seq)

    async def sync(self):
        await self._wait()


async def waiting(error=None, **given):
    return await opened(log=Waits(await MemoryStore().open("s", write=True), error), **given)


async def test_notes_wait_for_the_loops_next_append_and_for_no_other():
    session = await opened()
    session.notes.append(NOTE)
    await session.append_built(lambda state: (TurnStart(),))
    assert await types(session) == ["session/open", "turn/start"]
    await session.append(STEP)
    assert await types(session) == ["session/open", "turn/start", "p/n", "step/start"]


async def test_an_edit_that_is_no_longer_lawful_is_told_with_its_reason_and_the_rest_is_written():
    session, told = await opened(), []
    session.refused = lambda note, reason: told.append((note, reason))
    late = Note(ContextEdit(first=1, last=1, put=None, plugin="p"), "p")
    session.notes += [late, NOTE]
    await session.append(TurnStart())
    assert await types(session) == ["session/open", "p/n", "turn/start"]
    assert told == [(late, "no live item has seq 1")]


@pytest.mark.parametrize("what", ["append", "sync"])
async def test_a_cancel_does_not_split_an_append_or_a_barrier(what):
    session, done = await waiting(), []
    if what == "sync":
        session.log.go.set()
        await session.append(TurnStart())
        session.log.reached, session.log.go = anyio.Event(), anyio.Event()

    async def work():
        await (session.append(TurnStart()) if what == "append" else session.sync())
        done.append(what)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await session.log.reached.wait()
        group.cancel_scope.cancel()
        session.log.go.set()
    assert done == [what] and session.fault is None and session.state.turn == 1


@pytest.mark.parametrize("what", ["append", "sync"])
async def test_a_store_that_fails_is_named_with_its_session_once_and_nothing_is_written_behind(what):
    session, told = await waiting(OSError("disk gone")), []
    session.failed = told.append
    session.log.go.set()
    for _ in range(2):
        with pytest.raises(StoreFault) as raised:
            await (session.append(TurnStart()) if what == "append" else session.sync())
        assert raised.value is session.fault
    assert told == [session.fault] and await types(session) == []
    assert str(session.fault).startswith('The store of session "s" failed: OSError: disk gone')
    assert isinstance(session.fault.__cause__, OSError)


@pytest.mark.parametrize("what", ["append", "sync"])
async def test_a_store_that_is_silent_for_too_long_has_failed_and_the_fault_says_how_long(what):
    session = await waiting(store_seconds=0.02)
    with pytest.raises(StoreFault, match=r"it was silent for 0\.02 s"):
        await (session.append(TurnStart()) if what == "append" else session.sync())


async def test_one_task_tells_observers_and_what_they_append_is_told_behind():
    session, told = await opened(suspends=False), []

    async def notify(event):
        told.append(event.type)
        await anyio.lowlevel.checkpoint()
        if event.type == "turn/start":
            await session.append_built(lambda state: (PluginData("p/x", 1),))
            told.append("behind")

    session.notify = notify
    await session.append(TurnStart())
    await session.append(STEP)
    assert told == ["session/open", "turn/start", "behind", "p/x", "step/start"]


@pytest.mark.parametrize("cut", [1, 2])
async def test_what_opens_a_repaired_session_is_written_with_its_first_append_and_once(cut):
    dead = await opened()
    await dead.append(TurnStart())
    store = MemoryStore()
    store._sessions["s"] = _Kept("s", 0.0, events=list(await dead.log.read())[:cut])
    log = await store.open("s", write=True)
    live = await open_session(log, session="s", kernel="0", plugins=(), store_seconds=1, suspends=False)
    repaired = ["session/open", "turn/start", "turn/end"] if cut == 2 else ["session/open"]
    assert await types(live) == repaired
    await live.append(TurnStart())
    await live.append(STEP)
    assert await types(live) == [*repaired, "session/open", "turn/start", "step/start"]
    assert [e.data.reason for e in await log.read() if e.type == "session/open"] == ["new", "resume"]


async def test_an_edit_is_the_kernels_event_and_required():
    from treadle import Agent, Stack, hookimpl
    from treadle_script import ScriptModel

    class Shortens:
        @hookimpl
        def before_step(self, context):
            if context.turn == 2:
                context.edit(5, 7, "in short")

    async with Stack([Shortens()]).open(Agent(model=ScriptModel(["one", "two"]))) as driver:
        await driver.prompt("hi")
        await driver.prompt("again")
        edits = [(e.owner, e.required) for e in await driver.read() if e.type == "context/edit"]
    assert edits == [(KERNEL, True)]


PLUGINS = (("mine", "1.0"),)


async def open_again(log, name, **given):
    settings = {"kernel": "0.9", "plugins": PLUGINS, "store_seconds": 1, "suspends": False, "clock": lambda: 8.0}
    return await open_session(log, session=name, **settings | given)


async def test_a_new_session_says_what_wrote_it_and_when():
    log = await MemoryStore().open("s", write=True)
    live = await open_again(log, "s")
    assert live.state.session == "s"
    await live.append(TurnStart())
    first, second = await log.read()
    assert first.data == SessionOpen(reason="new", kernel="0.9", plugins=PLUGINS)
    assert [(e.time, e.owner, e.required) for e in (first, second)] == [(8.0, KERNEL, True)] * 2


async def test_a_fork_says_where_it_came_from_at_once_and_once():
    store = MemoryStore()
    parent = await opened(store)
    await parent.append_built(lambda state: (PluginData("p/x", 1),))
    await store.fork("s", 2, "child")
    log = await store.open("child", write=True)
    live = await open_again(log, "child")
    fork = SessionOpen(reason="fork", kernel="0.9", plugins=PLUGINS, parent="s", parent_seq=2)
    assert [event.data for event in await log.read(2)] == [fork]
    await live.append(TurnStart())
    assert await types(live) == ["session/open", "p/x", "session/open", "turn/start"]
    assert live.state.session == "child"


async def test_a_log_that_suspends_is_awaited_for_as_long_as_the_limits_say():
    live = await open_again(Waits(await MemoryStore().open("s", write=True)), "s", suspends=True, store_seconds=0.02)
    with pytest.raises(StoreFault, match=r"silent for 0\.02 s"):
        await live.append(TurnStart())
