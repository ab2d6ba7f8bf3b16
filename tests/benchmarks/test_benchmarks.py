"""The benchmark measures what it says. Nothing here depends on how long anything takes."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FLOOR = "16de927c551f5db050b389d1fad37c6c042819784a347f033577a89a65224a73"


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_floor_is_the_one_that_all_published_ratios_stand_on():
    assert hashlib.sha256((HERE / "floor.py").read_bytes()).hexdigest() == FLOOR


@pytest.mark.parametrize("side", ["floor", "treadle"])
@pytest.mark.parametrize(
    ("task", "params"),
    [
        ("turn", {"steps": 5, "repeats": 2}),
        ("turn", {"steps": 2, "repeats": 1, "calls": 3, "tool": "nap"}),
        ("turn", {"steps": 5, "repeats": 1, "plugins": 2}),
        ("stream", {"deltas": 20, "repeats": 2}),
        ("many", {"turns": 3}),
    ],
)
def test_a_worker_does_its_task_and_prints_numbers(side, task, params):
    done = ran("--worker", side, task, json.dumps(params))
    assert done.returncode == 0, done.stderr
    assert {"clock", "cpu"} <= set(json.loads(done.stdout))


def test_a_worker_on_trio_does_its_task():
    done = ran("--worker", "treadle, trio", "turn", '{"steps": 3, "repeats": 1}')
    assert done.returncode == 0, done.stderr


def test_a_task_that_is_none_is_refused_by_name():
    done = ran("--tasks", "C,X")
    assert done.returncode == 2
    assert "there is no task X; tasks: A, C, D, E, F, G, H" in done.stderr


@pytest.mark.slow
def test_the_quick_table_has_versions_the_floor_and_lines_of_each_task():
    done = ran("--quick")
    assert done.returncode == 0, done.stderr
    about, floor, _, *lines = done.stdout.splitlines()
    assert re.search(r"Python 3\.\d+\.\d+ .*treadle .*pluggy .*attrs .*anyio ", about)
    assert floor == f"floor {FLOOR}"
    assert {line[0] for line in lines} == set("ACDEFGH")
