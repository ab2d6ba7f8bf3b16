"""Words are found in any store, by an index or by reading, and both agree."""

import sqlite3
from contextlib import closing

import pytest
from stores.kinds import KINDS

from treadle.errors import UnreadableLog, UsageError
from treadle.events import AssistantMessage, Event, SessionOpen, ToolResult, UserMessage
from treadle.messages import Message, Text
from treadle.plugin import search_sessions
from treadle.testing.stores import written


def user(seq, text, time=1.0):
    return Event(seq, time, UserMessage(Message(id=f"m{seq}", role="user", parts=(Text(text),))), 1, 1)


def assistant(seq, text, time=1.0):
    message = Message(id=f"m{seq}", role="assistant", parts=(Text(text),))
    return Event(seq, time, AssistantMessage(message=message, finish="end"), 1, 1)


def opening():
    return Event(1, 1.0, SessionOpen(reason="new", kernel="0.1.0"))


async def places(store, question, **options):
    return [(each.session, each.seq) for each in await search_sessions(store, question, **options)]


async def test_a_message_is_found_by_the_beginnings_of_its_words_in_any_case_and_order(store):
    await written(store, "a", [opening(), user(2, "Deploy the Café now"), assistant(3, "The café is closed.")])
    assert await places(store, "CAFE deploy") == [("a", 2)]
    assert await places(store, "café") == [("a", 3), ("a", 2)]
    assert await places(store, "depl") == [("a", 2)]
    assert await places(store, "eploy") == []
    assert await places(store, "deploy closed") == []


async def test_the_newest_comes_first_and_the_limit_holds(store):
    await written(store, "a", [opening(), user(2, "word", 5.0)])
    await written(store, "b", [opening(), user(2, "word", 9.0), user(3, "word", 7.0)])
    assert await places(store, "word") == [("b", 2), ("b", 3), ("a", 2)]
    assert await places(store, "word", limit=1) == [("b", 2)]


async def test_who_said_it_and_what_comes_with_it(store):
    result = ToolResult(call_id="c", status="ok", parts=(Text("two"), Text("words")))
    await written(store, "a", [opening(), Event(2, 3.5, result, 1, 1)])
    (found,) = await search_sessions(store, "twowords")
    assert (found.role, found.text, found.time) == ("tool", "twowords", 3.5)


async def test_what_is_said_later_is_found_later(store):
    await written(store, "a", [opening(), user(2, "first word")])
    assert await places(store, "word") == [("a", 2)]
    await written(store, "a", [user(3, "second word")], 2)
    assert await places(store, "word") == [("a", 3), ("a", 2)]


async def test_what_a_fork_inherited_is_found_once(store):
    await written(store, "a", [opening(), user(2, "shared word"), user(3, "later word")])
    assert await places(store, "shared") == [("a", 2)]
    await store.fork("a", 2, "b")
    await written(store, "b", [user(3, "own word")], 2)
    assert await places(store, "shared") == [("a", 2)]
    assert await places(store, "own") == [("b", 3)]


async def test_what_is_deleted_is_found_no_more_and_what_is_archived_still(store):
    for name in ("a", "b"):
        await written(store, name, [opening(), user(2, "word")])
    assert len(await places(store, "word")) == 2
    await store.archive("b")
    await store.delete("a")
    assert await places(store, "word") == [("b", 2)]


@pytest.mark.parametrize("question", ["", "  ", "?!", '"*"'])
async def test_a_question_without_a_word_is_refused(store, question):
    with pytest.raises(UsageError, match="no word"):
        await search_sessions(store, question)


@pytest.mark.parametrize("question", ["AND", "word OR", 'near("x', "text:word", "wo*rd"])
async def test_a_question_is_never_a_query_language(make, question):
    answers = []
    for kind in KINDS:
        store = make(kind)
        await written(store, "a", [opening(), user(2, "word and text near x or NOT"), user(3, "wo rd")])
        answers.append(await places(store, question))
    assert answers[0] == answers[1] == answers[2] != []


async def test_odd_texts_do_not_disturb_the_index(store):
    await written(store, "a", [opening(), user(2, "nul\0 \ud800 word"), user(3, "日本語 word_two")])
    assert await places(store, "word") == [("a", 3), ("a", 2)]
    assert await places(store, "two") == [("a", 3)]


async def test_nothing_is_found_where_nothing_is(store):
    assert await places(store, "word") == []


async def test_a_search_takes_up_more_than_one_stretch(make):
    store = make("sqlite")
    await written(store, "a", [opening(), *(user(seq, f"word{seq}") for seq in range(2, 1002))])
    assert await places(store, "word1001") == [("a", 1001)]
    assert len(await places(store, "word", limit=None)) == 1000


async def test_a_file_that_nobody_searches_has_no_index_and_a_deleted_text_leaves_it(make, tmp_path):
    store = make("sqlite")
    await written(store, "a", [opening(), user(2, "secret")])
    file = store.database.path
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("select count(*) from sqlite_master where name like 'search%'").fetchone() == (0,)
    assert await places(store, "secret") == [("a", 2)]
    await store.delete("a")
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("select count(*) from search_texts").fetchone() == (0,)
        match = "select count(*) from search_texts_fts where search_texts_fts match 'secret'"
        assert connection.execute(match).fetchone() == (0,)


async def test_a_damaged_session_is_reported_and_the_others_are_searched(make, tmp_path):
    store = make("jsonl", "damaged")
    for name in ("a", "b"):
        await written(store, name, [opening(), user(2, "word")])
    (tmp_path / "damaged" / "a.jsonl").write_text("oops\n")
    with pytest.raises(UnreadableLog, match=r"a\.jsonl"):
        await search_sessions(store, "word")
    said = []
    found = await search_sessions(store, "word", report=lambda name, error: said.append((name, type(error))))
    assert [each.session for each in found] == ["b"]
    assert said == [("a", UnreadableLog)]
