"""The test command: it goes on after a failure, tells no lies about it, and is what CI runs."""

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture
def runner(run):
    return run.Runner(pythons={"3.11": Path(sys.executable)}, env=dict(os.environ), uv="uv")


def outcomes(runner):
    return [row.outcome for row in runner.rows]


def test_a_command_that_fails_is_kept_and_the_next_one_runs(runner, run, capfd):
    runner.do("tests", "first", sys.executable, "-c", "raise SystemExit(3)")
    runner.do("tests", "second", sys.executable, "-c", "print('it ran')")
    assert outcomes(runner) == ["FAILED", "passed"]
    assert run.report(runner.rows, 1.0) == 1
    assert "it ran" in capfd.readouterr().out


def test_a_run_in_which_all_passed_exits_with_zero(runner, run, capfd):
    runner.do("tests", "only", sys.executable, "-c", "")
    assert run.report(runner.rows, 1.0) == 0
    assert capfd.readouterr().out.endswith("commands: 1 passed, 0 failed\n")


def test_a_run_that_ran_nothing_is_a_failure(run, capfd):
    assert run.report([], 1.0) == 1


def test_a_lane_without_tests_passes_only_where_that_is_lawful(runner, capfd):
    no_tests = (sys.executable, "-c", "raise SystemExit(5)")
    runner.do("services", "none", *no_tests, may_be_empty=True)
    runner.do("tests", "none", *no_tests)
    assert outcomes(runner) == ["no tests", "FAILED"]


def test_a_shim_that_leads_nowhere_is_no_interpreter(run, tmp_path):
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    assert not run.answers(shim, "3.12")


def test_an_interpreter_of_another_version_does_not_count(run):
    mine = "{}.{}".format(*sys.version_info)
    assert run.answers(Path(sys.executable), mine)
    assert not run.answers(Path(sys.executable), "3.10")


def test_no_setting_of_the_machine_reaches_the_tests(run, monkeypatch):
    monkeypatch.setenv("TREADLE_PLUGINS", "shell")
    monkeypatch.setenv("TREADLE_SHARED", "here")
    env = run.environment()
    assert "TREADLE_PLUGINS" not in env
    assert env["TREADLE_SHARED"] == "here"


def test_ci_runs_the_command_of_the_contributors_page_and_nothing_else(root):
    lines = (root / ".ci" / "run").read_text("utf-8").splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[2:] == ["exec python3 tests/run.py"]
    for page in ("CONTRIBUTING.md", "README.md"):
        if (root / page).exists():
            assert "python3 tests/run.py\n" in (root / page).read_text("utf-8")
