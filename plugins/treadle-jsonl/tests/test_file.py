"""What stands in the files, and what becomes of a file that is torn or damaged."""

import json
import resource

import pytest

from treadle.plugin import NoSuchSession, PostCancel, SessionFilter, StoreFault, UnreadableLog
from treadle.testing.stores import described_as, listening, noted, numbered, stored, tailing, taken, values, written

LINE = '[{"seq":%d,"time":5.0,"type":"kit/note","owner":"kit","required":false,"data":%d}]\n'
HEADER = '{"treadle":1,"session":"s","created":5.0}\n'


def six_lines():
    return HEADER + "".join(LINE % (seq, seq) for seq in range(1, 7))


@pytest.fixture
def file(folder):
    folder.mkdir()
    return folder / "s.jsonl"


async def test_a_commit_is_one_line_of_a_file_that_begins_with_its_session(opened, folder):
    async with opened() as store:
        log = await store.open("user 42", write=True)
        await log.append(numbered(1, 2), 0)
        await log.append(numbered(3, 3), 2)
        await log.close()
    first, *commits = (folder / "user 42.jsonl").read_text().splitlines()
    assert json.loads(first)["session"] == "user 42"
    assert [[event["seq"] for event in json.loads(line)] for line in commits] == [[1, 2], [3]]


async def test_tc_071_a_torn_tail_is_cut_off_before_the_next_append_and_reported_once(opened, file, folder, caplog):
    file.write_text(six_lines() + '{"seq":7,"ty')
    async with opened() as store:
        assert values(await stored(store, "s")) == [1, 2, 3, 4, 5, 6]
        await written(store, "s", [noted("new", 7)], 6)
        assert values(await stored(store, "s")) == [1, 2, 3, 4, 5, 6, "new"]
        await written(store, "s", [noted("more", 8)], 7)
    assert [json.loads(line)[0]["seq"] for line in file.read_text().splitlines()[1:]] == [1, 2, 3, 4, 5, 6, 7, 8]
    (said,) = caplog.messages
    assert "s.jsonl ended in 12 bytes of a write that was cut off behind event 6" in said
    assert (folder / ".treadle/torn/s.6").read_text() == '{"seq":7,"ty'


async def test_looking_cuts_nothing_off(opened, file):
    file.write_text(six_lines() + "[{")
    async with opened() as store:
        log = await store.open("s", write=True)
        assert len(await log.read()) == 6
        await log.close()
    assert file.read_text() == six_lines() + "[{"


async def test_a_file_cut_at_any_byte_of_its_last_commit_goes_on_behind_the_one_before(opened, file):
    whole = (HEADER + LINE % (1, 1)).encode()
    last = ("[" + ",".join(LINE.strip("[]\n") % (seq, seq) for seq in (2, 3)) + "]\n").encode()
    for cut in range(len(last) + 1):
        file.write_bytes(whole + last[:cut])
        # One that lacks only its newline is all there.
        found = [1, 2, 3] if cut >= len(last) - 1 else [1]
        async with opened(durability="normal") as store:
            log = await store.open("s", write=True)
            assert values(await log.read()) == found
            await log.append([noted("new", len(found) + 1)], len(found))
            await log.close()
            assert values(await stored(store, "s")) == [*found, "new"]


async def test_a_file_cut_at_any_byte_of_its_first_write_is_a_new_session(opened, file):
    whole = (HEADER + LINE % (1, 1)).encode()
    for cut in range(len(whole) - 1):
        file.write_bytes(whole[:cut])
        async with opened(durability="normal") as store:
            assert list(await store.list()) == []
            with pytest.raises(NoSuchSession):
                await store.open("s", write=False)
            await written(store, "s", [noted("new")])
            assert values(await stored(store, "s")) == ["new"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [("{oops", "not valid JSON"), ("{}", "not a list of events"), ("[]", "not a list"), (LINE.strip() % (9, 9), "[9]")],
)
async def test_damage_inside_a_file_is_named_and_what_stands_before_it_stays_readable(opened, file, line, reason):
    file.write_text(HEADER + LINE % (1, 1) + LINE % (2, 2) + line + "\n" + LINE % (4, 4))
    async with opened() as store:
        with pytest.raises(UnreadableLog) as caught:
            await stored(store, "s")
        assert caught.value.where == f"{file}, line 4"
        assert reason in caught.value.reason
        assert "head -n 3 's.jsonl'" in caught.value.remedy
        reader = await store.open("s", write=False)
        async with tailing(reader) as events:
            assert values(await taken(events, 2)) == [1, 2]
            with pytest.raises(UnreadableLog):
                await anext(events)
        await reader.close()
        await store.fork("s", 2, "child")
        assert values(await stored(store, "child")) == [1, 2]


