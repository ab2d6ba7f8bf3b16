"""The file itself: when it is made, what stands in it, and what its faults are called."""

import os
import resource
import sqlite3
from contextlib import closing, contextmanager

import anyio
import pytest

from treadle.plugin import (
    Message,
    NoSuchSession,
    PostCancel,
    SessionBusy,
    StoreFault,
    Text,
    UnreadableLog,
    UsageError,
)
from treadle.testing.stores import every_core_event, noted, numbered, stored, values, written
from treadle_sqlite.schema import MIGRATIONS


def raw(file, **options):
    return closing(sqlite3.connect(file, isolation_level=None, **options))


@contextmanager
def unprivileged(folder):
    """Run as a user who is not root, for whom the rights of files count."""
    if os.geteuid() != 0:
        yield
        return
    for each in (folder, *folder.parents):  # the way to the folder must be open to that user
        if each.stat().st_mode & 0o077 == 0:
            each.chmod(each.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# --- making it --------------------------------------------------------------------------------------


async def test_opening_the_store_and_reading_make_no_file(opened, file):
    async with opened() as store:
        assert list(await store.list()) == []
        with pytest.raises(NoSuchSession) as caught:
            await store.open("s", write=False)
        assert f"there is no file {file}" in str(caught.value)
        for refused in (store.delete("s"), store.archive("s"), store.fork("s", 1, "t")):
            with pytest.raises(NoSuchSession):
                await refused
    assert not file.exists()


async def test_reading_a_file_without_our_tables_adds_none(opened, file):
    with raw(file) as connection:
        connection.execute("create table notes (text)")
    before = file.read_bytes()
    async with opened() as store:
        assert list(await store.list()) == []
        with pytest.raises(NoSuchSession, match='no session "s"'):
            await store.open("s", write=False)
    assert file.read_bytes() == before


async def test_another_programs_file_may_hold_our_tables_beside_its_own(opened, file):
    with raw(file) as connection:
        connection.execute("create table notes (text)")
        connection.execute("insert into notes values ('theirs')")
    async with opened() as store:
        await written(store, "s", numbered(1, 1))
    with raw(file) as connection:
        assert connection.execute("select text from notes").fetchall() == [("theirs",)]


async def test_another_programs_tables_of_our_names_are_left_alone(opened, file):
    with raw(file) as connection:
        connection.execute("create table sessions (cookie text)")
    before = file.read_bytes()
    async with opened() as store:
        for opening in (store.open("s", write=True), store.post("s", PostCancel()), store.list()):
            with pytest.raises(UsageError, match="another program's sessions"):
                await opening
    assert file.read_bytes() == before


async def test_nothing_is_left_beside_the_file_when_the_last_store_closes(opened, file):
    async with opened() as store:
        await written(store, "s", numbered(1, 1))
    assert [each.name for each in file.parent.iterdir()] == ["app.db"]


async def test_a_session_that_was_only_looked_at_leaves_no_row(opened, file):
    async with opened() as store:
        await (await store.open("s", write=True)).close()
    with raw(file) as connection:
        assert connection.execute("select count(*) from sessions").fetchall() == [(0,)]


# --- its faults -------------------------------------------------------------------------------------


async def test_a_missing_folder_is_named_and_not_made(opened, tmp_path):
    async with opened(tmp_path / "no" / "app.db") as store:
        with pytest.raises(UsageError, match=f"there is no folder {tmp_path}/no"):
            await store.open("s", write=True)
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_in_the_files_place_is_named(opened, tmp_path):
    async with opened(tmp_path) as store:
        for opening in (store.open("s", write=True), store.open("s", write=False)):
            with pytest.raises(UsageError, match="it is a folder"):
                await opening


async def test_a_file_that_is_no_database_is_named_and_left_alone(opened, file):
    file.write_text("Dear diary, " * 100)
    async with opened() as store:
        for opening in (store.open("s", write=True), store.open("s", write=False), store.list()):
            with pytest.raises(UnreadableLog, match="not a database") as caught:
                await opening
            assert caught.value.where == str(file)
    assert file.read_text() == "Dear diary, " * 100


async def test_a_file_of_a_newer_release_is_refused(opened, file):
    async with opened() as store:
        await written(store, "s", numbered(1, 1))
    with raw(file) as connection:
        connection.execute(
            "insert into _sqlite_migrations (migration_set, name, applied_at) "
            "values ('treadle-sqlite', '0099_later', '2099-01-01')"
        )
    async with opened() as store:
        for opening in (store.open("s", write=False), store.open("s", write=True)):
            with pytest.raises(UnreadableLog, match="0099_later") as caught:
                await opening
            assert "upgrade" in caught.value.remedy


async def test_damaged_json_is_named_by_session_and_event(opened, file):
    async with opened() as store:
        await written(store, "s", numbered(1, 3))
        await written(store, "other", numbered(1, 1))
    with raw(file) as connection:
        connection.execute("drop trigger events_never_change")
        connection.execute("update events set data = '{' where seq = 2")
    async with opened() as store:
        reader = await store.open("s", write=False)
        with pytest.raises(UnreadableLog, match='session "s", event 2'):
            await reader.read()
        assert values(await reader.read(2)) == [3]
        assert list(await stored(store, "other")) == numbered(1, 1)


async def test_a_torn_database_page_is_an_unreadable_log(opened, file):
    async with opened() as store:
        await written(store, "s", [noted("x" * 3000, seq) for seq in range(1, 30)])
    with file.open("r+b") as handle:
        handle.seek(4096 * 4)
        handle.write(b"\xff" * (file.stat().st_size - 4096 * 4))
    async with opened() as store:
        with pytest.raises(UnreadableLog, match="restore this one from a copy"):
            await stored(store, "s")


async def test_a_file_locked_by_another_is_a_store_fault_that_says_so(opened, file):
    async with opened(busy_seconds=0.02) as store:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        with raw(file) as other:
            other.execute("begin immediate")
            for refused in (log.append(numbered(2, 2), 1), store.post("s", PostCancel()), store.open("t", write=True)):
                with pytest.raises(StoreFault, match="another process kept the file") as caught:
                    await refused
                assert "database is locked" not in str(caught.value)
            assert list(await log.read()) == numbered(1, 1)
            other.execute("rollback")
        await log.append(numbered(2, 2), 1)
        await log.close()


async def test_a_file_that_stays_locked_while_it_is_made_is_a_store_fault(opened, file):
    with raw(file) as other:
        other.execute("create table notes (text)")
        other.execute("begin exclusive")
        async with opened(busy_seconds=0.02) as store:
            with pytest.raises(StoreFault, match="another process kept the file"):
                await store.open("s", write=True)
            other.execute("rollback")
            await written(store, "s", numbered(1, 1))


async def test_a_refused_event_leaves_no_lock(opened, file):
    async with opened() as store:
        log = await store.open("s", write=True)
        with pytest.raises(UsageError, match="not JSON"):
            await log.append([noted({"ok": 1}, 1), noted(object(), 2)], 0)
        with raw(file, timeout=0) as other:
            other.execute("begin immediate")
            other.execute("rollback")
        await log.append(numbered(1, 1), 0)
        assert list(await log.read()) == numbered(1, 1)
        await log.close()


async def test_a_name_that_no_column_holds_is_refused(opened):
    async with opened() as store:
        for refused in (
            store.open("\ud800", write=True),
            store.open("\ud800", write=False),
            store.post("\ud800", PostCancel()),
        ):
            with pytest.raises(UsageError, match="does not fit"):
                await refused
        await written(store, "s", numbered(1, 1))
        log = await store.open("s", write=True)
        with pytest.raises(UsageError, match="without a gap"):
            await log.append(numbered(3, 3), 1)
        await log.append(numbered(2, 2), 1)
        await log.close()


async def test_a_file_that_may_not_be_written_is_read_and_refused(opened, file, tmp_path):
    async with opened() as store:
        await written(store, "s", numbered(1, 2))
    file.chmod(0o444)
    tmp_path.chmod(0o777)
    with unprivileged(tmp_path):
        async with opened() as store:
            assert list(await stored(store, "s")) == numbered(1, 2)
            for refused in (store.open("s", write=True), store.post("s", PostCancel())):
                with pytest.raises(UsageError, match="may not be written"):
                    await refused
            assert list(await stored(store, "s")) == numbered(1, 2)


async def test_a_folder_that_may_not_be_written_is_named(opened, file, tmp_path):
    async with opened() as store:
        await written(store, "s", numbered(1, 2))
    tmp_path.chmod(0o555)
    try:
        with unprivileged(tmp_path):
            async with opened() as store:
                with pytest.raises(UsageError, match="needs the right to write") as caught:
                    await stored(store, "s")
                assert str(tmp_path) in str(caught.value)
            async with opened(tmp_path / "new.db") as store:
                with pytest.raises(UsageError, match="needs the right to write"):
                    await store.open("s", write=True)
    finally:
        tmp_path.chmod(0o755)


async def test_a_full_disk_is_a_store_fault_and_keeps_the_prefix(opened, file):
    async with opened() as store:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 5), 0)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            with pytest.raises(StoreFault, match="nothing of this write was kept") as caught:
                await log.append([noted("x" * 50_000, seq) for seq in range(6, 16)], 5)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert caught.value.session == "s"
        assert list(await log.read()) == numbered(1, 5)
        await log.append(numbered(6, 6), 5)
        await log.close()
    async with opened() as store:
        assert list(await stored(store, "s")) == numbered(1, 6)


