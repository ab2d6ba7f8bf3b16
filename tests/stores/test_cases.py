"""Faults that other projects had, on every kind of store. The number names the case."""

import anyio
import pytest

from treadle import Agent, Stack, tool
from treadle.errors import SessionBusy, UsageError
from treadle.events import Event, SessionMeta, SessionOpen, ToolResult
from treadle.messages import Text
from treadle.testing import faults_of
from treadle.testing.stores import noted, numbered, stored, values, written
from treadle_script import ScriptModel, call


async def test_tc_065_a_batch_that_cannot_be_written_keeps_no_lock(pair, kind):
    one, other = pair
    log = await one.open("s", write=True)
    if kind == "memory":  # it keeps the objects themselves, so every batch can be written
        await log.append([noted({"ok": 1}), noted(object(), 2)], 0)
        assert len(await log.read()) == 2
        return
    with pytest.raises(UsageError):
        await log.append([noted({"ok": 1}), noted(object(), 2)], 0)
    with anyio.fail_after(1):  # at once: it waits for nobody
        await written(other, "t", numbered(1, 1))
    assert list(await log.read()) == []
    await log.append(numbered(1, 1), 0)
    await log.close()
    assert list(await stored(other, "s")) == numbered(1, 1)


async def test_tc_067_a_second_prompt_to_a_session_is_refused_before_anything_is_written(pair):
    one, other = pair
    begun, go_on = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        "Wait."
        begun.set()
        await go_on.wait()
        return "done"

    first = Agent(model=ScriptModel([call("slow"), "A is done."]), tools=[slow])
    second = Agent(model=ScriptModel(["never"]))
    results = []

    async def prompt_a():
        results.append(await Stack(store=one).run(first, "A", session="S"))

    async with anyio.create_task_group() as group:
        group.start_soon(prompt_a)
        await begun.wait()
        before = list(await stored(other, "S"))
        with pytest.raises(SessionBusy):
            await Stack(store=other).run(second, "B", session="S")
        assert list(await stored(other, "S")) == before
        with anyio.fail_after(5):  # another session is not delayed
            assert (await Stack(store=other).run(Agent(model=ScriptModel(["C."])), "C", session="T")).text == "C."
        go_on.set()
    assert results[0].text == "A is done."
    assert faults_of(await stored(other, "S")) == []


async def test_tc_069_equal_times_never_change_the_order_of_pages(store):
    await written(store, "s", [noted(seq, seq, time=5.0) for seq in range(1, 7)])
    for _ in range(3):
        assert values(await stored(store, "s", 3)) == [4, 5, 6]
        forwards = [values(await stored(store, "s", after))[:2] for after in (0, 2, 4)]
        backwards = [values(await stored(store, "s", after))[:2] for after in (4, 2, 0)]
        assert forwards == backwards[::-1] == [[1, 2], [3, 4], [5, 6]]


async def test_tc_073_nul_in_a_result_and_in_metadata_reads_back_equal(store):
    events = [
        Event(1, 1.0, SessionOpen(reason="new", kernel="0.1.0")),
        Event(2, 2.0, ToolResult(call_id="c", status="ok", parts=(Text("before"), Text("a\0b"), Text("after"))), 1, 1),
        Event(3, 3.0, SessionMeta(metadata={"k\0": ["x\0"]})),
    ]
    await written(store, "s", events)
    assert list(await stored(store, "s")) == events
    (info,) = await store.list()
    assert dict(info.metadata) == {"k\0": ["x\0"]}
