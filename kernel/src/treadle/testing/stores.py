"""What every store must do, as tests. A store passes by subclassing `StoreKit`.

The kit writes events that a grammar would refuse: a store knows nothing of grammar. What a store does not offer
(`Capabilities`) is not skipped; the kit then asserts that the store says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import TypeVar

import anyio
import anyio.abc
import pytest

from treadle.errors import Conflict, LeaseLost, NoSuchSession, SessionBusy, Unsupported, UsageError
from treadle.events import (
    AssistantMessage,
    Changes,
    ContextEdit,
    Data,
    Event,
    Header,
    InboxDrop,
    InboxPut,
    Inserted,
    Kept,
    ModelFailed,
    ModelRequest,
    PluginData,
    SessionMeta,
    SessionOpen,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from treadle.messages import (
    Call,
    Document,
    Image,
    Json,
    Message,
    Opaque,
    Payload,
    Reasoning,
    Result,
    Text,
    Usage,
    as_message,
    new_id,
)
from treadle.model import OutputSchema, ToolSchema
from treadle.store import Log, Post, PostCancel, PostDecision, Posted, PostMessage, SessionFilter, Store

PATIENCE_SECONDS = 10.0
"""How long the kit waits for what must come; a store that needs longer hangs."""

T = TypeVar("T")


def noted(value: Json, seq: int = 1, *, time: float = 1_700_000_000.5) -> Event:
    """A plugin's event, the simplest that a store can be given."""
    return Event(seq, time, PluginData("kit/note", value), owner="kit", required=False)


def numbered(first: int, last: int) -> list[Event]:
    """Events `first` to `last`, each noting its own number."""
    return [noted(seq, seq) for seq in range(first, last + 1)]


def described_as(seq: int, *, time: float | None = None, **said: Json) -> Event:
    """A `session/meta` event."""
    return Event(seq, 1_700_000_000.0 + seq if time is None else time, SessionMeta(**said))


def every_core_event() -> list[Event]:
    """One event of each core type, every field away from its default."""
    payload = Payload("openai", '{"id":"rs_1"}')
    parts = (
        Text("Grüße", payload),
        Image("https://example.org/a.png", "image/png", payload=payload),
        Document("sha256:00ff", "application/pdf", name="a.pdf", payload=payload),
        Reasoning("hm", payload),
        Opaque(payload),
    )
    call = Call(id="c1", name="add", arguments='{"a": 1.0}', provider_id="call_1", payload=payload)
    result = Result(call_id="c1", name="add", status="ok", parts=(Text("2"),), payload=payload)
    message = Message(id="m1", role="user", parts=(*parts, call, result), origin="plugin:kit")
    usage = Usage(input=1, cache_read=2, cache_write=3, output=4, reasoning=5, raw='{"n":1}', estimated=True)
    header = Header(
        model="gpt-5",
        family="openai",
        instructions=(Text("Be brief."),),
        tools=(ToolSchema(name="add", description="Add.", parameters={"type": "object"}),),
        params={"temperature": 0.5, "stop": ["x"]},
        output=OutputSchema(name="answer", schema={"type": "integer"}),
    )
    changes = Changes(plugins=("kit",), view=(Kept(1, 4), Inserted(message)))
    outside: list[Data] = [
        SessionOpen(reason="fork", kernel="0.1.0", plugins=(("kit", "1"),), parent="p", parent_seq=3),
        SessionMeta(title="t", labels=("a", "b"), metadata={"k": [1, None]}),
        InboxPut(message=message, lane="step", wake=True),
        InboxDrop(ids=("m1", "m2"), why="rejected", detail="no"),
        ContextEdit(first=1, last=2, put=(Text("short"),), plugin="compact"),
        ContextEdit(first=1, last=2, put=None, plugin="compact"),
    ]
    inside: list[Data] = [
        StepStart(agent="clerk", digest="d", claims=("m1",), resumes=("c0",)),
        UserMessage(message),
        ModelRequest(attempt=1, digest="d", header=header, changes=changes),
        ModelFailed(attempt=1, kind="overloaded", error="503", action="retry", usage=usage, after_seconds=1.5),
        ModelRequest(attempt=2, digest="d", header_seq=9),
        AssistantMessage(message=message, finish="calls", usage=usage, interrupted=True),
        ToolCall(call_id="c1", arguments='{"a": 1}', replay="safe"),
        ToolResult(call_id="c1", status="error", parts=parts, usage=usage, concludes=True, agent="other"),
        StepEnd("aborted"),
    ]
    data = [
        *((each, None, None) for each in outside),
        (TurnStart(), 7, None),
        *((each, 7, 2) for each in inside),
        (TurnEnd(reason="limit", detail="max_steps", park=True, steps=2, usage=usage, ignored=1), 7, None),
    ]
    return [Event(seq, 1_700_000_000.123456, *each) for seq, each in enumerate(data, 1)]


