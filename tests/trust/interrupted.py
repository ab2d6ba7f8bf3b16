"""A program that a person interrupts: one turn, on a session in SQLite, by one of three ways in.

`ENTRANCE WHERE DATABASE`: the way in is `asyncio`, `trio` or `sync`; it says "there" once it stands in the middle of an
async `tool`, of one in a `thread`, or of the `stream`, and waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from treadle import Agent, Stack, Tool
from treadle.model import Finish, Request, TextDelta
from treadle_script import ScriptModel, calls
from treadle_script import call as asked
from treadle_sqlite import Sqlite


def there() -> None:
    print("there", flush=True)


async def waits() -> str:
    there()
    await anyio.sleep_forever()
    raise AssertionError


def blocks() -> str:
    there()
    threading.Event().wait(0.2)
    return "it was not interrupted"


class Endless:
    """A model that says something and then nothing more."""

    ref, family, window_tokens = "endless:model", "endless", None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[object]]:
        async def pieces() -> AsyncIterator[object]:
            yield TextDelta("Once upon")
            there()
            await anyio.sleep_forever()
            yield Finish(finish="end")

        yield pieces()


def main(entrance: str, where: str, database: str) -> None:
    tools = [Tool(name="waits", call=waits), Tool(name="blocks", call=blocks)]
    model = Endless() if where == "stream" else ScriptModel([calls(asked("waits" if where == "tool" else "blocks"))])
    agent = Agent(model=model, tools=tools)
    stack = Stack([Sqlite()], store=f"sqlite:///{database}")

    async def run() -> None:
        await stack.run(agent, "hi", session="s")

    if entrance == "sync":
        stack.run_sync(agent, "hi", session="s")
    else:
        anyio.run(run, backend=entrance)


if __name__ == "__main__":
    main(*sys.argv[1:])
