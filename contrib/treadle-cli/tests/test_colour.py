from __future__ import annotations

from typing import TYPE_CHECKING

from treadle_cli.ink import one_line, shown

if TYPE_CHECKING:
    from conftest import Home, Start


def run(home: Home, **env: str) -> str:
    return home.here("x", "-m", "script:calc", "-t", "tools.py:add", **env).stderr


def test_a_pipe_gets_no_colour(home: Home) -> None:
    assert "\x1b" not in run(home)


def test_force_color_colours_a_pipe(home: Home) -> None:
    assert "\x1b[36madd\x1b[0m(a=17, b=25)" in run(home, FORCE_COLOR="1")


def test_no_color_beats_force_color(home: Home) -> None:
    assert "\x1b" not in run(home, FORCE_COLOR="1", NO_COLOR="1")


def test_a_terminal_gets_colour(home: Home, start: Start) -> None:
    live = start("x", "-m", "script:calc", "-t", "tools.py:add", terminal=True)
    live.wait_for("\x1b[36madd\x1b[0m(a=17, b=25)")
    assert live.code() == 0


def test_no_color_keeps_a_terminal_plain(home: Home, start: Start) -> None:
    live = start("x", "-m", "script:calc", "-t", "tools.py:add", terminal=True, NO_COLOR="1")
    assert live.code() == 0
    assert "\x1b" not in live.text


def test_what_a_model_writes_cannot_steer_the_terminal(home: Home, start: Start) -> None:
    home.script("evil", ["\x1b]0;owned\x07\x1b[2Jhi"])
    live = start("x", "-m", "script:evil", terminal=True, NO_COLOR="1")
    assert live.code() == 0
    assert "\x1b" not in live.text and "\x07" not in live.text
    assert "\ufffd]0;owned\ufffd\ufffd[2Jhi" in live.text


def test_a_pipe_gets_what_the_model_wrote_byte_for_byte(home: Home) -> None:
    home.script("evil", ["\x1b[2Jhi"])
    assert home.here("x", "-m", "script:evil").stdout == "\x1b[2Jhi\n"


def test_text_that_no_encoding_holds_is_shown_escaped(home: Home) -> None:
    home.script("odd", ["a\udc80b"])
    done = home.run("x", "-m", "script:odd")
    assert (done.returncode, done.stdout) == (0, "a\\udc80b\n")


def test_a_long_line_says_how_long_it_was() -> None:
    assert one_line("x" * 300, 40) == "x" * 22 + "… (300 characters)"


def test_newlines_and_tabs_stay_and_other_controls_do_not() -> None:
    assert shown("a\tb\nc\x1bd\x9be") == "a\tb\nc\ufffdd\ufffde"
