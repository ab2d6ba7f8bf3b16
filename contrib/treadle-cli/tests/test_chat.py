from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Home, Start


def said(home: Home, session: str) -> list[tuple[int, int, str]]:
    return [
        (each["turn"], each["step"], each["data"]["message"]["parts"][0]["text"])
        for each in home.events(session)
        if each["type"] == "user/message"
    ]


def test_each_piped_line_is_a_turn(home: Home) -> None:
    home.script("talk", ["One.", "Two."])
    done = home.here("chat", "-m", "script:talk", "--session", "a", input="first\nsecond\n")
    assert (done.exit_code, done.stdout) == (0, "One.\nTwo.\n")
    assert said(home, "a") == [(1, 1, "first"), (2, 1, "second")]


def test_chat_reads_a_real_pipe(home: Home) -> None:
    assert home.run("chat", "-m", "script:hi", input="hi").stdout == "Hello there, friend.\n"


def test_the_last_turn_of_a_pipe_decides_the_exit_code(home: Home) -> None:
    home.script("talk", ["One.", {"error": "server"}])
    assert home.here("chat", "-m", "script:talk", input="first\nsecond\n").exit_code == 1


def test_a_call_is_decided_by_the_next_line(home: Home) -> None:
    home.script("wipe", [{"calls": [{"name": "wipe", "arguments": {"path": "/x"}}]}, "As you wish."])
    done = home.here("chat", "-m", "script:wipe", "-t", "tools.py:wipe", input="wipe\nno too risky\n")
    assert (done.exit_code, done.stdout) == (0, "As you wish.\n")
    assert "The call was denied: too risky" in done.stderr


def test_a_pipe_that_ends_before_a_decision_is_exit_code_3(home: Home) -> None:
    home.script("wipe", [{"calls": [{"name": "wipe", "arguments": {"path": "/x"}}]}])
    assert home.here("chat", "-m", "script:wipe", "-t", "tools.py:wipe", input="wipe\n").exit_code == 3


def test_exit_leaves_what_follows_unread(home: Home) -> None:
    done = home.here("chat", "-m", "script:hi", "--session", "a", input="/exit\nhi\n")
    assert (done.exit_code, done.stdout) == (0, "")


def test_a_line_typed_while_it_works_steers_the_next_step(home: Home, start: Start) -> None:
    home.script("slow", [{"calls": [{"name": "wait"}]}, "Right, in French."])
    live = start("chat", "-m", "script:slow", "-t", "tools.py:wait", "--session", "a", terminal=True, NO_COLOR="1")
    live.wait_for("> ")
    live.type("say hello\n")
    live.wait_for("… waiting")
    live.type("in French\n")
    live.wait_for("(for the next step)")
    home.write("go", "")
    live.wait_for("Right, in French.\n")
    live.wait_for("> ")
    live.type("\x04")
    assert live.code() == 0
    assert said(home, "a") == [(1, 1, "say hello"), (1, 2, "in French")]


def test_ctrl_c_ends_the_turn_and_then_leaves(home: Home, start: Start) -> None:
    home.script("slow", [{"calls": [{"name": "wait"}]}, "never"])
    live = start("chat", "-m", "script:slow", "-t", "tools.py:wait", "--session", "a", terminal=True, NO_COLOR="1")
    live.wait_for("> ")
    live.type("go\n")
    live.wait_for("… waiting")
    live.interrupt()
    live.wait_for("Cancelled (Ctrl-C).")
    live.wait_for("> ")
    live.interrupt()
    live.wait_for("session a")
    assert live.code() == 130
    assert home.events("a")[-1]["data"]["reason"] == "aborted"


def test_cancel_ends_the_turn_and_the_talk_goes_on(home: Home, start: Start) -> None:
    home.script("slow", [{"calls": [{"name": "wait"}]}, "Hello again."])
    live = start("chat", "-m", "script:slow", "-t", "tools.py:wait", "--session", "a", terminal=True, NO_COLOR="1")
    live.wait_for("> ")
    live.type("go\n")
    live.wait_for("… waiting")
    live.type("/cancel\n")
    live.wait_for("Cancelled (cancelled by the user).")
    live.wait_for("> ")
    live.type("hi\n")
    live.wait_for("Hello again.")
    live.wait_for("> ")
    live.type("/exit\n")
    assert live.code() == 0


def test_help_and_session_are_answered_at_the_prompt(home: Home, start: Start) -> None:
    live = start("chat", "-m", "script:hi", "--session", "a", terminal=True, NO_COLOR="1")
    live.wait_for("script:hi. /help lists commands")
    live.wait_for("> ")
    live.type("/help\n")
    live.wait_for("/cancel   end the turn")
    live.type("/session\n")
    live.wait_for("session a\n")
    live.type("/exit\n")
    assert live.code() == 0
