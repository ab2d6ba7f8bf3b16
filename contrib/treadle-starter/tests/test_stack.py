from __future__ import annotations

import tomllib
from pathlib import Path

from treadle_starter import STACK

HERE = Path(__file__).resolve().parents[1]


def test_every_plugin_of_the_stack_is_a_dependency() -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    required = {each.split("==")[0] for each in project["dependencies"]}
    assert {f"treadle-{name}" for name in STACK["plugins"]} <= required


def test_the_entry_point_names_the_stack() -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["treadle.stacks"] == {"starter": "treadle_starter:STACK"}


def test_the_stack_is_plain_data() -> None:
    assert STACK == {
        "plugins": ("http", "local", "script", "sqlite"),
        "settings": {},
        "store": "sqlite:///treadle.db",
    }