async def test_a_database_at_its_limit_is_a_store_fault(opened, file):
    async with opened() as store:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 5), 0)
        limited = store.database._writer()
        limited.execute("pragma max_page_count = 40")
        with pytest.raises(StoreFault, match="no room is left"):
            await log.append([noted("x" * 50_000, seq) for seq in range(6, 16)], 5)
        assert list(await log.read()) == numbered(1, 5)
        await log.append(numbered(6, 6), 5)
        await log.close()


async def test_a_closed_store_says_so(opened):
    async with opened() as store:
        await written(store, "s", numbered(1, 1))
        log = await store.open("s", write=True)
        await store.close()
        for refused in (store.open("s", write=True), store.open("s", write=False), store.list(), log.read()):
            with pytest.raises(UsageError, match="is closed"):
                await refused


async def test_closing_the_store_frees_its_sessions_and_ends_its_tails(opened):
    async with opened() as store:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        seen = anyio.Event()

        async def watch():
            async for _ in log.tail():
                seen.set()

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                await seen.wait()
                await store.close()
    async with opened() as store:
        await written(store, "s", numbered(2, 2), 1)


async def test_a_tail_of_a_session_that_is_deleted_ends_with_an_error(opened):
    async with opened() as store, opened() as second:
        await written(store, "s", numbered(1, 1))
        reader = await store.open("s", write=False)
        tail = reader.tail()
        with anyio.fail_after(10):
            assert await anext(tail) == noted(1, 1)
            await second.delete("s")
            with pytest.raises(NoSuchSession, match="deleted"):
                await anext(tail)