async def written(store: Store, session_id: str, events: Sequence[Event], expected_seq: int = 0) -> None:
    """Open a session, append, sync and close."""
    log = await store.open(session_id, write=True)
    await log.append(events, expected_seq)
    await log.sync()
    await log.close()


async def stored(store: Store, session_id: str, after_seq: int = 0) -> Sequence[Event]:
    """What a reader of the session finds."""
    log = await store.open(session_id, write=False)
    events = await log.read(after_seq)
    await log.close()
    return events


async def taken(items: AsyncIterator[T], count: int) -> list[T]:
    """The next `count` items of an endless iterator."""
    found: list[T] = []
    with anyio.fail_after(PATIENCE_SECONDS):
        while len(found) < count:
            found.append(await anext(items))
    return found


def values(events: Sequence[Event]) -> list[Json]:
    """What the events of `noted` and `numbered` say."""
    return [event.data.value for event in events if isinstance(event.data, PluginData)]


@asynccontextmanager
async def listening(log: Log) -> AsyncIterator[AsyncIterator[Post]]:
    """The posts of a log, closed at the end."""
    async with aclosing(log.posted()) as posts:  # type: ignore[type-var]
        yield posts


@asynccontextmanager
async def tailing(log: Log, after_seq: int = 0) -> AsyncIterator[AsyncIterator[Event]]:
    """The tail of a log, closed at the end."""
    async with aclosing(log.tail(after_seq)) as events:  # type: ignore[type-var]
        yield events


