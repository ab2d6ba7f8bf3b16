from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Home, Start


@pytest.fixture
def kept(home: Home) -> Home:
    """A home with the sessions a (two turns, a tool call) and b."""
    home.here("17 + 25?", "-m", "script:calc", "-t", "tools.py:add", "--session", "a")
    home.here("Thanks, Zoë", "-m", "script:hi", "--session", "a")
    home.here("Another thing", "-m", "script:hi", "--session", "b")
    return home


def out(home: Home, *arguments: str, input: str | None = None) -> list[str]:
    done = home.here("sessions", *arguments, input=input)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def listed(home: Home, *arguments: str) -> dict[str, dict]:
    return {each["id"]: each for each in json.loads("\n".join(out(home, "list", "--json", *arguments)))}


def texts(events: list[dict]) -> list[str]:
    return [e["data"]["message"]["parts"][0]["text"] for e in events if e["type"] == "user/message"]


def test_search_finds_words_in_all_sessions(kept: Home) -> None:
    assert [line.split("\t")[0] for line in out(kept, "search", "friend")] == ["b", "a"]
    (line,) = out(kept, "search", "zoe", "thank")
    session, seq, _, who, words = line.split("\t")
    assert (session, who, words) == ("a", "user", "Thanks, Zoë")
    (found,) = json.loads("\n".join(out(kept, "search", "zoe", "--json")))
    assert (found["session"], str(found["seq"]), found["text"]) == ("a", seq, "Thanks, Zoë")


def test_a_search_without_a_find_says_so_and_is_no_error(kept: Home) -> None:
    done = kept.here("sessions", "search", "nowhere")
    assert (done.exit_code, done.stdout) == (0, "") and "has these words" in done.stderr


def test_a_search_without_a_word_is_exit_code_2(kept: Home) -> None:
    assert kept.here("sessions", "search", "?!").exit_code == 2


def test_a_fork_is_made_named_and_shown_in_the_tree(kept: Home) -> None:
    assert out(kept, "fork", "a", "a2") == ["a2"]
    assert out(kept, "fork", "a2", "a3", "--at", "1") == ["a3"]
    head = {name: len(kept.events(name)) for name in ("a", "a2", "a3", "b")}
    lines = out(kept, "tree", "a")
    assert lines == [
        f"a  ({head['a']} events)",
        f"└─ a2  (at event {head['a']}, {head['a2']} events)",
        f"   └─ a3  (at event 1, {head['a3']} events)",
    ]
    assert set(out(kept, "tree")) == {*lines, f"b  ({head['b']} events)"}
    (root,) = json.loads("\n".join(out(kept, "tree", "a", "--json")))
    assert root["forks"][0]["forks"][0]["id"] == "a3"


def test_a_fork_inside_a_step_is_refused_and_names_the_nearest_places(kept: Home) -> None:
    asked = next(event["seq"] for event in kept.events("a") if event["type"] == "model/request")
    done = kept.here("sessions", "fork", "a", "--at", str(asked))
    assert done.exit_code == 2 and "Nearest" in done.stderr


def test_rewind_hides_the_last_turn_from_the_model_and_keeps_it_in_the_log(kept: Home) -> None:
    before = kept.events("a")
    assert out(kept, "rewind", "a") == []
    after = kept.events("a")
    assert after[: len(before)] == before
    assert after[-1]["type"] == "context/edit"
    kept.here("Again", "-m", "script:hi", "--session", "a")
    assert texts(kept.events("a")) == ["17 + 25?", "Thanks, Zoë", "Again"]
    edit = after[-1]["data"]
    hidden = [e["seq"] for e in before if e["type"] in ("user/message", "assistant/message") and e.get("turn") == 2]
    assert (edit["first"], edit["last"]) == (hidden[0], hidden[-1])


def test_rewind_goes_over_several_turns_and_stops_at_the_first(kept: Home) -> None:
    assert kept.here("sessions", "rewind", "a", "--turns", "3").exit_code == 2
    done = kept.here("sessions", "rewind", "a", "--turns", "2")
    assert done.exit_code == 0 and "begins anew" in done.stderr
    assert kept.here("sessions", "rewind", "a").exit_code == 2


