"""One scripted turn, cut at each of its await points in turn: by a cancel, by its host, by a message that arrives.

The points are counted: each `send` into the coroutine that drives the turns is one. What is done at point k is done
just before the k-th resumption, where the turn stands still and everything else may have moved.
"""

import types
from functools import partial
from random import Random

import anyio
import pytest
from anyio.lowlevel import checkpoint

from treadle import Agent, Allow, CallContext, Defer, Limits, Retry, Stack, Tool, hookimpl
from treadle.driver import Driver
from treadle.errors import ProviderError
from treadle.events import InboxPut, StepEnd, StepStart, ToolCall, TurnEnd, UserMessage
from treadle.results import Entered
from treadle.store import Capabilities, MemoryStore
from treadle.testing import Stepper, faults_of
from treadle_script import ScriptModel, call, calls

ANY = {"type": "object"}
LIMITS = Limits(grace_seconds=2)
PATIENCE_SECONDS = 10  # grace, and a machine that is busy


class SlowStore(MemoryStore):
    """Sessions in memory whose appends and syncs wait, as those of a disk do."""

    @property
    def capabilities(self):
        return Capabilities(push=True, suspends=True)

    async def open(self, session_id, write):
        log = await super().open(session_id, write)
        append = log.append

        async def slow(events, expected_seq):
            await checkpoint()
            await append(events, expected_seq)
            await checkpoint()

        log.append, log.sync = slow, checkpoint
        return log


class Waits:
    """Hooks that all wait; they retry, object once, and ask before `asks`."""

    def __init__(self):
        self.objected = False

    @hookimpl
    async def before_step(self):
        await checkpoint()

    @hookimpl
    async def transform_context(self):
        await checkpoint()

    @hookimpl
    async def on_model_error(self):
        await checkpoint()
        return Retry()

    @hookimpl
    async def before_tool(self, call):
        await checkpoint()
        return Defer("ask") if call.name == "asks" else None

    @hookimpl
    async def after_tool(self):
        await checkpoint()

    @hookimpl
    async def on_turn_stopping(self):
        await checkpoint()
        objected, self.objected = self.objected, True
        return None if objected else "are you sure?"

    @hookimpl
    async def on_event(self):
        await checkpoint()


class Resumptions:
    """Counts, and acts just before the one that a test asks for."""

    def __init__(self):
        self.rest()

    def rest(self):
        self.count, self.point, self.act, self.counting = 0, 0, None, False

    def at(self, point, act):
        self.point, self.act = point, act

    def begin(self):
        self.count, self.counting = 0, True

    @types.coroutine
    def driven(self, coroutine):
        value, error = None, None
        while True:
            self.count += self.counting
            if self.counting and self.count == self.point:
                self.act()
            try:
                trap = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                return stop.value
            try:
                value, error = (yield trap), None
            except BaseException as raised:
                value, error = None, raised


class World:
    """The scripted turn, and how often each body ran."""

    def __init__(self, store, resumptions=None):
        self.store, self.ran, self.resumptions = store, [], resumptions or Resumptions()
        self.resumptions.rest()
        self.stack = Stack([Waits()], store=store)
        names = ("a", "b", "alone", "asks")
        self.tools = [Tool(name=each, call=self.body, parameters=ANY, exclusive=each == "alone") for each in names]
        lines = [
            calls(call("a"), call("b"), call("alone")),
            ProviderError("server", "as asked"),
            "some words",
            calls(call("a"), call("asks")),
            "decided",
        ]
        self.agent = Agent(model=ScriptModel(lines), tools=self.tools, limits=LIMITS)

    async def body(self, context: CallContext):
        self.ran.append(context.call)
        for _ in range(3):
            await checkpoint()
        return "done"

    async def events(self):
        return await (await self.store.open("s", write=False)).read()

    async def played(self, driver, part):
        """The part of the script under test; before the resuming turn the one that defers is played."""
        if part == "resume":
            await driver.prompt("go")
            await driver.until_idle()
            self.resumptions.begin()
            return await (await driver.decide({driver.waiting[0].id: Allow()})).fate()
        self.resumptions.begin()
        return await (await driver.follow_up("go")).fate()

    async def went_on(self):
        """What must hold after a turn was cut: a lawful log, no body twice, and a next turn with a valid request."""
        self.resumptions.rest()
        events = await self.events()
        assert faults_of(events) == []
        begun = [e.data.call_id for e in events if isinstance(e.data, ToolCall)]
        assert len(set(self.ran)) == len(self.ran) and set(self.ran) <= set(begun)
        model = ScriptModel(["went on"], last=True)
        async with Stack(store=self.store).open(Agent(model=model, tools=self.tools), "s") as driver:
            result = await driver.prompt("next")
        assert (result.reason, model.requests[-1][-1].text) == ("completed", "next")
        assert faults_of(await self.events()) == []
        return [e.data.reason for e in events if isinstance(e.data, TurnEnd)]