async def test_a_stale_writer_does_not_reach_a_new_session_of_the_same_name(opened, file):
    async with opened() as store, opened() as second:
        stale = await store.open("s", write=True)
        with raw(file) as connection:
            connection.execute("update sessions set lease_ends = 1")
        await second.delete("s")
        log = await second.open("s", write=True)
        with pytest.raises(Exception, match="lost to another writer"):
            await stale.append(numbered(1, 1), 0)
        await stale.close()
        with pytest.raises(SessionBusy):
            await store.open("s", write=True)
        await log.close()


# --- what people see in it ----------------------------------------------------------------------------


async def test_events_stand_in_readable_columns(opened, file):
    async with opened() as store:
        await written(store, "s", [noted({"a": "é"}, 1)])
    with raw(file) as connection:
        rows = connection.execute("select seq, at, type, turn, step, owner, required, data from events").fetchall()
    assert rows == [(1, "2023-11-14T22:13:20.500Z", "kit/note", None, None, "kit", 0, '{"a":"\\u00e9"}')]


async def test_the_views_show_turns_steps_and_messages(opened, file):
    async with opened() as store:
        await written(store, "s", every_core_event())
    with raw(file) as connection:
        turns = connection.execute("select session_id, turn, reason, steps, input_tokens, output_tokens from turns")
        assert turns.fetchall() == [("s", 7, "limit", 1, 1 + 2 + 3, 4 + 5)]
        steps = connection.execute("select session_id, turn, step, agent, outcome, requests, tool_calls from steps")
        assert steps.fetchall() == [("s", 7, 2, "clerk", "aborted", 2, 1)]
        messages = connection.execute("select session_id, turn, step, role, text, calls, status from messages")
        assert messages.fetchall() == [
            ("s", 7, 2, "user", "Grüße", 'add {"a": 1.0}', None),
            ("s", 7, 2, "user", "Grüße", 'add {"a": 1.0}', None),
            ("s", 7, 2, "tool", "Grüße", None, "error"),
        ]


async def test_the_database_itself_refuses_to_change_or_orphan_events(opened, file):
    async with opened() as store:
        await written(store, "a", numbered(1, 2))
        await store.fork("a", 1, "b")
    with raw(file) as connection:
        connection.execute("pragma foreign_keys = on")
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute("update events set data = '{}'")
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            connection.execute("delete from sessions where id = 'a'")


async def test_a_fork_copies_no_event(opened, file):
    async with opened() as store:
        await written(store, "a", numbered(1, 50))
        await store.fork("a", 50, "b")
        await store.fork("b", 50, "c")
        with raw(file) as connection:
            assert connection.execute("select count(*) from events").fetchall() == [(50,)]
        assert list(await stored(store, "c")) == numbered(1, 50)


async def test_the_tables_are_made_in_one_transaction_and_recorded(opened, file):
    async with opened() as store:
        await written(store, "s", numbered(1, 1))
    with raw(file) as connection:
        names = connection.execute("select name from _sqlite_migrations where migration_set = 'treadle-sqlite'")
        assert [name for (name,) in names] == list(MIGRATIONS)
        assert connection.execute("pragma journal_mode").fetchall() == [("wal",)]
        assert connection.execute("pragma foreign_key_check").fetchall() == []


async def test_posted_text_keeps_nul_and_surrogates_in_the_file(opened):
    from treadle.plugin import PostMessage

    async with opened() as store:
        message = Message(id="m\0", role="user", parts=(Text("\ud800\0"),))
        await store.post("s", PostMessage(message=message))
        log = await store.open("s", write=True)
        posts = log.posted()
        assert (await anext(posts)).what.message == message
        await posts.aclose()
        await log.close()
