from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Home, Start


HOLD = [{"calls": [{"name": "hold"}]}, "never"]


def results(events: list[dict]) -> list[str]:  # type: ignore[type-arg]
    return [each["data"]["status"] for each in events if each["type"] == "tool/result"]


def test_tc_087_a_second_ctrl_c_during_clean_up_loses_no_writes(home: Home, start: Start) -> None:
    home.script("hold", HOLD)
    live = start("x", "-m", "script:hold", "-t", "tools.py:hold", "--session", "a")
    live.wait_for("holding")
    live.interrupt()
    live.wait_for("tidying")
    live.interrupt()
    live.wait_for("Closing the log")
    home.write("go", "")
    assert live.code() == 130
    events = home.events("a")
    assert results(events) == ["cancelled"]
    assert (events[-1]["type"], events[-1]["data"]["reason"]) == ("turn/end", "aborted")
    after = home.here("go on", "-m", "script:hi", "--session", "a", "--json")
    assert json.loads(after.stdout)["reason"] == "completed"
    assert not [each for each in home.events("a") if each["data"].get("outcome") == "interrupted"]  # nothing to repair


def test_a_hail_of_signals_still_leaves_a_closed_log(home: Home, start: Start) -> None:
    home.script("hold", HOLD)
    home.write("go", "")
    live = start("x", "-m", "script:hold", "-t", "tools.py:hold", "--session", "a")
    live.wait_for("holding")
    for _ in range(50):
        live.interrupt()
    assert live.code() == 130
    assert "Traceback" not in live.text
    assert results(home.events("a")) == ["cancelled"]
    assert home.events("a")[-1]["data"]["reason"] == "aborted"


def test_ctrl_c_typed_on_a_terminal_cancels_the_turn(home: Home, start: Start) -> None:
    home.script("hold", HOLD)
    home.write("go", "")
    live = start("x", "-m", "script:hold", "-t", "tools.py:hold", "--session", "a", terminal=True, NO_COLOR="1")
    live.wait_for("holding")
    live.interrupt()
    live.wait_for("-> cancelled: ")
    live.wait_for("Cancelled (Ctrl-C).")
    live.wait_for("session a")
    assert live.code() == 130


def test_a_polite_kill_closes_the_log_too(home: Home, start: Start) -> None:
    home.script("hold", HOLD)
    home.write("go", "")
    live = start("x", "-m", "script:hold", "-t", "tools.py:hold", "--session", "a")
    live.wait_for("holding")
    live.process.send_signal(signal.SIGTERM)
    assert live.code() == 143  # 128 and SIGTERM, as a shell counts
    assert home.events("a")[-1]["data"]["reason"] == "aborted"


@pytest.mark.slow  # the grace period is 5 s
def test_a_thread_that_does_not_stop_does_not_keep_the_process(home: Home, start: Start) -> None:
    home.write(
        "stuck.py",
        "import threading\n\nfrom treadle import CallContext\n\n\n"
        "def stuck(context: CallContext) -> None:\n"
        '    "Never return."\n'
        '    context.progress("stuck")\n'
        "    threading.Event().wait()\n",
    )
    home.script("stuck", [{"calls": [{"name": "stuck"}]}, "never"])
    live = start("x", "-m", "script:stuck", "-t", "stuck.py:stuck", "--session", "a")
    live.wait_for("… stuck")
    live.interrupt()
    assert live.code() == 130  # after the grace period of 5 s
    assert results(home.events("a")) == ["detached"]


def test_ctrl_c_while_it_asks_leaves_the_call_waiting(home: Home, start: Start) -> None:
    home.script("wipe", [{"calls": [{"name": "wipe", "arguments": {"path": "/x"}}]}, "Done."])
    live = start("x", "-m", "script:wipe", "-t", "tools.py:wipe", "--session", "a", terminal=True, NO_COLOR="1")
    live.wait_for("[s]kip: ")
    live.interrupt()
    assert live.code() == 130
    assert results(home.events("a")) == ["deferred"]
