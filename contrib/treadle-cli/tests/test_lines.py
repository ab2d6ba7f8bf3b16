from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import TextIO

import anyio
import pytest

from treadle_cli.lines import read_lines

Pipe = tuple[TextIO, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A stream to read from, and the descriptor to write to. The test closes that."""
    read, write = os.pipe()
    with open(read, encoding="utf-8") as stream:
        yield stream, write


async def test_lines_come_as_they_are_written(pipe: Pipe) -> None:
    stream, write = pipe
    async with read_lines(stream) as lines:
        os.write(write, b"eins\nzwe")
        assert await lines.take() == "eins"
        os.write(write, "i ü\r\n".encode())
        assert await lines.take() == "zwei ü"
        os.close(write)
        assert await lines.take() is None


async def test_a_last_line_without_its_end_is_a_line(pipe: Pipe) -> None:
    stream, write = pipe
    os.write(write, b"one\ntwo")
    os.close(write)
    async with read_lines(stream) as lines:
        assert [await lines.take(), await lines.take(), await lines.take()] == ["one", "two", None]


async def test_a_line_that_was_peeked_at_is_not_lost_when_the_wait_is_cancelled(pipe: Pipe) -> None:
    stream, write = pipe
    async with read_lines(stream) as lines:
        with anyio.move_on_after(0):
            await lines.peek()
        os.write(write, b"kept\n")
        assert await lines.peek() == "kept"
        assert await lines.take() == "kept"
    os.close(write)


async def test_leaving_does_not_wait_for_a_line(pipe: Pipe) -> None:
    stream, write = pipe
    with anyio.fail_after(10):
        async with read_lines(stream):
            pass
    os.close(write)


async def test_a_stream_in_memory_has_lines_too() -> None:
    async with read_lines(io.StringIO("a\nb\n")) as lines:
        assert [await lines.take(), await lines.take(), await lines.take()] == ["a", "b", None]
