"""The session that the kill matrix kills, and the process it dies in.

The process imports all it needs once. For each line `BACKEND DURABILITY DATABASE WITNESS` on its input it forks, and
the fork plays the whole session. At every append, barrier and tool boundary the fork says where it stands and waits for
a word; whoever reads may kill it there instead.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import anyio

from treadle import Agent, Allow, CallContext, Stack, Tool
from treadle.store import Store
from treadle.testing import Stepper
from treadle_script import ScriptModel, call, calls
from treadle_sqlite import Sqlite

ANY = {"type": "object"}


def witnessed(path: str, line: str) -> None:
    """Write a line that survives the process."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def tools(witness: str) -> list[Tool]:
    """Parallel and exclusive, once and safe; each says in the witness file that it began, and that it is done."""

    async def body(name: str, context: CallContext) -> str:
        witnessed(witness, f"begun {name} {context.key}")
        await anyio.lowlevel.checkpoint()
        if name == "a" and context.deps is not None:
            await context.deps()
        witnessed(witness, f"done {name} {context.key}")
        return f"{name} is done"

    def made(name: str, **given: object) -> Tool:
        async def call(context: CallContext) -> str:
            return await body(name, context)

        return Tool(name=name, call=call, parameters=ANY, **given)

    return [
        made("a"),
        made("safe", replay="idempotent"),
        made("alone", exclusive=True),
        made("pay", needs_approval=True),
    ]


def lines() -> list[object]:
    return [
        calls(call("a"), call("safe"), call("alone")),
        "steered",
        calls(call("pay"), call("safe")),
        "paid",
        calls(call("alone"), call("a")),
        "three",
        "four",
    ]


def said(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Announced(Stepper):
    """Says each effect to whoever watches, and waits for their word."""

    def __init__(self) -> None:
        super().__init__(hold={"append", "sync", "tool"})
        self.appended = self.synced = 0

    async def cross(self, kind: str, name: str = "") -> None:
        if kind in ("append", "sync", "tool"):
            said("at", self.appended, self.synced, kind, name)
            while os.read(0, 1) != b"\n":
                pass


class Recorded:
    """A store that remembers how far its log was appended and synced."""

    def __init__(self, store: Store, announced: Announced) -> None:
        self._store, self._announced = store, announced

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def open(self, session_id: str, write: bool) -> object:
        log, announced = await self._store.open(session_id, write), self._announced
        append, sync = log.append, log.sync

        async def appended(events: object, expected_seq: int) -> None:
            await append(events, expected_seq)
            announced.appended = events[-1].seq

        async def synced() -> None:
            before = announced.appended
            await sync()
            announced.synced = max(announced.synced, before)

        log.append, log.sync = appended, synced
        return log


async def play(durability: str, database: str, witness: str) -> None:
    """The session: five turns with parallel, exclusive, safe and approved calls, a steer, and a queue of two."""
    announced = Announced()
    store = Sqlite(Sqlite.Settings(durability=durability)).open_store(f"sqlite:///{database}")
    stack = Stack(store=announced.store(Recorded(store, announced)))
    agent = announced.agent(Agent(model=ScriptModel(lines()), tools=tools(witness)))

    async def put(how: object, text: str) -> object:
        receipt = await how(text)
        said("accepted", receipt.id)
        return receipt

    async def steer() -> None:
        if driver.view.items[-1].message.text == "":  # only in the first turn's step
            await put(driver.steer, "steer")

    async with stack.open(agent, "s", deps=steer) as driver:
        await (await put(driver.follow_up, "one")).result()
        waiting = (await (await put(driver.follow_up, "two")).result()).waiting
        await (await driver.decide({each.id: Allow() for each in waiting})).result()
        await put(driver.follow_up, "three")
        await (await put(driver.follow_up, "four")).result()
    await store.close()


def main() -> None:
    while line := sys.stdin.buffer.raw.readline():  # unbuffered: what follows the line is for the fork
        backend, durability, database, witness = line.decode().split()
        child = os.fork()
        if not child:
            said("pid", os.getpid())
            anyio.run(partial(play, durability, database, witness), backend=backend)
            said("over")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        said("gone", status)


if __name__ == "__main__":
    import trio  # noqa: F401 - loaded once, before the forks

    said("ready")
    main()
