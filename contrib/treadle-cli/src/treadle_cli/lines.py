"""Lines of standard input as they come, while the event loop does other work.

Read on a thread of its own, with `select` and `os.read`: a buffered read cannot be abandoned, and would hold the
interpreter up at exit until somebody presses Enter.
"""

from __future__ import annotations

import codecs
import os
import select
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Thread
from typing import TextIO

import anyio
import anyio.to_thread
from anyio import CancelScope
from anyio.from_thread import BlockingPortal


class Lines:
    """What was typed and not taken yet. A line that is peeked at and not taken is not lost."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._news = anyio.Event()
        self.ended = False

    def put(self, line: str | None) -> None:
        """Add a line; None is the end."""
        if line is None:
            self.ended = True
        else:
            self._lines.append(line)
        self._news.set()
        self._news = anyio.Event()

    async def peek(self) -> str | None:
        """Wait for the next line and leave it; None at the end of the input."""
        while not self._lines:
            if self.ended:
                return None
            await self._news.wait()
        return self._lines[0]

    def drop(self) -> None:
        """Take the line that was peeked at."""
        self._lines.popleft()

    async def take(self) -> str | None:
        """Wait for the next line and take it; None at the end of the input."""
        line = await self.peek()
        if line is not None:
            self.drop()
        return line


@asynccontextmanager
async def read_lines(stream: TextIO) -> AsyncIterator[Lines]:
    """The lines of `stream` for as long as the block lasts. What comes later stays unread."""
    lines = Lines()
    async with BlockingPortal() as portal:

        def put(line: str | None) -> None:
            try:
                portal.call(lines.put, line)
            except RuntimeError:  # the block was left meanwhile
                raise _Left from None

        wake_read, wake_write = os.pipe()
        thread = Thread(target=_read, args=(stream, wake_read, put), daemon=True, name="treadle lines")
        thread.start()
        try:
            yield lines
        finally:
            os.write(wake_write, b".")
            with CancelScope(shield=True):
                if sys.platform != "win32":  # there the thread may sit in a read until the process ends
                    await anyio.to_thread.run_sync(thread.join)
            os.close(wake_write)
            os.close(wake_read)


class _Left(Exception):
    pass


def _read(stream: TextIO, wake: int, put: Callable[[str | None], None]) -> None:
    try:
        try:
            descriptor = stream.fileno()
        except (OSError, AttributeError, ValueError):
            descriptor = -1  # a stream in memory
        if descriptor < 0 or sys.platform == "win32":
            for line in stream:
                put(line.rstrip("\r\n"))
        else:
            _read_descriptor(descriptor, wake, put)
        put(None)
    except _Left:
        return


def _read_descriptor(descriptor: int, wake: int, put: Callable[[str | None], None]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    rest = ""
    while True:
        ready, _, _ = select.select([descriptor, wake], [], [])
        if wake in ready:
            raise _Left
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # a terminal that went away
            data = b""
        text = rest + decoder.decode(data, final=not data)
        *whole, rest = text.split("\n")
        for line in whole:
            put(line.removesuffix("\r"))
        if not data:
            if rest:
                put(rest)
            return