@pytest.fixture
def checked_logs():
    """These tests make too many logs to check each in all its prefixes; they check what they cut."""


@pytest.fixture
def resumptions(monkeypatch):
    """The resumptions of what drives a session's turns, counted."""
    seen, activity = Resumptions(), Driver._activity

    async def counted(self):
        await seen.driven(activity(self))

    monkeypatch.setattr(Driver, "_activity", counted)
    return seen


async def undisturbed(resumptions, store, part):
    """How many await points the part has."""
    world = World(store(), resumptions)
    async with world.stack.open(world.agent, "s") as driver:
        fate = await world.played(driver, part)
        await driver.until_idle()
    assert fate.result.reason == ("completed" if part == "resume" else "waiting")
    return resumptions.count


def said(capsys, text):
    with capsys.disabled():
        print(f"\n{text}", end=" ")


stores = pytest.mark.parametrize("store", [MemoryStore, SlowStore])
parts = pytest.mark.parametrize("part", ["whole", "resume"])


@stores
@parts
@pytest.mark.parametrize("reach", ["turn", pytest.param("all", marks=pytest.mark.slow)])
async def test_a_cancel_at_every_await_point_leaves_a_lawful_log_in_time(resumptions, store, part, reach, capsys):
    def cut(driver, reach):
        cuts.append(driver.seq)
        driver.cancel(reach, cause="cut")

    points, cuts, last = await undisturbed(resumptions, store, part), [], []
    for point in range(1, points + 1):
        world = World(store(), resumptions)
        with anyio.fail_after(PATIENCE_SECONDS):
            async with world.stack.open(world.agent, "s") as driver:
                resumptions.at(point, partial(cut, driver, reach))
                await world.played(driver, part)
                await driver.until_idle()
        nothing_began_after(cuts[-1], await world.events(), world.ran)
        last.append((await world.went_on())[-1])
    said(capsys, f"{points} await points, {last.count('aborted')} turns aborted")
    assert points > 12 and last.count("aborted") > points // 2


def nothing_began_after(seq, events, ran):
    """No step, request or body begins after a cancel; a turn that it meets before its first step only ends."""
    assert not {"step/start", "model/request", "inbox/put"} & {each.type for each in events[seq:]}
    assert set(ran) <= {each.data.call_id for each in events[:seq] if isinstance(each.data, ToolCall)}


@stores
@parts
@pytest.mark.parametrize(
    ("host", "anyio_backend"),
    [("scope", "asyncio"), ("scope", "trio"), ("task", "asyncio")],  # trio cancels scopes, never tasks
)
async def test_a_host_that_is_cancelled_at_every_await_point_leaves_a_lawful_log(
    resumptions, store, part, host, anyio_backend
):
    points = await undisturbed(resumptions, store, part)
    for point in range(1, points + 1):
        world = World(store(), resumptions)
        with anyio.fail_after(PATIENCE_SECONDS):
            await (cancelled_scope if host == "scope" else cancelled_task)(world, part, point)
        await world.went_on()


async def embedded(world, part):
    async with world.stack.open(world.agent, "s") as driver:
        await world.played(driver, part)
        await driver.until_idle()


async def cancelled_scope(world, part, point):
    with anyio.CancelScope() as scope:
        world.resumptions.at(point, scope.cancel)
        await embedded(world, part)


