"""Writes the golden files of a release, once: `python tests/stores/write_golden.py 0.1.0`. Later ones only read them.

Three forms of the same sessions: the export, the files of treadle-jsonl, and the tables of treadle-sqlite as SQL.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

import anyio

from treadle import Agent, Stack, tool
from treadle.events import Event, PluginData
from treadle.plugin import Defer, ProviderError, Store, export_sessions, hookimpl, import_sessions
from treadle.store import MemoryStore
from treadle_jsonl import Jsonl
from treadle_script import ScriptModel, call
from treadle_sqlite import Sqlite

GOLDEN = Path(__file__).with_name("golden")


@tool
def add(a: int, b: int) -> int:
    "Add two integers."
    return a + b


@tool
def fail() -> str:
    "Fail with an odd text."
    raise ValueError("a\0b \ud800")


class Notes:
    """A plugin that keeps events and edits; later readers do not have it."""

    @hookimpl
    def on_turn_stopping(self, context) -> None:
        context.note("seen", {"big": 10**30, "nul": "\0", "none": None})


class Asks:
    """Lets calls of `wipe` wait."""

    @hookimpl
    def before_tool(self, call):
        return Defer("a person decides") if call.name == "wipe" else None


@tool
def wipe() -> str:
    "Wipe."
    return "wiped"


async def fill(store: Store) -> None:
    """Sessions with calls, a failed model, a failed tool, a waiting call, names, an edit, plugin events and forks."""
    stack = Stack([Notes(), Asks()], store=store)
    sums = Agent(
        name="clerk", instructions="Use the tools.", model=ScriptModel([call("add", a=17, b=25), "42."]), tools=[add]
    )
    await stack.run(sums, "What is 17 plus 25?", session="sums")
    async with stack.open(Agent(model=ScriptModel([call("fail"), "It failed."]), tools=[fail]), "sums") as driver:
        await driver.prompt("Try the other one. 😀")
        await driver.label(title="Sums", labels=["numbers"], metadata={"k\0": ["x"]})
        items = driver.view.items

        async def shorten(context) -> None:
            context.edit(items[0].seq, items[3].seq, "We added 17 and 25: 42.", plugin="golden")

        await driver.maintain(shorten)
    broken = Agent(model=ScriptModel([ProviderError("bad_request", "the model is not well")]))
    await stack.run(broken, "Are you there?", session="failed")
    waits = Agent(model=ScriptModel([call("wipe")]), tools=[wipe])
    await stack.run(waits, "Wipe it.", session="waits")
    await stack.sessions(store).fork("sums", name="again")
    await stack.run(Agent(model=ScriptModel(["Gladly."])), "And now?", session="again")
    await store.archive("failed")
    log = await store.open("failed", write=True)
    head = len(await log.read())
    await log.append([Event(head + 1, 5.25, PluginData("gone/away", ["x"]), owner="gone", required=False)], head)
    await log.close()


async def main(version: str) -> None:
    folder = GOLDEN / version
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = MemoryStore()
    await fill(source)
    lines = [line async for line in export_sessions(source)]
    (folder / "export.jsonl").write_text("".join(f"{line}\n" for line in lines))
    jsonl = Jsonl().open_store(f"jsonl:{folder / 'jsonl'}")
    await import_sessions(jsonl, lines)
    await jsonl.close()
    # What is not the session itself is not kept here, but for the mark of the archived one.
    for extra in ("locks", "lock", "fresh"):
        path = folder / "jsonl" / ".treadle" / extra
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as place:
        sqlite = Sqlite().open_store(f"sqlite:///{place}/golden.db")
        await import_sessions(sqlite, lines)
        await sqlite.close()
        connection = sqlite3.connect(f"{place}/golden.db")
        (folder / "sqlite.sql").write_text("\n".join(connection.iterdump()) + "\n")
        connection.close()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
