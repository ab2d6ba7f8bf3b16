"""Who holds a session, for how long, and how a dead holder is told from a silent one."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import anyio.lowlevel
import anyio.to_thread
import attrs
import pytest

from treadle.plugin import LeaseLost, SessionBusy
from treadle.testing.stores import numbered, written
from treadle_sqlite import Sqlite
from treadle_sqlite.holder import Holder, this_process

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a process started")


def test_a_holder_is_named_by_process_and_host():
    assert str(Holder(host="box", pid=42)) == "process 42 on box"
    assert str(this_process()) == f"process {os.getpid()} on {this_process().host} (this process)"


def test_a_holder_survives_as_text():
    assert Holder.from_text(this_process().to_text()) == this_process()


def test_the_running_process_is_not_dead():
    assert not this_process().is_dead()


@LINUX
def test_an_ended_process_is_dead_before_and_after_it_is_reaped():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        holder = attrs.evolve(this_process(), pid=process.pid, started=started)
        assert not holder.is_dead()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert holder.is_dead()
    assert holder.is_dead()


@LINUX
def test_a_later_process_of_the_same_number_is_not_the_holder():
    assert attrs.evolve(this_process(), started=this_process().started - 1).is_dead()


@pytest.mark.parametrize("elsewhere", [{"boot": "other"}, {"namespace": "pid:[1]"}, {"started": 0}], ids=str)
def test_a_process_that_cannot_be_seen_from_here_is_not_called_dead(elsewhere):
    gone = {"pid": 2**22 + 1, "started": 1}
    assert not attrs.evolve(this_process(), **(gone | elsewhere)).is_dead()


async def lease(store, session_id):
    return store.database.read(
        "select lease_token, lease_ends, lease_holder from sessions where id = ?", (session_id,)
    )[0]


async def held_by(store, session_id, holder, ends=32e9):
    """As if that process had opened the session."""
    await written(store, session_id, numbered(1, 1))
    async with store.transaction() as (connection, _):
        connection.execute("update sessions set lease_holder = ?, lease_ends = ?", (holder, ends))


async def test_a_lease_says_who_holds_it(opened):
    async with opened() as store:
        log = await store.open("s", write=True)
        token, ends, holder = await lease(store, "s")
        assert (token, json.loads(holder)["pid"]) == (1, os.getpid())
        assert ends > time.time()
        await log.append(numbered(1, 1), 0)
        await log.close()
        assert await lease(store, "s") == (1, None, None)


async def test_a_session_held_on_another_host_is_busy_until_its_time_is_over(opened):
    away = Holder(host="far", pid=7, boot="b", namespace="n", started=3)
    async with opened() as store:
        await held_by(store, "s", away.to_text())
        with pytest.raises(SessionBusy) as caught:
            await store.open("s", write=True)
        assert caught.value.holder == "process 7 on far"
        await held_by_until(store, 1.0)
        await (await store.open("s", write=True)).close()


async def held_by_until(store, ends):
    async with store.transaction() as (connection, _):
        connection.execute("update sessions set lease_ends = ?", (ends,))


@LINUX
async def test_a_session_held_by_a_dead_process_of_this_host_is_free_at_once(opened):
    dead = attrs.evolve(this_process(), pid=2**22 + 1)  # above the highest number Linux gives
    async with opened() as store:
        await held_by(store, "s", dead.to_text())
        log = await store.open("s", write=True)
        assert (await lease(store, "s"))[0] == 2
        await log.close()


async def test_a_holder_that_a_later_release_wrote_is_respected(opened):
    async with opened() as store:
        await held_by(store, "s", '{"node": "x"}')
        with pytest.raises(SessionBusy, match="node"):
            await store.open("s", write=True)


async def test_an_append_renews_the_lease(opened):
    async with opened() as store:
        log = await store.open("s", write=True)
        await held_by_until(store, 1.0)
        await log.append(numbered(1, 1), 0)
        async with opened() as second:
            with pytest.raises(SessionBusy):
                await second.open("s", write=True)
        await log.close()


async def test_an_open_stack_renews_the_leases_of_idle_writers(file):
    plugin = Sqlite(Sqlite.Settings(lease_seconds=0.03))
    store = plugin.open_store(f"sqlite:///{file}")
    async with plugin.lifespan(stack=None):
        log = await store.open("s", write=True)
        first = await lease(store, "s")
        with anyio.fail_after(10):
            while await lease(store, "s") == first:
                await anyio.lowlevel.checkpoint()
        token, ends, _ = await lease(store, "s")
        assert token == first[0]
        assert ends > first[1]
        await log.close()
    await store.close()


async def test_renewing_brings_no_lost_lease_back(opened):
    async with opened() as store, opened() as second:
        stale = await store.open("s", write=True)
        await held_by_until(store, 1.0)
        log = await second.open("s", write=True)
        mine = await lease(second, "s")
        await store.renew_leases()
        assert await lease(second, "s") == mine
        with pytest.raises(LeaseLost):
            await stale.append(numbered(1, 1), 0)
        await log.append(numbered(1, 1), 0)
        await log.close()


async def test_a_renewal_that_finds_the_file_locked_waits_for_the_next(opened, file):
    async with opened(busy_seconds=0.01) as store:
        log = await store.open("s", write=True)
        before = await lease(store, "s")
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("begin immediate")
            await store.renew_leases()
            assert await lease(store, "s") == before
            other.execute("rollback")
        await store.renew_leases()
        assert (await lease(store, "s"))[1] > before[1]
        await log.close()


async def test_a_stack_on_another_event_loop_does_not_touch_the_store(opened, anyio_backend):
    async with opened() as store:
        log = await store.open("s", write=True)
        before = await lease(store, "s")
        await anyio.to_thread.run_sync(lambda: anyio.run(store.renew_leases, backend=anyio_backend))
        assert await lease(store, "s") == before
        await store.renew_leases()
        assert (await lease(store, "s"))[1] > before[1]
        await log.close()
