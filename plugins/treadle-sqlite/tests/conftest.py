"""Every async test of this plugin runs on both event loops, on real files."""

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from textwrap import dedent, indent

import pytest

from treadle_sqlite import Sqlite


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def file(tmp_path):
    """Where the sessions of a test are kept."""
    return tmp_path / "app.db"


@pytest.fixture
def opened(file):
    """Opens a store on the test's file; each call is what another process would have."""

    @asynccontextmanager
    async def open_store(path=file, **settings):
        settings = {"poll_seconds": 0.005, **settings}
        store = Sqlite(Sqlite.Settings(**settings)).open_store(f"sqlite:///{path}")
        try:
            yield store
        finally:
            await store.close()

    return open_store


CHILD = """
import os, sys
import anyio
from treadle.plugin import *
from treadle_sqlite import Sqlite

store = Sqlite(Sqlite.Settings(poll_seconds=0.005)).open_store("sqlite:///" + sys.argv[1])

def say(*words):
    print(*words, flush=True)

def told():
    return sys.stdin.readline().strip()

def noted(value, seq=1):  # as in treadle.testing.stores, which costs a second to import
    return Event(seq, 1_700_000_000.5, PluginData("kit/note", value), owner="kit", required=False)

def numbered(first, last):
    return [noted(seq, seq) for seq in range(first, last + 1)]
"""


@pytest.fixture
def child(file, anyio_backend):
    """Starts real processes that have `store`, `say` and `told`; ends those that a test left."""
    started = []

    def start(script):
        body = indent(dedent(script), "    ")
        source = f"{CHILD}\nasync def main():\n{body}\nanyio.run(main, backend={anyio_backend!r})\n"
        process = subprocess.Popen(
            [sys.executable, "-c", source, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def tell(process, word=""):
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


@pytest.fixture(name="tell")
def _tell():
    """Sends a line to a child that waits for it."""
    return tell
