"""Ctrl-C and a polite kill as requests, never as an exception in the middle of a write.

While `listening()` is entered a signal only asks: what it asks for is set by whoever works. So no number of signals can
split an append or skip what closes a log.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio import CancelScope

PATIENCE = 3
"""Signals after which a process whose logs are closed is ended at once."""


class Interrupts:
    """What signals asked for so far. `code` is the exit code they call for, 0 without any."""

    def __init__(self) -> None:
        self.times = 0
        self.code = 0
        self.scope = CancelScope()
        self.asked: Callable[[], None] = self.scope.cancel
        self.closed: Callable[[], bool] = lambda: False

    def take(self, number: int) -> None:
        """One signal came."""
        self.times += 1
        self.code = self.code or 128 + number
        if self.times > PATIENCE and self.closed():
            sys.stdout.flush()
            os._exit(self.code)
        self.asked()


@asynccontextmanager
async def listening() -> AsyncIterator[Interrupts]:
    """Take SIGINT and SIGTERM. By default one cancels the body, which then ends quietly; see `code`."""
    interrupts = Interrupts()
    async with anyio.create_task_group() as group:
        await group.start(_listen, interrupts)
        with interrupts.scope:
            yield interrupts
        group.cancel_scope.cancel()


async def _listen(
    interrupts: Interrupts, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    try:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                interrupts.take(number)
    except NotImplementedError:  # asyncio on Windows: there Ctrl-C cancels the main task, which closes the log too
        task_status.started()
        await anyio.sleep_forever()
