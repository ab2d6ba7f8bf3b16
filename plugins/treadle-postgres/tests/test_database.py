"""What only PostgreSQL does: leases by its clock, push, cancelled queries, shared transactions, tables to look at."""

import anyio
import pytest

from treadle.events import Event, SessionOpen, TurnEnd, TurnStart, UserMessage
from treadle.messages import Message, Text, Usage, as_message
from treadle.plugin import LeaseLost, PostCancel, PostMessage, SessionBusy, StoreFault, UnreadableLog, UsageError
from treadle.testing.stores import listening, noted, numbered, stored, tailing, taken, values, written
from treadle_postgres import Postgres

pytestmark = pytest.mark.services


async def ask(store, query, *values):
    async with store.transaction() as (connection, _):
        cursor = await connection.execute(query.replace("{schema}", store.settings.schema), values)
        return await cursor.fetchall() if cursor.description else []


async def test_looking_into_an_empty_database_makes_no_tables(opened):
    async with opened() as store:
        assert list(await store.list()) == []
        query = "select count(*) from pg_namespace where nspname = %s"
        rows = await store.database.run(lambda c: store.database.rows(c, query, (store.settings.schema,)))
        assert rows == [(0,)]


async def test_first_openings_at_once_all_succeed(opened):
    async def first(number):
        async with opened() as store:
            await written(store, f"s{number}", numbered(1, 1))

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(first, number)
    async with opened() as store:
        assert len(await store.list()) == 6


async def test_a_lease_that_ran_out_by_the_servers_clock_is_taken_over_and_its_writer_refused(opened):
    async with opened(lease_seconds=0.05) as stale, opened() as store:
        old = await stale.open("s", write=True)
        await old.append(numbered(1, 1), 0)
        with anyio.fail_after(10):
            while True:
                try:
                    log = await store.open("s", write=True)
                    break
                except SessionBusy:
                    await anyio.sleep(0.005)
        with pytest.raises(LeaseLost):
            await old.append(numbered(2, 2), 1)
        await log.append([noted("mine", 2)], 1)
        assert values(await log.read()) == [1, "mine"]
        await log.close()


async def test_a_writer_whose_connection_ended_loses_its_session_at_once(opened):
    async with opened() as stale, opened() as store:
        log = await stale.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        with pytest.raises(SessionBusy, match=r"process \d+ on "):
            await store.open("s", write=True)
        stale.database._listener.end()  # as when its process is killed
        with anyio.fail_after(10):
            while True:
                try:
                    await (await store.open("s", write=True)).close()
                    break
                except SessionBusy:
                    await anyio.sleep(0.005)
        with pytest.raises(LeaseLost):
            await log.append(numbered(2, 2), 1)


async def test_leases_are_renewed_while_the_stack_is_open(opened, server, schema):
    plugin = Postgres(Postgres.Settings(schema=schema, lease_seconds=0.3))
    store = plugin.open_store(server)
    async with plugin.lifespan(None), opened() as other:
        log = await store.open("s", write=True)
        (first,) = await ask(other, "select lease_ends from {schema}.sessions")
        with anyio.fail_after(10):
            again = first
            while again == first:
                (again,) = await ask(other, "select lease_ends from {schema}.sessions")
        await log.append(numbered(1, 1), 0)
        await log.close()
        await store.close()


async def test_a_post_and_a_commit_of_another_store_are_pushed(opened):
    async with opened(poll_seconds=3600) as store, opened(poll_seconds=3600) as other:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        reader = await other.open("s", write=False)
        async with listening(log) as posts, tailing(reader) as events:
            assert await taken(events, 1) == numbered(1, 1)

            async def act():
                await other.post("s", PostCancel())
                await log.append(numbered(2, 2), 1)

            async with anyio.create_task_group() as group:
                group.start_soon(act)
                assert len(await taken(posts, 1)) == 1
            assert await taken(events, 1) == numbered(2, 2)
        await reader.close()
        await log.close()


async def test_many_wait_at_once_and_each_hears_its_own(opened):
    async with opened(poll_seconds=3600) as store, opened() as other:
        logs = [await store.open(f"s{number}", write=True) for number in range(5)]
        heard = []

        async def wait(log):
            async with listening(log) as posts:
                heard.append((log.session_id, (await taken(posts, 1))[0].id))

        async with anyio.create_task_group() as group:
            for log in logs:
                group.start_soon(wait, log)
            sent = [(f"s{number}", await other.post(f"s{number}", PostCancel())) for number in (3, 0, 4, 2, 1)]
        assert sorted(heard) == sorted(sent)
        for log in logs:
            await log.close()


