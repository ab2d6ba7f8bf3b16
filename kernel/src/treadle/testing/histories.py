"""What four methods must do to back sessions, as tests. A `History` passes by subclassing `HistoryKit`.

It asks less than `StoreKit`, because a store of four methods promises less; and it sees that the rest is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from treadle.adapter import AdaptedStore, History
from treadle.errors import Conflict, LeaseLost, NoSuchSession, SessionBusy, Unsupported, UsageError
from treadle.messages import Json
from treadle.store import PostCancel, SessionFilter
from treadle.testing.stores import described_as, every_core_event, noted, numbered, stored, values, written


@pytest.mark.anyio
class HistoryKit:
    """Subclass it, and give it a fixture `history` that has nothing in it.

    class TestMine(HistoryKit):
        @pytest.fixture
        def history(self, tmp_path):
            return Mine(tmp_path)
    """

    @pytest.fixture
    def history(self) -> History:
        """The four methods under test."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `history`.")

    @pytest.fixture
    async def store(self, history: History) -> AsyncIterator[AdaptedStore]:
        """A store of them."""
        store = AdaptedStore(history)
        yield store
        await store.close()

    async def test_events_come_back_in_order_and_without_gaps(self, store: AdaptedStore) -> None:
        log = await store.open("s", write=True)
        assert list(await log.read()) == []
        await log.append(numbered(1, 1), 0)
        await log.append(numbered(2, 4), 1)
        await log.sync()
        assert list(await log.read()) == numbered(1, 4)
        await log.close()
        assert list(await stored(store, "s", 2)) == numbered(3, 4)

    async def test_every_core_event_comes_back_as_it_was(self, store: AdaptedStore) -> None:
        await written(store, "s", every_core_event())
        assert list(await stored(store, "s")) == every_core_event()

    async def test_odd_values_survive(self, store: AdaptedStore) -> None:
        odd = {"nul\0": "a\0b", "high": "\ud800", "pair": "😀", "big": -(10**40), "e": [1e308, 0.1, None, True]}
        await written(store, "s", [noted(odd)])
        assert values(await stored(store, "s")) == [odd]

    async def test_a_history_outlives_the_store_over_it(self, store: AdaptedStore, history: History) -> None:
        await written(store, "s", numbered(1, 3))
        second = AdaptedStore(history)
        await written(second, "s", numbered(4, 4), 3)
        assert list(await stored(store, "s")) == numbered(1, 4)

    async def test_sessions_are_apart(self, store: AdaptedStore) -> None:
        for name in ("s", "t", "with/slash", "ä 😀"):
            await written(store, name, [noted(name)])
        assert values(await stored(store, "t")) == ["t"]
        assert {info.id for info in await store.list()} == {"s", "t", "with/slash", "ä 😀"}

    async def test_a_batch_that_is_not_json_is_refused_whole(self, store: AdaptedStore) -> None:
        log = await store.open("s", write=True)
        bad: Json
        for bad in (float("nan"), object(), {"a": {1}}):
            with pytest.raises(UsageError, match="kit/note"):
                await log.append([*numbered(1, 1), noted(bad, 2)], 0)
        assert list(await log.read()) == []
        await log.append(numbered(1, 1), 0)
        await log.close()

    async def test_an_append_at_the_wrong_seq_is_a_conflict(self, store: AdaptedStore) -> None:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 2), 0)
        with pytest.raises(Conflict):
            await log.append(numbered(2, 2), 1)
        assert list(await log.read()) == numbered(1, 2)
        await log.close()

    async def test_a_cancelled_append_is_done_or_not_done(self, store: AdaptedStore) -> None:
        log = await store.open("s", write=True)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.append(numbered(1, 2), 0)
        found = list(await log.read())
        assert found in ([], numbered(1, 2))
        await log.append(numbered(len(found) + 1, 3), len(found))
        assert list(await log.read()) == numbered(1, 3)
        await log.close()

    async def test_one_writer_a_session_in_this_process(self, store: AdaptedStore) -> None:
        log = await store.open("s", write=True)
        with pytest.raises(SessionBusy):
            await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        with pytest.raises(SessionBusy):
            await store.delete("s")
        await log.close()
        with pytest.raises(LeaseLost):
            await log.append(numbered(2, 2), 1)
        await (await store.open("s", write=True)).close()

    async def test_a_cleared_session_is_gone_and_its_name_is_free(self, store: AdaptedStore) -> None:
        await written(store, "s", numbered(1, 3))
        await written(store, "other", numbered(1, 1))
        await store.delete("s")
        assert [info.id for info in await store.list()] == ["other"]
        with pytest.raises(NoSuchSession):
            await store.open("s", write=False)
        await written(store, "s", [noted("anew")])
        assert values(await stored(store, "s")) == ["anew"]

    async def test_a_list_shows_the_newest_first_with_titles_and_labels(self, store: AdaptedStore) -> None:
        await written(store, "a", [described_as(1, time=10.0, title="A", labels=("x",))])
        await written(store, "b", [noted(1, time=20.0)])
        assert [(info.id, info.title, info.updated) for info in await store.list()] == [("b", "", 20), ("a", "A", 10)]
        assert [info.id for info in await store.list(SessionFilter(labels=("x",)))] == ["a"]
        assert list(await store.list(SessionFilter(archived=True))) == []

    async def test_what_four_methods_cannot_give_is_refused_by_name(self, store: AdaptedStore) -> None:
        await written(store, "s", numbered(1, 1))
        log = await store.open("s", write=False)
        for name, refused in (
            ("fork", store.fork("s", 1, "child")),
            ("post", store.post("s", PostCancel())),
            ("archive", store.archive("s")),
        ):
            with pytest.raises(Unsupported, match=name):
                await refused
        with pytest.raises(Unsupported, match="tail"):
            log.tail()
        offered = store.capabilities
        assert not (offered.processes or offered.hosts or offered.push or offered.transaction)
        assert list(await stored(store, "s")) == numbered(1, 1)


__all__ = ["HistoryKit"]
