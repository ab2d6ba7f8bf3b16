"""Several real processes share one folder."""

import os
import signal
import subprocess
import sys
from textwrap import dedent, indent

import pytest

from treadle.plugin import SessionBusy
from treadle.testing.stores import noted, numbered, stored, values, written

CHILD = """
import os, sys
import anyio
from treadle.plugin import *
from treadle_jsonl import Jsonl

store = Jsonl(Jsonl.Settings(poll_seconds=0.005)).open_store("jsonl:" + sys.argv[1])

def say(*words):
    print(*words, flush=True)

def noted(value, seq=1):
    return Event(seq, 1_700_000_000.5, PluginData("kit/note", value), owner="kit", required=False)
"""


@pytest.fixture
def child(folder, anyio_backend):
    """Starts real processes; ends those that a test left."""
    started = []

    def start(script):
        source = (
            f"{CHILD}\nasync def main():\n{indent(dedent(script), '    ')}\nanyio.run(main, backend={anyio_backend!r})"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", source, str(folder)],
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


async def test_a_killed_writer_leaves_a_prefix_and_its_session_is_free_at_once(opened, child):
    process = child("""
        log = await store.open("s", write=True)
        for seq in range(1, 1_000_000):
            await log.append([noted(seq, seq)], seq - 1)
            say(seq)
    """)
    for _ in range(50):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    said = int(process.stdout.read().rpartition("\n")[0].rpartition("\n")[2] or 50)
    async with opened() as store:
        log = await store.open("s", write=True)
        found = values(await log.read())
        assert found == list(range(1, len(found) + 1))
        assert len(found) in (said, said + 1)  # one may have been written and not yet said
        await log.append([noted("on", len(found) + 1)], len(found))
        await log.close()


async def test_another_process_is_told_who_holds_a_session(opened, child):
    process = child("""
        log = await store.open("s", write=True)
        await log.append([noted(1)], 0)
        say("open")
        sys.stdin.readline()
        await log.close()
        say("closed")
        sys.stdin.readline()
    """)
    assert process.stdout.readline() == "open\n"
    async with opened() as store:
        with pytest.raises(SessionBusy, match=f"process {process.pid} on "):
            await store.open("s", write=True)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "closed\n"
        await written(store, "s", numbered(2, 2), 1)
        assert values(await stored(store, "s")) == [1, 2]


async def test_posts_of_many_processes_all_arrive(opened, child):
    posters = [child('for _ in range(20):\n    say(await store.post("s", PostCancel()))') for _ in range(3)]
    said = [line for process in posters for line in process.communicate()[0].split()]
    async with opened() as store:
        log = await store.open("s", write=True)
        found = [post.id for post in log._posts.pending()]
        assert sorted(found) == sorted(said)
        assert len(found) == 60
        await log.close()