async def test_a_tail_goes_on_after_its_connection_was_ended(opened):
    async with opened(poll_seconds=3600) as store, opened() as other:
        log = await other.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        reader = await store.open("s", write=False)
        async with tailing(reader) as events:
            assert await taken(events, 1) == numbered(1, 1)
            pid = store.database._listener.info.backend_pid
            async with anyio.create_task_group() as group:

                async def act():
                    await ask(other, "select pg_terminate_backend(%s)", pid)
                    await log.append(numbered(2, 2), 1)

                group.start_soon(act)
                assert await taken(events, 1) == numbered(2, 2)
        await reader.close()
        await log.close()


async def test_an_idle_connection_that_the_server_ended_is_not_used_again(opened):
    async with opened(connections=1) as store, opened() as other:
        await written(store, "s", numbered(1, 1))
        await ask(other, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        with anyio.fail_after(10):  # the goodbye takes a moment to arrive
            while True:
                try:
                    assert list(await stored(store, "s")) == numbered(1, 1)
                    break
                except StoreFault:
                    continue


async def test_a_cancelled_query_ends_its_connection_and_no_other(opened):
    async with opened(connections=1) as store:
        await written(store, "s", numbered(1, 1))
        with anyio.move_on_after(0.05):
            await store.database.run(lambda c: store.database.rows(c, "select pg_sleep(60)"))
        assert list(await stored(store, "s")) == numbered(1, 1)


async def test_one_commit_covers_a_plugins_rows_and_the_stores(opened):
    async with opened() as store:
        await ask(store, "create table {schema}.runs (id text primary key, status text)")
        log = await store.open("s", write=True)
        async with store.transaction() as (connection, dialect):
            assert dialect == "postgresql"
            await connection.execute(f"insert into {store.settings.schema}.runs values ('r1', 'WAITING')")
            await log.append(numbered(1, 1), 0)
            await store.post("s", PostMessage(message=as_message("hi")))
        assert await ask(store, "select id from {schema}.runs") == [("r1",)]
        assert list(await log.read()) == numbered(1, 1)
        with pytest.raises(ZeroDivisionError):
            async with store.transaction() as (connection, _):
                await connection.execute(f"delete from {store.settings.schema}.runs")
                await log.append(numbered(2, 2), 1)
                raise ZeroDivisionError
        assert await ask(store, "select id from {schema}.runs") == [("r1",)]
        assert list(await log.read()) == numbered(1, 1)
        await log.append(numbered(2, 2), 1)
        await log.close()


async def test_events_are_append_only_for_everybody(opened):
    async with opened() as store:
        await written(store, "s", numbered(1, 1))
        with pytest.raises(Exception, match="append-only"):
            await ask(store, "update {schema}.events set type = 'x'")


async def test_people_read_the_views_even_where_a_text_holds_nul(opened):
    text = "a\0b é 😀 \ud800."
    message = Message(id="m", role="user", parts=(Text(text),))
    ended = TurnEnd(reason="failed", detail="\0", park=False, steps=1, usage=Usage())
    events = [
        Event(1, 1.0, SessionOpen(reason="new", kernel="0.1.0")),
        Event(2, 2.0, TurnStart(), 1),
        Event(3, 3.0, UserMessage(message), 1, 1),
        Event(4, 4.0, ended, 1),
    ]
    async with opened() as store:
        await written(store, "s", events)
        assert list(await stored(store, "s")) == events
        rows = await ask(store, "select role, text from {schema}.messages")
        assert rows == [("user", "a\ufffdb é 😀 \ufffd.")]
        assert await ask(store, "select session_id, turn, reason from {schema}.turns") == [("s", 1, "failed")]


@pytest.mark.parametrize("name", ["nul\0", "\ud800"])
async def test_a_name_that_no_column_of_text_holds_is_refused(opened, name):
    async with opened() as store:
        with pytest.raises(UsageError, match="does not fit its column"):
            await store.open(name, write=True)
        await written(store, "s", numbered(1, 1))


async def test_tables_of_a_newer_release_are_refused(opened):
    async with opened() as store:
        await written(store, "s", numbered(1, 1))
        await ask(store, "insert into {schema}.migrations (name) values ('9999_later')")
    async with opened() as store:
        for attempt in (store.list(), store.open("s", write=True)):
            with pytest.raises(UnreadableLog, match="9999_later"):
                await attempt


async def test_a_store_keeps_to_its_number_of_connections(opened):
    async with opened(connections=2) as store, opened() as other:
        ((began,),) = await ask(other, "select clock_timestamp()")  # connections of earlier tests may still end
        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(written, store, f"s{number}", numbered(1, 3))
        query = "select count(*) from pg_stat_activity where application_name = 'treadle' and backend_start > %s"
        assert await ask(other, query, began) == [(3,)]  # the two, and the one that listens
        assert len(await store.list()) == 12
