"""A driver's session on a screen: the task between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from treadle import Driver, Event
from treadle.plugin import TurnEnd

from .screen import Screen


class Show:
    """Shows what the driver's session does from now on. If stdout goes away the turn is cancelled, not torn."""

    def __init__(self, screen: Screen, driver: Driver) -> None:
        self.screen, self.driver = screen, driver
        self.broken = False
        self.end: TurnEnd | None = None  # how the last turn that was shown ended
        self._seq = driver.seq
        self._over = False
        self._news = anyio.Event()
        self._watch = driver.watch(after_seq=driver.seq)

    async def run(self) -> None:
        """Show item by item until the driver closes."""
        try:
            async for item in self._watch:
                self._show(item)
                if isinstance(item, Event):
                    self._seq = item.seq
                    self.end = item.data if isinstance(item.data, TurnEnd) else self.end
                    self._tell()
        finally:
            self._over = True
            self._watch.close()
            self._tell()

    def _show(self, item: object) -> None:
        if self.broken:
            return
        try:
            self.screen.show(item)  # type: ignore[arg-type]
        except BrokenPipeError:
            self.broken = True
            self.driver.cancel("all", cause="the output was closed")

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def caught_up(self) -> None:
        """Wait until everything that is in the log by now was shown."""
        while self._seq < self.driver.seq and not self._over:
            await self._news.wait()


@asynccontextmanager
async def showing(screen: Screen, driver: Driver) -> AsyncIterator[Show]:
    """Show a driver's session for as long as the block lasts."""
    show = Show(screen, driver)
    async with anyio.create_task_group() as group:
        group.start_soon(show.run)
        try:
            yield show
        finally:
            group.cancel_scope.cancel()
