"""Several real processes share one file."""

import os
import signal

import anyio
import pytest

from treadle.plugin import PostCancel, SessionBusy
from treadle.testing.stores import listening, noted, numbered, stored, tailing, taken, values, written

APPEND_FOR_EVER = """
log = await store.open("s", write=True)
for seq in range(1, 1_000_000):
    await log.append([noted(seq, seq)], seq - 1)
    say(seq)
"""


def killed_after(process, count):
    """The last number that the child said before it was killed; it is dead then, but not yet reaped."""
    for _ in range(count):
        last = process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    rest = process.stdout.read().splitlines()
    whole = [line for line in [last.strip(), *rest] if line]
    return int(whole[-1])


async def test_a_killed_writer_leaves_a_prefix_and_its_session_is_free_at_once(opened, child):
    said = killed_after(child(APPEND_FOR_EVER), 50)
    async with opened() as store:
        log = await store.open("s", write=True)
        found = await log.read()
        assert values(found) == list(range(1, len(found) + 1))
        assert len(found) in (said, said + 1)  # one may have been committed and not yet said
        await log.append([noted("on", len(found) + 1)], len(found))
        await log.close()


async def test_a_writer_killed_inside_a_transaction_leaves_nothing_of_it(opened, child):
    process = child("""
        log = await store.open("s", write=True)
        await log.append(numbered(1, 2), 0)
        async with store.transaction() as (connection, _):
            await log.append(numbered(3, 9), 2)
            say("inside")
            told()
    """)
    assert process.stdout.readline() == "inside\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    async with opened() as store:
        assert list(await stored(store, "s")) == numbered(1, 2)
        await written(store, "s", numbered(3, 3), 2)


async def test_of_four_processes_one_writes_and_the_others_are_told_who(opened, child, tell):
    fight = """
        told()
        try:
            log = await store.open("s", write=True)
        except SessionBusy as busy:
            say("busy", busy.holder)
            return
        say("won", os.getpid())
        for seq in range(1, 21):
            await log.append([noted(os.getpid(), seq)], seq - 1)
        told()
        await log.close()
    """
    processes = [child(fight) for _ in range(4)]
    for process in processes:
        tell(process)
    said = [process.stdout.readline().split(" ", 1) for process in processes]
    won = [int(rest) for word, rest in said if word == "won"]
    busy = [rest for word, rest in said if word == "busy"]
    assert len(won) == 1
    assert len(busy) == 3
    assert all(rest.startswith(f"process {won[0]} on ") for rest in busy)
    for process in processes:
        process.communicate("\n")
        assert process.returncode == 0
    async with opened() as store:
        assert values(await stored(store, "s")) == won * 20


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # eight starts of an interpreter are enough
async def test_eight_first_openings_at_once_all_succeed(opened, child, tell, tmp_path):
    make = """
        import sqlite_utils, treadle_sqlite.store, treadle.codec  # so that all begin together
        from treadle_sqlite import Sqlite
        treadle.codec.converter()
        for number in range(3):
            each = Sqlite().open_store(f"sqlite:///{sys.argv[1]}{number}")
            say("ready")
            told()
            log = await each.open(f"by {os.getpid()}", write=True)
            await log.append(numbered(1, 2), 0)
            await log.close()
            say("done")
            await each.close()
    """
    processes = [child(make) for _ in range(8)]
    for _ in range(3):
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * 8
        for process in processes:
            tell(process)
        assert [process.stdout.readline() for process in processes] == ["done\n"] * 8
    for number in range(3):
        async with opened(tmp_path / f"app.db{number}") as store:
            assert {info.id for info in await store.list()} == {f"by {process.pid}" for process in processes}


async def test_writers_of_different_sessions_do_not_disturb_each_other(opened, child, tell):
    write = """
        told()
        log = await store.open(f"by {os.getpid()}", write=True)
        for seq in range(1, 201):
            await log.append([noted(os.getpid(), seq)], seq - 1)
        await log.close()
        await store.close()
        say("done")
    """
    processes = [child(write) for _ in range(3)]
    for process in processes:
        tell(process)
    assert [process.stdout.readline() for process in processes] == ["done\n"] * 3
    async with opened() as store:
        for process in processes:
            assert values(await stored(store, f"by {process.pid}")) == [process.pid] * 200


async def test_a_tail_and_posts_cross_processes(opened, child):
    async with opened() as store:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        process = child("""
            reader = await store.open("s", write=False)
            async for event in reader.tail():
                say(event.seq)
                if event.seq == 3:
                    await reader.close()
            say(await store.post("s", PostCancel()))
        """)
        assert process.stdout.readline() == "1\n"
        await log.append(numbered(2, 3), 1)
        async with listening(log) as posts:
            (post,) = await taken(posts, 1)
        assert process.communicate()[0] == f"2\n3\n{post.id}\n"
        assert post.what == PostCancel()
        await log.close()


async def test_a_tail_follows_a_process_that_writes(opened, child):
    process = child("""
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        say("begun")
        told()
        await log.append(numbered(2, 200), 1)
        await log.close()
    """)
    assert process.stdout.readline() == "begun\n"
    async with opened() as store:
        reader = await store.open("s", write=False)
        async with tailing(reader) as events:
            assert await taken(events, 1) == numbered(1, 1)
            process.stdin.write("\n")
            process.stdin.flush()
            assert await taken(events, 199) == numbered(2, 200)


async def test_a_stopped_process_loses_its_session_after_its_time_and_writes_no_more(opened, child, tell):
    process = child("""
        store.settings = store.database.settings = Sqlite.Settings(lease_seconds=0.001)
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        say("open")
        told()
        try:
            await log.append(numbered(2, 2), 1)
        except LeaseLost:
            say("lost")
    """)
    assert process.stdout.readline() == "open\n"
    os.kill(process.pid, signal.SIGSTOP)
    async with opened() as store:
        with anyio.fail_after(10):
            while True:
                try:
                    log = await store.open("s", write=True)
                    break
                except SessionBusy:
                    await anyio.sleep(0.001)
        os.kill(process.pid, signal.SIGCONT)
        tell(process)
        assert process.stdout.readline() == "lost\n"
        await log.append([noted("mine", 2)], 1)
        assert values(await log.read()) == [1, "mine"]
        await log.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
async def test_a_store_carried_through_a_fork_refuses_instead_of_harming_the_file(opened):
    async with opened() as store:
        await written(store, "s", numbered(1, 1))
        reading, writing = os.pipe()
        pid = os.fork()  # bare, to be in the middle of the carried store
        if pid == 0:
            try:
                store.database.version()
                os.write(writing, b"no error")
            except Exception as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)  # noqa: ASYNC222 - it ends at once
        assert b"another process by a fork" in os.read(reading, 1000)
        os.close(reading)
        os.close(writing)
        assert list(await stored(store, "s")) == numbered(1, 1)