async def test_a_damaged_last_line_refuses_the_writer_and_changes_nothing(opened, file):
    file.write_text(six_lines() + "oops\n")
    async with opened() as store:
        for _ in range(2):  # and frees the session each time
            with pytest.raises(UnreadableLog, match="line 8"):
                await store.open("s", write=True)
    assert file.read_text() == six_lines() + "oops\n"


async def test_one_damaged_file_does_not_hide_the_other_sessions(opened, file):
    file.write_text("oops\n")
    async with opened() as store:
        await written(store, "whole", [described_as(1, title="Mine")])
        assert {info.id: info.title for info in await store.list()} == {"whole": "Mine", "s": "(damaged)"}


async def test_what_another_program_keeps_in_the_folder_is_left_alone(opened, folder):
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.txt").write_text("x")
    async with opened() as store:
        assert list(await store.list()) == []


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "ä b%", "nul\0", "\ud800", "x" * 1000, "x.posts"])
async def test_any_name_is_a_session(opened, name):
    async with opened() as store:
        await written(store, name, numbered(1, 1))
        await written(store, "other", numbered(1, 1))
        await store.post(name, PostCancel())
        await store.archive(name)
        assert [info.id for info in await store.list(SessionFilter(archived=True))] == [name]
        assert list(await stored(store, name)) == numbered(1, 1)
        await store.delete(name)
        assert [info.id for info in await store.list()] == ["other"]


async def test_a_file_that_holds_another_session_is_not_taken_for_it(opened, file):
    file.write_text(HEADER.replace('"s"', '"S"') + LINE % (1, 1))
    async with opened() as store:
        with pytest.raises(UnreadableLog, match='holds the session "S", not "s"'):
            await store.open("s", write=False)


async def test_a_newer_format_is_refused_and_says_what_to_install(opened, file):
    file.write_text(HEADER.replace("1,", "2,", 1) + LINE % (1, 1))
    async with opened() as store:
        with pytest.raises(UnreadableLog, match="pip install --upgrade treadle-jsonl"):
            await store.open("s", write=True)


async def test_a_fork_holds_only_what_is_its_own(opened, folder):
    async with opened() as store:
        await written(store, "parent", numbered(1, 100))
        await store.fork("parent", 50, "child")
        (line,) = (folder / "child.jsonl").read_text().splitlines()
        assert json.loads(line)["parent"] == "parent" and json.loads(line)["parent_seq"] == 50


async def test_a_disk_without_room_keeps_nothing_of_the_commit_and_what_was_there(opened, folder):
    async with opened() as store:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        size = (folder / "s.jsonl").stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
        try:
            with pytest.raises(StoreFault, match="nothing of this write was kept"):
                await log.append(numbered(2, 2), 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (folder / "s.jsonl").stat().st_size == size
        await log.append(numbered(2, 2), 1)
        await log.close()
        assert list(await stored(store, "s")) == numbered(1, 2)


async def test_a_file_changed_by_hand_under_its_writer_is_not_written_over(opened, folder):
    async with opened() as store:
        log = await store.open("s", write=True)
        await log.append(numbered(1, 1), 0)
        with (folder / "s.jsonl").open("a") as file:
            file.write("x")
        with pytest.raises(StoreFault, match="changed by hand"):
            await log.append(numbered(2, 2), 1)
        await log.close()


async def test_a_torn_post_is_cut_off_by_the_next(opened, folder):
    async with opened() as store:
        log = await store.open("s", write=True)
        first = await store.post("s", PostCancel())
        with (folder / ".treadle/posts/s").open("a") as file:
            file.write('{"id":"to')
        second = await store.post("s", PostCancel())
        async with listening(log) as posts:
            assert [post.id for post in await taken(posts, 2)] == [first, second]
        await log.forget([first])
        await log.forget([second])
        await log.close()
    assert (folder / ".treadle/posts/s").read_bytes() == b""


async def test_a_damaged_post_is_named(opened, folder):
    async with opened() as store:
        log = await store.open("s", write=True)
        await store.post("s", PostCancel())
        with (folder / ".treadle/posts/s").open("a") as file:
            file.write("oops\n")
        with pytest.raises(UnreadableLog, match=r"line 2.*sed -i 2d"):
            async with listening(log) as posts:
                await taken(posts, 1)
        await log.close()
