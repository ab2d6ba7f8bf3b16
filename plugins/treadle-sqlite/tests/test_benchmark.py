"""What a step costs in time and bytes. Prints; asserts nothing about time, which depends on the disk's mood."""

import itertools
import json
import sqlite3
import statistics
import time

import pytest

from treadle.codec import dump_data
from treadle.plugin import Call, Event, Message, Text, Usage, new_id
from treadle.store import MemoryStore
from treadle.testing import stores as kit

TURNS = 200


def turn_of_two_steps(turn, seq):
    """The appends of one turn, as the loop makes them: ask, call a tool, answer."""
    user, first, second, call_id = new_id(), new_id(), new_id(), new_id()
    asked = Message(id=user, role="user", parts=(Text("What is 17 plus 25?"),))
    call = Call(id=call_id, name="add", arguments='{"a": 17, "b": 25}', provider_id="call_abc123")
    calling = Message(id=first, role="assistant", parts=(call,), origin="model")
    answer = Message(id=second, role="assistant", parts=(Text("17 plus 25 is 42."),), origin="model")
    usage = Usage(input=120, output=20)
    header = kit.Header(
        model="gpt-5",
        family="openai",
        instructions=(Text("Use the tools."),),
        tools=(kit.ToolSchema(name="add", description="Add two integers.", parameters={"type": "object"}),),
    )
    digest = "0123456789abcdef" * 2
    asks = kit.ModelRequest(attempt=1, digest=digest, header_seq=5)
    if turn == 1:
        asks = kit.ModelRequest(attempt=1, digest=digest, header=header)
    batches = [
        [(kit.InboxPut(message=asked, lane="turn", wake=True), None)],
        [(kit.TurnStart(), None)],
        [(kit.StepStart(agent="clerk", digest=digest, claims=(user,)), 1), (kit.UserMessage(asked), 1)],
        [(asks, 1)],
        [(kit.AssistantMessage(message=calling, finish="calls", usage=usage), 1)],
        [(kit.ToolCall(call_id=call_id, arguments='{"a": 17, "b": 25}', replay="never"), 1)],
        [(kit.ToolResult(call_id=call_id, status="ok", parts=(Text("42"),)), 1), (kit.StepEnd("done"), 1)],
        [(kit.StepStart(agent="clerk", digest=digest), 2)],
        [(kit.ModelRequest(attempt=1, digest=digest, header_seq=5), 2)],
        [(kit.AssistantMessage(message=answer, finish="end", usage=usage), 2)],
        [(kit.StepEnd("done"), 2)],
        [(kit.TurnEnd(reason="completed", park=False, steps=2, usage=usage + usage), None)],
    ]
    numbers = itertools.count(seq + 1)
    return [
        [
            Event(next(numbers), time.time(), data, None if isinstance(data, kit.InboxPut) else turn, step)
            for data, step in batch
        ]
        for batch in batches
    ]


def session():
    seq = 0
    for turn in range(1, TURNS + 1):
        for batch in turn_of_two_steps(turn, seq):
            yield seq, batch
            seq += len(batch)


async def through(log, batches):
    took = []
    for seq, batch in batches:
        start = time.perf_counter()
        await log.append(batch, seq)
        took.append(time.perf_counter() - start)
    return took


def through_sqlite3(file, batches, durability):
    """The least that the same rows cost: encode, begin, insert, commit."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute(f"pragma synchronous = {durability}")
    connection.execute(
        "create table events (session_key integer, seq integer, at text, type text, turn integer, step integer, "
        "owner text, required integer, data text, primary key (session_key, seq)) strict"
    )
    took = []
    for _, batch in batches:
        start = time.perf_counter()
        rows = [(1, e.seq, str(e.time), e.type, e.turn, e.step, None, 1, dump_data(e.data)) for e in batch]
        connection.execute("begin immediate")
        connection.executemany("insert into events values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.execute("commit")
        took.append(time.perf_counter() - start)
    connection.close()
    return took


def said(name, took):
    per_step = sum(took) / (2 * TURNS)
    return (
        f"\n{name:24} {statistics.median(took) * 1e6:8.0f} us per append (median) {per_step * 1e6:8.0f} us per step "
        f"{len(took) / sum(took):8.0f} appends/s"
    )


@pytest.mark.slow
async def test_print_what_a_step_and_a_turn_cost(opened, tmp_path, capsys):
    batches = list(session())
    events = [event for _, batch in batches for event in batch]
    lines = []
    memory = MemoryStore()
    lines.append(said("memory", await through(await memory.open("s", write=True), batches)))
    for durability in ("normal", "full"):
        lines.append(said(f"sqlite3 alone, {durability}", through_sqlite3(tmp_path / durability, batches, durability)))
        path = tmp_path / f"{durability}.db"
        async with opened(path, durability=durability) as store:
            await kit.written(store, "other", events[:1])
        empty = path.stat().st_size
        async with opened(path, durability=durability) as store:
            log = await store.open("s", write=True)
            lines.append(said(f"treadle-sqlite, {durability}", await through(log, batches)))
            start = time.perf_counter()
            assert list(await log.read()) == events
            lines.append(f"\n{'':24} read of {len(events)} events: {(time.perf_counter() - start) * 1e3:.0f} ms")
    data = sum(len(dump_data(event.data)) for event in events)
    size = path.stat().st_size - empty
    lines.append(f"\n{size / TURNS:.0f} bytes of file per turn of two steps; {data / TURNS:.0f} of them are its JSON")
    lines.append(f"\n{empty} bytes of file before the first turn")
    with capsys.disabled():
        print("".join(lines))


@pytest.mark.slow
async def test_print_what_reading_ten_thousand_events_costs(opened, file, capsys):
    events = kit.numbered(1, 10_000)
    async with opened() as store:
        await kit.written(store, "s", events)
        start = time.perf_counter()
        assert list(await kit.stored(store, "s")) == events
        took = time.perf_counter() - start
    start = time.perf_counter()
    rows = sqlite3.connect(file).execute("select seq, at, data from events order by seq").fetchall()
    parsed = [json.loads(text) for *_, text in rows]
    raw = time.perf_counter() - start
    assert len(parsed) == 10_000
    with capsys.disabled():
        print(f"\n10,000 small events: {took * 1e3:.0f} ms; rows and JSON alone {raw * 1e3:.0f} ms")
