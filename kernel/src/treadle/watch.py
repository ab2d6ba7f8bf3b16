"""Watching a session: events and deltas for any number of watchers, none of whom can slow a turn."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeAlias, Union

import anyio
import attrs

from .events import Event
from .hooks import Delta

Item: TypeAlias = Union[Event, Delta]


class Watched(Protocol):
    """What a watch needs of the driver."""

    @property
    def seq(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    async def read(self, after_seq: int = 0) -> Sequence[Event]:
        """The log's events after `after_seq`."""
        ...

    def unwatch(self, watch: Watch) -> None:
        """Forget a watch."""
        ...


class Watch:
    """Events and deltas of a session as they come, for one watcher. An async iterator and a context manager.

    A slow watcher never slows the turn: deltas that were not fetched yet are joined, and what was logged can always be
    read again from the log. Closing it ends nothing.
    """

    LAG = 1000

    def __init__(self, driver: Watched, after_seq: int | None) -> None:
        self._driver, self._after = driver, after_seq
        self._items: deque[Item] = deque()
        self._more: list[str] = []  # texts that continue the last item, a delta
        self._news: anyio.Event | None = None
        self._behind = after_seq is not None and after_seq < driver.seq
        self.closed = False

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching. Safe to call twice."""
        self.closed = True
        self._driver.unwatch(self)
        self._wake()

    def take(self, item: Item) -> None:
        """Called by the driver for each item, in order; never waits."""
        items = self._items
        if isinstance(item, Delta):
            if len(items) > self.LAG and _continues(items[-1], item):
                self._more.append(item.text)
            else:
                self._join()
                items.append(item)
        elif self._behind:
            return
        elif len(items) > 8 * self.LAG:
            items.clear()
            self._more.clear()
            self._behind = True
        else:
            self._join()
            items.append(item)
        if self._news is not None:
            self._wake()

    def _join(self) -> None:
        """Give the last delta the texts that continue it. All at once: one by one would copy it each time."""
        if self._more:
            last = self._items[-1]
            assert isinstance(last, Delta)
            self._items[-1] = attrs.evolve(last, text="".join([last.text, *self._more]))
            self._more.clear()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        while True:
            if self._after is not None and (self._behind or not self._items) and await self._caught_up():
                continue
            if self._items:
                if len(self._items) == 1:
                    self._join()
                item = self._items.popleft()
                if isinstance(item, Event):
                    if self._after is not None and item.seq <= self._after:
                        continue
                    self._after = item.seq
                return item
            if self.closed or self._driver.closed:
                raise StopAsyncIteration
            if self._news is None:
                self._news = anyio.Event()
            await self._news.wait()

    async def _caught_up(self) -> bool:
        """Fetch from the log what this watcher has not seen; False if there was nothing."""
        assert self._after is not None
        if self._driver.seq <= self._after or (self._items and not self._behind):
            return False
        self._behind = False
        missing = await self._driver.read(self._after)
        self._items.extendleft(reversed(missing))  # what came while reading follows; seqs seen twice are skipped
        return bool(missing)


def _continues(last: Item, delta: Delta) -> bool:
    """Whether a delta goes on where the last item ended."""
    return isinstance(last, Delta) and (last.kind, last.step, last.attempt, last.key, last.call) == (
        delta.kind, delta.step, delta.attempt, delta.key, delta.call
    )  # fmt: skip
