from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Home


def ids(home: Home, *arguments: str) -> list[str]:
    return [each["id"] for each in json.loads(home.here("sessions", "list", "--json", *arguments).stdout)]


def test_tc_131_continue_reads_the_database_that_was_given(home: Home) -> None:
    home.here("a stranger's", "-m", "script:hi", "--session", "D")
    before = home.events("D")
    home.here("chat", "--db", "t.db", "-m", "script:hi", input="hello\n")
    (first,) = ids(home, "--db", "t.db")
    assert home.here("--db", "t.db", "--continue", "more", "-m", "script:hi").exit_code == 0
    assert ids(home, "--db", "t.db") == [first]
    said = [each for each in home.events(first, "--db", "t.db") if each["type"] == "user/message"]
    assert [each["data"]["message"]["parts"][0]["text"] for each in said] == ["hello", "more"]
    assert (ids(home), home.events("D")) == (["D"], before)


@pytest.mark.parametrize("kind", ["missing", "a file of no bytes", "no name"])
def test_tc_131_continue_with_an_empty_database_fails(home: Home, kind: str) -> None:
    home.here("a stranger's", "-m", "script:hi", "--session", "D")
    if kind == "a file of no bytes":
        home.write("t.db", "")
    done = home.here("--db", "" if kind == "no name" else "t.db", "--continue", "more", "-m", "script:hi")
    assert done.exit_code == 2
    assert ("is empty" if kind == "no name" else "no session to continue in sqlite:///t.db") in done.stderr
    assert [each["type"] for each in home.events("D")].count("user/message") == 1


def test_continue_goes_on_with_the_session_that_was_used_last(home: Home) -> None:
    for name in ("one", "two", "one"):
        home.here("x", "-m", "script:hi", "--session", name)
    home.here("-c", "y", "-m", "script:hi")
    assert len([each for each in home.events("one") if each["type"] == "turn/start"]) == 3


def test_a_list_is_fields_between_tabs_when_piped(home: Home) -> None:
    home.here("What is\nthis?", "-m", "script:hi", "--session", "a")
    (line,) = home.here("sessions", "list").stdout.splitlines()
    name, turns, updated, about = line.split("\t")
    assert (name, turns, about) == ("a", "1", "What is this?")
    assert len(updated) == len("2026-01-01 00:00:00")


def test_an_empty_default_store_lists_nothing_and_is_no_error(home: Home) -> None:
    done = home.here("sessions", "list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert json.loads(home.here("sessions", "list", "--json").stdout) == []


def test_a_database_that_is_named_and_missing_is_exit_code_2_and_is_not_made(home: Home) -> None:
    for command in (["list"], ["show", "a"], ["show"]):
        done = home.here("sessions", *command, "--db", "none.db")
        assert done.exit_code == 2 and "There is no file" in done.stderr
    assert not (home.folder / "none.db").exists()


def test_a_session_that_is_missing_is_exit_code_2(home: Home) -> None:
    home.here("x", "-m", "script:hi", "--session", "a")
    done = home.here("sessions", "show", "b")
    assert done.exit_code == 2 and 'There is no session "b"' in done.stderr


def test_a_session_is_shown_as_people_read_it(home: Home) -> None:
    home.here("17 + 25?", "-m", "script:calc", "-t", "tools.py:add", "--session", "a")
    lines = home.here("sessions", "show", "a").stdout.splitlines()
    assert lines[0] == "session a"
    assert lines[2:4] == ["", lines[3]] and lines[3].startswith("turn 1  ")
    assert lines[4:] == [
        "  step 1  treadle",
        "  you: 17 + 25?",
        "  asks script:calc",
        "  assistant: Let me add.",
        "    add(a=17, b=25)",
        "    add -> 42",
        "  step 2  treadle",
        "  assistant: 17 plus 25 is 42.",
        "  completed  2 steps, 30 tokens (20 in, 10 out)",
    ]


def test_without_a_name_the_last_session_is_shown(home: Home) -> None:
    home.here("x", "-m", "script:hi", "--session", "a")
    assert home.here("sessions", "show").stdout.startswith("session a\n")


def test_a_session_of_another_store_is_named_with_it(home: Home) -> None:
    home.here("x", "-m", "script:hi", "--session", "sqlite:///o.db#a%2Fb")
    assert home.here("sessions", "show", "sqlite:///o.db#a%2Fb").stdout.startswith("session a/b\n")


def test_a_name_with_odd_characters_is_one_session(home: Home) -> None:
    home.here("x", "-m", "script:hi", "--session", "user:42/ä")
    assert ids(home) == ["user:42/ä"]


def test_nothing_is_kept_with_no_log(home: Home) -> None:
    assert home.here("x", "-m", "script:hi", "-n").exit_code == 0
    assert not (home.folder / "home").exists()


def test_no_log_and_continue_contradict_each_other(home: Home) -> None:
    assert home.here("x", "-m", "script:hi", "-n", "-c").exit_code == 2
    assert home.here("x", "-m", "script:hi", "-n", "--db", "t.db").exit_code == 2


def test_the_json_of_a_session_is_its_events(home: Home) -> None:
    home.here("x", "-m", "script:hi", "--session", "a")
    document = json.loads(home.here("sessions", "show", "a", "--json").stdout)
    assert [each["seq"] for each in document["events"]] == list(range(1, 10))