async def cancelled_task(world, part, point):
    """As a server or `asyncio.timeout` does it: once, and through every anyio shield."""
    import asyncio

    task = asyncio.create_task(embedded(world, part))
    world.resumptions.at(point, task.cancel)
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None


# --- a message that arrives late --------------------------------------------------------------------------------


def once_each(events, ids):
    """Each of these messages was put once, claimed once, and entered the conversation once."""
    put = [e.data.message.id for e in events if isinstance(e.data, InboxPut)]
    claimed = [each for e in events if isinstance(e.data, StepStart) for each in e.data.claims]
    entered = [e.data.message.id for e in events if isinstance(e.data, UserMessage)]
    return all(found.count(each) == 1 for found in (put, claimed, entered) for each in ids)


@stores
async def test_tc_091_a_steer_at_every_await_point_is_taken_once_and_never_left_behind(resumptions, store, capsys):
    async def once(point):
        world, receipts = World(store(), resumptions), []
        agent = Agent(model=ScriptModel([calls(call("a"), call("b")), "some words"], last=True), tools=world.tools)

        async def steer(driver):
            receipts.append(await driver.steer("steer"))

        async with anyio.create_task_group() as group, world.stack.open(agent, "s") as driver:
            resumptions.at(point, partial(group.start_soon, steer, driver))
            await world.played(driver, "whole")
            await driver.until_idle()
            while point and not receipts:
                await checkpoint()
            await driver.until_idle()
            assert all([isinstance(await each.fate(), Entered) for each in receipts]) and not driver.pending
        events = await world.events()
        assert once_each(events, [each.id for each in receipts]) and faults_of(events) == []
        return events

    quiet = await once(0)
    points, ends = resumptions.count, []
    for point in range(1, points + 1):
        events = await once(point)
        ends.append(sum(isinstance(e.data, TurnEnd) for e in events))
    said(capsys, f"{points} await points, {ends.count(2)} steers opened a turn of their own")
    assert sum(isinstance(e.data, StepEnd) for e in quiet) == 3 and set(ends) == {1, 2}


INTERLEAVED_TURNS = 400
"""Turns of the event loop: about two of the script's own turns."""


class SteersAtTheEnd:
    """A hook that hears of a turn's end and steers at once."""

    def __init__(self, receipts):
        self.receipts, self.driver, self.once = receipts, None, True

    @hookimpl
    async def on_event(self, event):
        if isinstance(event.data, TurnEnd) and self.once:
            self.once = False
            self.receipts.append(await self.driver.steer("at the end"))


async def interleaved(seed):
    """One turn, and four steers that come whenever this seed says, one of them from a hook at the turn's end."""
    random, receipts = Random(seed), []
    steers, stepper = SteersAtTheEnd(receipts), Stepper(hold=(), shake=Random(seed))
    model = ScriptModel([call("a"), "some words"], last=True)
    world = World(MemoryStore())
    agent = stepper.agent(Agent(model=model, tools=world.tools, limits=LIMITS))

    async def steer(turns):
        for _ in range(turns):
            await checkpoint()
        receipts.append(await driver.steer("steer"))

    async with stepper.stack([Waits(), steers], store=world.store).open(agent, "s") as driver:
        steers.driver = driver
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(steer, random.randrange(INTERLEAVED_TURNS))
            await driver.prompt("go")
        await driver.until_idle()
        assert len(receipts) == 4 and not driver.pending
        assert all([isinstance(await each.fate(), Entered) for each in receipts])
    events = await world.events()
    assert once_each(events, [each.id for each in receipts]) and faults_of(events) == []
    return [receipt.turn for receipt in receipts]


async def test_tc_091_steers_in_seeded_interleavings_are_each_taken_once():
    turns = [turn for seed in range(60) for turn in await interleaved(seed)]
    assert set(turns) >= {1, 2}


@pytest.mark.slow
async def test_tc_091_steers_in_a_thousand_seeded_interleavings_are_each_taken_once(capsys):
    turns = [turn for seed in range(1000) for turn in await interleaved(seed)]
    said(capsys, f"steers by the turn that took them: {[turns.count(turn) for turn in range(1, max(turns) + 1)]}")
    assert min(turns.count(1), turns.count(2), turns.count(3)) > 20