def test_labels_are_added_and_removed_and_a_title_is_set(kept: Home) -> None:
    assert out(kept, "label", "a", "x", "y", "--title", "Sums") == ["x", "y"]
    assert out(kept, "label", "a", "z", "--remove", "x") == ["y", "z"]
    assert (listed(kept)["a"]["labels"], listed(kept)["a"]["title"]) == (["y", "z"], "Sums")
    count = len(kept.events("a"))
    assert out(kept, "label", "a") == ["y", "z"]
    assert len(kept.events("a")) == count
    assert kept.here("sessions", "label", "a", "--remove", "x").exit_code == 2


@pytest.mark.parametrize("command", [("label", "none", "x"), ("rewind", "none"), ("archive", "none"), ("fork", "none")])
def test_a_typing_error_makes_no_session(kept: Home, command: tuple[str, ...]) -> None:
    done = kept.here("sessions", *command)
    assert done.exit_code == 2 and 'no session "none"' in done.stderr
    assert set(listed(kept)) == {"a", "b"}


def test_an_archived_session_is_put_away_and_taken_back(kept: Home) -> None:
    out(kept, "archive", "a", "b")
    assert (set(listed(kept)), set(listed(kept, "--archived"))) == (set(), {"a", "b"})
    out(kept, "archive", "a", "--undo")
    assert set(listed(kept)) == {"a"}


def test_all_sessions_move_to_another_store_and_lose_nothing(kept: Home) -> None:
    out(kept, "fork", "a", "a2")
    out(kept, "export", "-o", "all.jsonl")
    assert set(out(kept, "import", "all.jsonl", "--store", "jsonl:folder")) == {"a", "a2", "b"}
    for name in ("a", "a2", "b"):
        assert kept.events(name, "--store", "jsonl:folder") == kept.events(name)
    assert sorted(out(kept, "export", "--store", "jsonl:folder")) == sorted(out(kept, "export"))


def test_one_session_goes_through_a_pipe_and_gets_another_name(kept: Home) -> None:
    lines = "\n".join(out(kept, "export", "b"))
    assert out(kept, "import", "-", "--name", "c", input=lines) == ["c"]
    assert kept.events("c") == kept.events("b")
    done = kept.here("sessions", "import", "-", input=lines)
    assert done.exit_code == 2 and '"b" is in ' in done.stderr


def test_an_export_that_fails_leaves_no_file(kept: Home) -> None:
    assert kept.here("sessions", "export", "a", "none", "-o", "x.jsonl").exit_code == 2
    assert not (kept.folder / "x.jsonl").exists()


def test_messages_alone_are_what_was_said(kept: Home) -> None:
    said = [json.loads(line) for line in out(kept, "export", "a", "--messages")]
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert said[-1]["parts"] == [{"kind": "text", "text": "Hello there, friend."}]


def test_nothing_is_deleted_where_nobody_can_be_asked(kept: Home) -> None:
    assert kept.here("sessions", "delete", "a").exit_code == 2
    assert set(listed(kept)) == {"a", "b"}
    out(kept, "delete", "a", "-y")
    assert set(listed(kept)) == {"b"}


def test_a_session_with_forks_is_deleted_only_with_them(kept: Home) -> None:
    out(kept, "fork", "a", "a2")
    done = kept.here("sessions", "delete", "a", "-y")
    assert done.exit_code == 2 and "a2" in done.stderr
    out(kept, "delete", "a", "-y", "--forks")
    assert set(listed(kept)) == {"b"}


def test_at_a_terminal_deleting_is_asked_for(kept: Home, start: Start) -> None:
    live = start("sessions", "delete", "a", terminal=True)
    live.wait_for("for good?")
    live.type("n\n")
    assert live.code() == 1
    live = start("sessions", "delete", "a", terminal=True)
    live.wait_for("for good?")
    live.type("y\n")
    assert live.code() == 0
    assert set(listed(kept)) == {"b"}


def test_a_post_that_waits_begins_no_turn_when_a_session_is_labelled(kept: Home) -> None:
    import anyio

    from treadle import Stack
    from treadle.plugin import PostMessage, as_message
    from treadle_sqlite import Sqlite

    async def post() -> None:
        async with Stack([Sqlite()]) as stack:
            sessions = stack.sessions(f"sqlite:///{kept.folder}/home/sessions.db")
            await sessions.post("a", PostMessage(message=as_message("later")))

    anyio.run(post)
    out(kept, "label", "a", "x")
    assert texts(kept.events("a")) == ["17 + 25?", "Thanks, Zoë"]
