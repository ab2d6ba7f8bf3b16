"""Other plugins' tables in the same commit."""

import sqlite3

import anyio
import anyio.lowlevel
import pytest

from treadle.plugin import PostCancel, StoreFault, UsageError
from treadle.testing.stores import listening, noted, numbered, stored, taken, values, written


async def make_table(store):
    async with store.transaction() as (connection, dialect):
        assert dialect == "sqlite"
        connection.execute("create table runs (id text primary key, status text)")


def runs(store):
    return store.database.read("select id, status from runs order by id")


@pytest.fixture(params=["normal", "full"])
def durability(request):
    return request.param


async def test_rows_and_posts_commit_together(opened, durability):
    async with opened(durability=durability) as store:
        await make_table(store)
        async with store.transaction() as (connection, _):
            connection.execute("insert into runs values ('r1', 'WAITING')")
            post_id = await store.post("s", PostCancel())
        log = await store.open("s", write=True)
        async with listening(log) as posts:
            assert [post.id for post in await taken(posts, 1)] == [post_id]
        assert runs(store) == [("r1", "WAITING")]
        await log.close()


async def test_whatever_is_raised_undoes_all_of_it(opened, durability):
    async with opened(durability=durability) as store:
        await make_table(store)
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        with pytest.raises(sqlite3.IntegrityError):
            async with store.transaction() as (connection, _):
                connection.execute("insert into runs values ('r1', 'WAITING')")
                await log.append(numbered(2, 2), 1)
                await store.fork("s", 1, "child")
                connection.execute("insert into runs values ('r1', 'AGAIN')")
        assert runs(store) == []
        assert list(await log.read()) == numbered(1, 1)
        assert [info.id for info in await store.list()] == ["s"]
        await log.append(numbered(2, 2), 1)
        await log.close()


async def test_a_cancel_undoes_it(opened, durability):
    async with opened(durability=durability) as store:
        await make_table(store)
        with anyio.CancelScope() as scope:
            async with store.transaction() as (connection, _):
                connection.execute("insert into runs values ('r1', 'WAITING')")
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert runs(store) == []
        await written(store, "s", numbered(1, 1))


async def test_inside_it_the_store_shows_what_was_written_and_outside_not_yet(opened):
    async with opened() as store, opened() as second:
        await written(store, "s", numbered(1, 1))
        async with store.transaction():
            log = await store.open("s", write=True)
            await log.append(numbered(2, 2), 1)
            assert list(await log.read()) == numbered(1, 2)
            assert list(await stored(second, "s")) == numbered(1, 1)
            await log.close()
        assert list(await stored(second, "s")) == numbered(1, 2)


async def test_one_inside_another_is_undone_alone(opened, durability):
    async with opened(durability=durability) as store:
        await make_table(store)
        async with store.transaction() as (connection, _):
            connection.execute("insert into runs values ('outer', '')")
            with pytest.raises(ZeroDivisionError):
                async with store.transaction() as (inner, _):
                    inner.execute("insert into runs values ('inner', '')")
                    raise ZeroDivisionError
            async with store.transaction() as (inner, _):
                inner.execute("insert into runs values ('kept', '')")
        assert runs(store) == [("kept", ""), ("outer", "")]


async def test_a_body_that_commits_by_itself_is_told(opened):
    async with opened() as store:
        with pytest.raises(UsageError, match="ended the transaction itself"):
            async with store.transaction() as (connection, _):
                connection.executescript("create table runs (id text)")


async def test_a_file_locked_by_another_is_a_store_fault(opened, file):
    async with opened(busy_seconds=0.01) as store:
        await make_table(store)
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("begin immediate")
        with pytest.raises(StoreFault, match="another process kept the file"):
            async with store.transaction():
                raise AssertionError("never entered")
        other.close()


async def suspended_in_a_transaction(store, entered, go_on, after):
    async with store.transaction() as (connection, _):
        connection.execute("insert into runs values ('r1', 'WAITING')")
        entered.set()
        await go_on.wait()
        await after(connection)


async def nothing(connection):
    pass


async def a_statement(connection):
    connection.execute("insert into runs values ('r2', 'alone')")


@pytest.mark.parametrize("after", [nothing, a_statement])
async def test_an_append_never_waits_so_it_undoes_a_suspended_transaction(opened, after):
    async with opened() as store:
        await make_table(store)
        log = await store.open("s", write=True)
        entered, go_on = anyio.Event(), anyio.Event()
        refused = []

        async def body():
            with pytest.raises(UsageError, match="was undone") as caught:
                await suspended_in_a_transaction(store, entered, go_on, after)
            refused.append(caught.value)

        async with anyio.create_task_group() as group:
            group.start_soon(body)
            await entered.wait()
            with pytest.raises(StopIteration):
                log.append(numbered(1, 1), 0).send(None)
            go_on.set()
        assert len(refused) == 1
        assert runs(store) == []
        assert list(await log.read()) == numbered(1, 1)
        await log.close()


async def test_what_a_broken_body_does_through_the_store_does_not_stand_alone(opened):
    async with opened() as store:
        await make_table(store)
        log = await store.open("s", write=True)
        entered, go_on = anyio.Event(), anyio.Event()

        async def post(connection):
            await store.post("s", PostCancel(cause="alone"))

        async def body():
            with pytest.raises(UsageError, match="was undone"):
                await suspended_in_a_transaction(store, entered, go_on, post)

        async with anyio.create_task_group() as group:
            group.start_soon(body)
            await entered.wait()
            await log.append(numbered(1, 1), 0)
            go_on.set()
        assert store.database.read("select count(*) from posts") == [(0,)]
        await log.close()


async def test_posts_and_openings_of_other_tasks_wait_for_it(opened, durability):
    async with opened(durability=durability) as store:
        await make_table(store)
        entered, go_on = anyio.Event(), anyio.Event()
        order = []

        async def others():
            await store.post("s", PostCancel())
            order.append("posted")

        async def after(connection):
            order.append("body ends")

        async with anyio.create_task_group() as group:
            group.start_soon(suspended_in_a_transaction, store, entered, go_on, after)
            await entered.wait()
            group.start_soon(others)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert order == ["body ends", "posted"]
        assert runs(store) == [("r1", "WAITING")]


async def test_with_full_durability_appends_of_other_tasks_wait_for_it(opened):
    async with opened(durability="full") as store:
        await make_table(store)
        log = await store.open("s", write=True)
        entered, go_on = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(suspended_in_a_transaction, store, entered, go_on, nothing)
            await entered.wait()
            group.start_soon(log.append, [noted("waited")], 0)
            await anyio.wait_all_tasks_blocked()
            assert list(await log.read()) == []
            go_on.set()
        assert runs(store) == [("r1", "WAITING")]
        assert values(await log.read()) == ["waited"]
        await log.close()


async def test_transactions_of_two_files_do_not_mix(opened, tmp_path):
    async with opened() as one, opened(tmp_path / "other.db") as other:
        await make_table(one)
        await make_table(other)
        with pytest.raises(ZeroDivisionError):
            async with one.transaction() as (first, _):
                first.execute("insert into runs values ('one', '')")
                async with other.transaction() as (second, _):
                    second.execute("insert into runs values ('other', '')")
                    await one.post("s", PostCancel())
                raise ZeroDivisionError
        assert (runs(one), runs(other)) == ([], [("other", "")])
        assert one.database.read("select count(*) from posts") == [(0,)]