@pytest.mark.anyio
class StoreKit:
    """Subclass it, and give it a fixture `store`: an empty store, closed afterwards.

        class TestMine(StoreKit):
            @pytest.fixture
            async def store(self, tmp_path):
                store = Mine(tmp_path)
                yield store
                await store.close()

    If several processes may share the store, override `another` and `take_over` too.
    """

    @pytest.fixture
    async def store(self) -> Store:
        """The store under test."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store`.")

    def another(self, store: Store) -> AbstractAsyncContextManager[Store]:
        """The same sessions, as another process would open them."""
        raise Unsupported(store.ref, "a second store over the same sessions")

    async def take_over(self, store: Store, session_id: str) -> Log:
        """Open a session for writing although another holds it, as when the holder's lease had run out."""
        raise Unsupported(store.ref, "taking a lease over")

    # --- order ------------------------------------------------------------------------------------

    async def test_a_new_session_is_empty_to_its_writer(self, store: Store) -> None:
        log = await store.open("new", write=True)
        assert list(await log.read()) == []
        assert log.session_id == "new"
        await log.close()

    async def test_events_come_back_in_order_and_without_gaps(self, store: Store) -> None:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        await log.append(numbered(2, 4), 1)
        await log.append(numbered(5, 6), 4)
        assert list(await log.read()) == numbered(1, 6)
        await log.close()
        assert list(await stored(store, "s")) == numbered(1, 6)

    async def test_every_core_event_comes_back_as_it_was(self, store: Store) -> None:
        await written(store, "s", every_core_event())
        assert list(await stored(store, "s")) == every_core_event()

    async def test_reading_after_a_seq_gives_only_what_is_later(self, store: Store) -> None:
        await written(store, "s", numbered(1, 4))
        assert [event.seq for event in await stored(store, "s", 2)] == [3, 4]
        assert list(await stored(store, "s", 4)) == []

    async def test_equal_times_never_change_the_order(self, store: Store) -> None:
        await written(store, "s", [noted(seq, seq, time=5.0) for seq in range(1, 7)])
        assert values(await stored(store, "s", 3)) == [4, 5, 6]
        pages = [values(await stored(store, "s", after))[:2] for after in (0, 2, 4)]
        assert pages == [[1, 2], [3, 4], [5, 6]]

    async def test_times_that_run_backwards_never_change_the_order(self, store: Store) -> None:
        await written(store, "s", [noted(1, 1, time=9.0), noted(2, 2, time=3.25), noted(3, 3, time=6.0)])
        assert [(event.seq, event.time) for event in await stored(store, "s")] == [(1, 9.0), (2, 3.25), (3, 6.0)]

    async def test_an_append_at_the_wrong_seq_is_a_conflict_and_stores_nothing(self, store: Store) -> None:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 2), 0)
        for expected in (0, 1, 3):
            with pytest.raises(Conflict) as caught:
                await log.append(numbered(expected + 1, expected + 2), expected)
            assert (caught.value.expected_seq, caught.value.found_seq) == (expected, 2)
        assert list(await log.read()) == numbered(1, 2)
        await log.append(numbered(3, 3), 2)
        await log.close()

    # --- values -----------------------------------------------------------------------------------

    async def test_nul_surrogates_and_huge_integers_survive(self, store: Store) -> None:
        odd = {
            "nul": "a\0b",
            "high": "\ud800",
            "low": "x\udfff",
            "pair": "😀",
            "big": -(10**40),
            "e": [1e308, 0.1, -0.0],
        }
        message = Message(id="m\0", role="user", parts=(Text("\0\ud800 é"),))
        events = [noted(odd), Event(2, 1.0, UserMessage(message), 1, 1)]
        await written(store, "s", events)
        found = await stored(store, "s")
        assert list(found) == events
        assert isinstance(values(found)[0]["big"], int)

    async def test_an_unknown_plugins_event_survives_with_its_owner(self, store: Store) -> None:
        events = [
            Event(1, 1.0, PluginData("gone/one", {"a": [1, {"b": None}]}), owner="gone", required=False),
            Event(2, 1.0, PluginData("gone/two", None), 3, 4, owner="gone", required=True),
        ]
        await written(store, "s", events)
        assert list(await stored(store, "s")) == events

    @pytest.mark.parametrize(
        "value", [float("nan"), float("inf"), object(), {"a": {1, 2}}], ids=["nan", "infinity", "object", "set"]
    )
    async def test_a_batch_that_cannot_be_written_is_refused_whole_and_leaves_no_lock(
        self, store: Store, value: Json
    ) -> None:
        log = await store.open("s", write=True)
        other = await store.open("other", write=True)
        if store.capabilities.durable:
            with pytest.raises(UsageError, match="kit/note"):
                await log.append([*numbered(1, 1), noted(value, 2)], 0)
            assert list(await log.read()) == []
        else:  # it keeps the objects themselves
            await log.append([noted(value, 1)], 0)
            assert values(await log.read())[0] is value
        await other.append(numbered(1, 1), 0)
        seq = len(await log.read())
        await log.append(numbered(seq + 1, seq + 1), seq)
        await other.close()
        await log.close()

    async def test_what_was_synced_survives_its_store(self, store: Store) -> None:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 3), 0)
        await log.sync()
        if not store.capabilities.durable:
            with pytest.raises(Unsupported):
                self.another(store)
        else:
            async with self.another(store) as second:
                assert list(await stored(second, "s")) == numbered(1, 3)
        await log.close()

    # --- writers and readers ------------------------------------------------------------------------

    async def test_a_second_writer_is_told_who_holds_the_session(self, store: Store) -> None:
        log = await store.open("s", write=True)
        with pytest.raises(SessionBusy) as caught:
            await store.open("s", write=True)
        assert caught.value.session == "s"
        assert caught.value.holder
        await log.append(numbered(1, 1), 0)
        await log.close()

    async def test_a_second_store_is_told_who_holds_the_session(self, store: Store) -> None:
        if not store.capabilities.processes:
            with pytest.raises(Unsupported):
                self.another(store)
            return
        log = await store.open("s", write=True)
        async with self.another(store) as second:
            with pytest.raises(SessionBusy):
                await second.open("s", write=True)
            await log.close()
            again = await second.open("s", write=True)
            with pytest.raises(SessionBusy):
                await store.open("s", write=True)
            await again.close()

    async def test_closing_twice_frees_the_session_once(self, store: Store) -> None:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        await log.close()
        second = await store.open("s", write=True)
        await log.close()
        with pytest.raises(SessionBusy):
            await store.open("s", write=True)
        await second.append(numbered(2, 2), 1)
        await second.close()

    async def test_closing_under_a_cancel_frees_the_session(self, store: Store) -> None:
        log = await store.open("s", write=True)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.close()
        await (await store.open("s", write=True)).close()

    async def test_a_writer_that_was_closed_writes_no_more(self, store: Store) -> None:
        stale = await store.open("s", write=True)
        await stale.append(numbered(1, 1), 0)
        await stale.close()
        log = await store.open("s", write=True)
        with pytest.raises(LeaseLost):
            await stale.append(numbered(2, 2), 1)
        assert list(await log.read()) == numbered(1, 1)
        await log.close()

    async def test_a_writer_whose_lease_was_taken_writes_no_more(self, store: Store) -> None:
        stale = await store.open("s", write=True)
        await stale.append(numbered(1, 1), 0)
        if not store.capabilities.processes:
            with pytest.raises(Unsupported):
                await self.take_over(store, "s")
            await stale.close()
            return
        log = await self.take_over(store, "s")
        with pytest.raises(LeaseLost):
            await stale.append(numbered(2, 2), 1)
        await log.append([noted("mine", 2)], 1)
        await stale.close()  # and gives back nothing that is not its own
        with pytest.raises(SessionBusy):
            await store.open("s", write=True)
        assert values(await log.read()) == [1, "mine"]
        await log.close()

    async def test_a_log_opened_for_reading_appends_nothing(self, store: Store) -> None:
        await written(store, "s", numbered(1, 1))
        log = await store.open("s", write=False)
        with pytest.raises((UsageError, LeaseLost)):
            await log.append(numbered(2, 2), 1)
        await log.close()
        assert list(await stored(store, "s")) == numbered(1, 1)

    async def test_readers_read_while_a_writer_writes(self, store: Store) -> None:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        await log.sync()
        reader = await store.open("s", write=False)
        assert list(await reader.read()) == numbered(1, 1)
        await log.append(numbered(2, 2), 1)
        await log.sync()
        assert list(await reader.read()) == numbered(1, 2)
        await reader.close()
        await log.append(numbered(3, 3), 2)
        await log.close()

    async def test_reading_what_is_not_there_names_what_is_missing(self, store: Store) -> None:
        with pytest.raises(NoSuchSession, match="nobody") as caught:
            await store.open("nobody", write=False)
        assert caught.value.session == "nobody"
        for refused in (store.archive("nobody"), store.delete("nobody"), store.fork("nobody", 1, "child")):
            with pytest.raises(NoSuchSession):
                await refused
        assert list(await store.list()) == []

    async def test_looking_adds_nothing(self, store: Store) -> None:
        log = await store.open("looked", write=True)
        assert list(await log.read()) == []
        assert list(await store.list()) == []
        await log.close()
        assert list(await store.list()) == []
        with pytest.raises(NoSuchSession):
            await store.open("looked", write=False)

    async def test_appends_suspend_only_if_the_store_says_so(self, store: Store) -> None:
        log = await store.open("s", write=True)
        if store.capabilities.suspends:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await log.append(numbered(1, 2), 0)
            found = list(await log.read())
            assert found in ([], numbered(1, 2))  # done or not done, never half done
            await log.append(numbered(len(found) + 1, 3), len(found))
        else:
            for never_suspends in (log.append(numbered(1, 3), 0), log.sync()):
                with pytest.raises(StopIteration):
                    never_suspends.send(None)
        assert list(await log.read()) == numbered(1, 3)
        await log.close()

    # --- tail -------------------------------------------------------------------------------------

    async def test_a_tail_gives_what_is_there_and_then_what_comes(self, store: Store) -> None:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 3), 0)
        await log.sync()
        reader = await store.open("s", write=False)
        async with tailing(reader, 1) as events, anyio.create_task_group() as group:
            assert await taken(events, 2) == numbered(2, 3)

            async def write() -> None:
                await log.append(numbered(4, 5), 3)
                await log.sync()

            group.start_soon(write)
            assert await taken(events, 2) == numbered(4, 5)
        await reader.close()
        await log.close()

    async def test_a_tail_shows_nothing_before_it_is_synced(self, store: Store) -> None:
        log = await store.open("s", write=True)
        reader = await store.open("s", write=False)
        shown: list[int] = []
        synced = 0
        async with tailing(reader) as events:
            for seq in (1, 2, 3):
                await log.append(numbered(seq, seq), seq - 1)
                await log.sync()
                synced = seq
                shown += [event.seq for event in await taken(events, 1)]
                assert shown[-1] <= synced
        assert shown == [1, 2, 3]
        await reader.close()
        await log.close()

    async def test_a_tail_ends_when_its_log_is_closed(self, store: Store) -> None:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        reader = await store.open("s", write=False)
        got_one = anyio.Event()
        found: list[Event] = []

        async def watch() -> None:
            async with tailing(reader) as events:
                async for event in events:
                    found.append(event)
                    got_one.set()

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                await got_one.wait()
                await reader.close()
        assert found == numbered(1, 1)
        await log.close()

    async def test_a_tail_sees_what_another_store_appends(self, store: Store) -> None:
        if not store.capabilities.processes:
            with pytest.raises(Unsupported):
                self.another(store)
            return
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        async with self.another(store) as second:
            reader = await second.open("s", write=False)
            async with tailing(reader) as events:
                assert await taken(events, 1) == numbered(1, 1)
                await log.append(numbered(2, 3), 1)
                await log.sync()
                assert await taken(events, 2) == numbered(2, 3)
            await reader.close()
        await log.close()

    # --- posts ------------------------------------------------------------------------------------

    async def test_every_kind_of_post_arrives_as_it_was_oldest_first(self, store: Store) -> None:
        message = Message(id=new_id(), role="user", parts=(Text("\0 \ud800"),), origin="plugin:kit")
        said: list[Posted] = [
            PostMessage(message=message, lane="turn", wake=False),
            PostDecision(call_id="c1", verdict="allow", arguments='{"a": 2}', text="as edited"),
            PostCancel(reach="all", cause="enough"),
        ]
        log = await store.open("s", write=True)
        ids = [await store.post("s", what) for what in said]
        async with listening(log) as posts:
            assert await taken(posts, 3) == [Post(post_id, what) for post_id, what in zip(ids, said, strict=True)]
        assert ids[0] == message.id
        await log.close()

    async def test_a_post_stays_until_it_is_forgotten(self, store: Store) -> None:
        log = await store.open("s", write=True)
        first, second = [await store.post("s", PostMessage(message=as_message(text))) for text in ("one", "two")]
        for _ in range(2):
            async with listening(log) as posts:
                assert [post.id for post in await taken(posts, 2)] == [first, second]
        await log.forget([first])
        await log.close()
        log = await store.open("s", write=True)
        async with listening(log) as posts:
            assert [post.id for post in await taken(posts, 1)] == [second]
        await log.close()

    async def test_a_listener_gets_each_post_once(self, store: Store) -> None:
        log = await store.open("s", write=True)
        async with listening(log) as posts:
            first = await store.post("s", PostMessage(message=as_message("one")))
            assert [post.id for post in await taken(posts, 1)] == [first]
            second = await store.post("s", PostMessage(message=as_message("two")))
            assert [post.id for post in await taken(posts, 1)] == [second]
            await log.forget([first, second])
            third = await store.post("s", PostMessage(message=as_message("three")))
            assert [post.id for post in await taken(posts, 1)] == [third]
        await log.close()

    async def test_a_message_posted_twice_is_there_once(self, store: Store) -> None:
        log = await store.open("s", write=True)
        message = as_message("once")
        assert [await store.post("s", PostMessage(message=message)) for _ in range(2)] == [message.id] * 2
        last = await store.post("s", PostCancel())
        async with listening(log) as posts:
            assert [post.id for post in await taken(posts, 2)] == [message.id, last]
        await log.close()

    async def test_a_post_waits_for_a_session_that_is_not_there_yet(self, store: Store) -> None:
        post_id = await store.post("later", PostMessage(message=as_message("early")))
        assert list(await store.list()) == []
        await (await store.open("later", write=True)).close()
        log = await store.open("later", write=True)
        async with listening(log) as posts:
            assert [post.id for post in await taken(posts, 1)] == [post_id]
        await log.append(numbered(1, 1), 0)
        await log.close()

    async def test_a_post_wakes_a_listener(self, store: Store) -> None:
        log = await store.open("s", write=True)
        found: list[str] = []

        async def listen(*, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
            async with listening(log) as posts:
                task_status.started()
                found.extend(post.id for post in await taken(posts, 1))

        async with anyio.create_task_group() as group:
            await group.start(listen)
            sent = await store.post("s", PostCancel())
        assert found == [sent]
        await log.close()

    async def test_a_post_from_another_store_arrives(self, store: Store) -> None:
        if not store.capabilities.processes:
            with pytest.raises(Unsupported):
                self.another(store)
            return
        log = await store.open("s", write=True)
        async with self.another(store) as second, listening(log) as posts:
            sent = [await second.post("s", PostMessage(message=as_message("a"))), await second.post("s", PostCancel())]
            assert [post.id for post in await taken(posts, 2)] == sent
        await log.close()

    # --- forks ------------------------------------------------------------------------------------

    async def test_a_fork_begins_with_the_parents_prefix_and_goes_its_own_way(self, store: Store) -> None:
        await written(store, "parent", numbered(1, 4))
        await store.fork("parent", 2, "child")
        assert list(await stored(store, "child")) == numbered(1, 2)
        await written(store, "child", [noted("child", 3)], 2)
        await written(store, "parent", numbered(5, 5), 4)
        assert values(await stored(store, "child")) == [1, 2, "child"]
        assert values(await stored(store, "child", 1)) == [2, "child"]
        assert values(await stored(store, "child", 2)) == ["child"]
        assert values(await stored(store, "parent")) == [1, 2, 3, 4, 5]

    async def test_forks_of_forks_read_through_all_their_parents(self, store: Store) -> None:
        await written(store, "a", numbered(1, 4))
        await store.fork("a", 3, "b")
        await written(store, "b", [noted("b4", 4), noted("b5", 5)], 3)
        await store.fork("b", 4, "c")
        await written(store, "c", [noted("c5", 5)], 4)
        await store.fork("c", 2, "d")  # within what "c" itself inherited
        await written(store, "d", [noted("d3", 3)], 2)
        assert values(await stored(store, "c")) == [1, 2, 3, "b4", "c5"]
        assert values(await stored(store, "c", 3)) == ["b4", "c5"]
        assert values(await stored(store, "d")) == [1, 2, "d3"]
        assert [event.seq for event in await stored(store, "c")] == [1, 2, 3, 4, 5]

    async def test_a_tail_of_a_fork_begins_with_what_it_inherited(self, store: Store) -> None:
        await written(store, "parent", numbered(1, 2))
        await store.fork("parent", 2, "child")
        log = await store.open("child", write=True)
        await log.append([noted("child", 3)], 2)
        await log.sync()
        async with tailing(log) as events:
            assert values(await taken(events, 3)) == [1, 2, "child"]
        await log.close()

    async def test_a_fork_of_what_is_not_synced_is_refused(self, store: Store) -> None:
        await written(store, "parent", numbered(1, 2))
        for at_seq in (-1, 0, 3):
            with pytest.raises(UsageError):
                await store.fork("parent", at_seq, "child")
        with pytest.raises(NoSuchSession):
            await store.open("child", write=False)

    async def test_a_fork_onto_a_session_that_is_there_is_refused(self, store: Store) -> None:
        await written(store, "parent", numbered(1, 2))
        await written(store, "other", [noted("other")])
        for name in ("other", "parent"):
            with pytest.raises(UsageError, match=name):
                await store.fork("parent", 1, name)
        assert values(await stored(store, "other")) == ["other"]

    async def test_a_fork_of_an_open_session_does_not_disturb_its_writer(self, store: Store) -> None:
        log = await store.open("parent", write=True)
        await log.append(numbered(1, 2), 0)
        await log.sync()
        await store.post("parent", PostCancel())
        await store.fork("parent", 1, "child")
        await log.append(numbered(3, 3), 2)
        await log.close()
        child = await store.open("child", write=True)
        mine = await store.post("child", PostCancel())
        async with listening(child) as posts:  # and the parent's post is not the child's
            assert [post.id for post in await taken(posts, 1)] == [mine]
        await child.close()

    # --- archive and delete -------------------------------------------------------------------------

    async def test_an_archived_session_is_listed_apart_and_still_read(self, store: Store) -> None:
        await written(store, "old", numbered(1, 1))
        await written(store, "new", numbered(1, 1))
        await store.archive("old")
        assert [info.id for info in await store.list()] == ["new"]
        archived = await store.list(SessionFilter(archived=True))
        assert [(info.id, info.archived) for info in archived] == [("old", True)]
        assert list(await stored(store, "old")) == numbered(1, 1)
        await store.archive("old", False)
        assert {info.id for info in await store.list()} == {"old", "new"}

    async def test_a_deleted_session_is_gone_and_its_name_is_free(self, store: Store) -> None:
        await written(store, "s", numbered(1, 3))
        await written(store, "other", numbered(1, 1))
        await store.post("s", PostCancel())
        await store.delete("s")
        assert [info.id for info in await store.list()] == ["other"]
        with pytest.raises(NoSuchSession):
            await store.open("s", write=False)
        log = await store.open("s", write=True)
        await log.append([noted("anew")], 0)
        mine = await store.post("s", PostCancel())
        async with listening(log) as posts:
            assert [post.id for post in await taken(posts, 1)] == [mine]
        await log.close()
        assert values(await stored(store, "s")) == ["anew"]

    async def test_a_session_is_not_deleted_while_forks_refer_to_it(self, store: Store) -> None:
        await written(store, "a", numbered(1, 2))
        await store.fork("a", 1, "b")
        await store.fork("b", 1, "c")
        with pytest.raises(UsageError, match="b"):
            await store.delete("a")
        with pytest.raises(UsageError, match="c"):
            await store.delete("b")
        assert list(await stored(store, "c")) == numbered(1, 1)
        await store.delete("c")
        await store.delete("b")
        await store.delete("a")
        assert list(await store.list()) == []

    async def test_a_session_goes_with_its_forks_if_so_asked(self, store: Store) -> None:
        await written(store, "a", numbered(1, 2))
        await store.fork("a", 1, "b")
        await store.fork("b", 1, "c")
        await written(store, "other", numbered(1, 1))
        await store.delete("a", with_forks=True)
        assert [info.id for info in await store.list()] == ["other"]

    async def test_a_session_is_not_deleted_while_it_is_written(self, store: Store) -> None:
        await written(store, "a", numbered(1, 2))
        await store.fork("a", 1, "b")
        await store.fork("a", 1, "c")
        log = await store.open("c", write=True)
        with pytest.raises(SessionBusy):
            await store.delete("c")
        with pytest.raises(SessionBusy):
            await store.delete("a", with_forks=True)
        assert {info.id for info in await store.list()} == {"a", "b", "c"}  # all of it or nothing
        await log.append(numbered(2, 2), 1)
        await log.close()

    # --- lists ------------------------------------------------------------------------------------

    async def test_a_list_shows_the_newest_first(self, store: Store) -> None:
        for name, time in (("a", 30.0), ("b", 10.0), ("c", 20.0)):
            await written(store, name, [noted(1, time=time)])
        infos = await store.list()
        assert [(info.id, info.updated, info.head_seq) for info in infos] == [
            ("a", 30.0, 1),
            ("c", 20.0, 1),
            ("b", 10.0, 1),
        ]
        await written(store, "b", [noted(2, 2, time=40.0)], 1)
        assert [info.id for info in await store.list(SessionFilter(limit=2))] == ["b", "a"]

    async def test_title_labels_and_metadata_are_what_was_said_last(self, store: Store) -> None:
        said = [
            described_as(1, title="First", labels=("x", "y"), metadata={"k": 1}),
            described_as(2, title="Second"),
            described_as(3, labels=()),
        ]
        await written(store, "s", said)
        (info,) = await store.list()
        assert (info.title, info.labels, dict(info.metadata)) == ("Second", (), {"k": 1})

    async def test_a_fork_is_called_what_its_prefix_said(self, store: Store) -> None:
        said = [described_as(1, title="Before", labels=("x",)), described_as(2, title="After")]
        await written(store, "parent", said)
        await store.fork("parent", 1, "child")
        (child,) = await store.list(SessionFilter(parent="parent"))
        assert (child.id, child.title, child.labels) == ("child", "Before", ("x",))
        assert (child.parent, child.parent_seq, child.head_seq, child.updated) == ("parent", 1, 1, said[0].time)
        await written(store, "child", [described_as(2, title="Own")], 1)
        assert {info.id: info.title for info in await store.list()} == {"child": "Own", "parent": "After"}

    async def test_a_fork_of_a_fork_is_called_what_its_own_prefix_said(self, store: Store) -> None:
        await written(store, "a", [described_as(1, title="Before"), described_as(2, title="After")])
        await store.fork("a", 2, "b")
        await store.fork("b", 1, "c")
        infos = {info.id: (info.title, info.updated) for info in await store.list()}
        assert infos["b"] == ("After", 1_700_000_002.0)
        assert infos["c"] == ("Before", 1_700_000_001.0)

    async def test_a_list_is_filtered_by_all_labels_and_then_cut(self, store: Store) -> None:
        for number, labels in enumerate([("x",), ("x", "y"), ("y",), ("y", "x")]):
            await written(store, f"s{number}", [described_as(1, time=float(number), labels=labels)])
        ids = [info.id for info in await store.list(SessionFilter(labels=("x", "y")))]
        assert ids == ["s3", "s1"]
        assert [info.id for info in await store.list(SessionFilter(labels=("x",), limit=2))] == ["s3", "s1"]
        assert list(await store.list(SessionFilter(labels=("z",)))) == []

    async def test_odd_names_are_kept_apart(self, store: Store) -> None:
        names = [
            "a",
            "A",
            "a ",
            "ä",
            "a\u0308",
            "a/b",
            "a%2Fb",
            "'; drop table sessions; --",
            "日本",
            "a\nb",
            "x" * 500,
        ]
        for name in names:
            await written(store, name, [noted(name)])
        assert [values(await stored(store, name)) for name in names] == [[name] for name in names]
        assert {info.id for info in await store.list()} == set(names)

    # --- what a store may offer beside --------------------------------------------------------------

    async def test_a_transaction_holds_all_or_nothing(self, store: Store) -> None:
        if not store.capabilities.transaction:
            assert not hasattr(store, "transaction")
            return
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        with pytest.raises(ZeroDivisionError):
            async with store.transaction() as (_, dialect):  # type: ignore[attr-defined]
                assert dialect
                await store.post("s", PostCancel(cause="undone"))
                await log.append([noted("undone", 2)], 1)
                raise ZeroDivisionError
        assert list(await log.read()) == numbered(1, 1)
        async with store.transaction():  # type: ignore[attr-defined]
            kept = await store.post("s", PostCancel(cause="kept"))
            await log.append(numbered(2, 2), 1)
        assert list(await log.read()) == numbered(1, 2)
        async with listening(log) as posts:
            assert [post.id for post in await taken(posts, 1)] == [kept]
        await log.close()

    async def test_a_closed_store_may_be_closed_again(self, store: Store) -> None:
        await written(store, "s", numbered(1, 1))
        await store.close()
        await store.close()

    # --- size -------------------------------------------------------------------------------------

    @pytest.mark.slow
    async def test_ten_thousand_events_are_read_as_they_were_written(self, store: Store) -> None:
        log = await store.open("s", write=True)
        for first in range(1, 10_001, 100):
            await log.append(numbered(first, first + 99), first - 1)
        await log.sync()
        assert list(await log.read()) == numbered(1, 10_000)
        assert values(await log.read(9_998)) == [9_999, 10_000]
        async with tailing(log, 9_000) as events:
            assert values(await taken(events, 1_000)) == list(range(9_001, 10_001))
        await log.close()


__all__ = [
    "StoreKit", "listening", "noted", "numbered", "stored", "tailing", "taken", "values", "written",
]  # fmt: skip
