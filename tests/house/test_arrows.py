"""The import contracts hold, and each of them notices when it is broken."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BREAKS = {
    "rooms: the kernel imports a plugin": ("rooms", "treadle/events.py", "import treadle_script"),
    "rooms: a plugin imports a plugin": ("rooms", "{plugin}/another.py", "import treadle_script"),
    "doors: a plugin imports the embedder's face": ("doors", "treadle_script/another.py", "from treadle import Agent"),
    "doors: a plugin reaches into the kernel": ("doors", "treadle_script/another.py", "import treadle.loop"),
    "floors: a value imports its user": ("floors", "treadle/messages.py", "from . import errors"),
    "floors: a circle is hidden in a function": ("floors", "treadle/session.py", "def f():\n    from . import loop"),
    "floors: a circle is hidden from the running program": (
        "floors",
        "treadle/store.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .driver import Driver",
    ),
    "floors: a new module stands on no floor": ("floors", "treadle/another.py", ""),
    "functions: a lower module imports a higher": ("functions", "treadle/functions/records.py", "from . import shapes"),
    "pluggy: the loop knows pluggy": ("pluggy", "treadle/loop.py", "import pluggy"),
    "extras: a value needs cattrs": ("extras", "treadle/messages.py", "import cattrs"),
}


@pytest.fixture
def copy(tmp_path, root, members):
    """The sources of all members in one folder, with the root's configuration: a place to break things in."""
    for member in members:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(member.folder / "src" / member.module, tmp_path / member.module, ignore=ignored)
    shutil.copy(root / "pyproject.toml", tmp_path)
    return tmp_path


def lint(folder, *arguments):
    """What `lint-imports` says of the sources in a folder, which stand before the installed ones."""
    program = Path(sys.executable).with_name("lint-imports")
    env = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"}
    command = [program, "--no-cache", "--no-logo", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_the_arrows_run_downward(copy):
    done = lint(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", BREAKS)
def test_a_contract_fails_when_it_is_broken(name, copy, members):
    contract, file, line = BREAKS[name]
    plugins = [each.module for each in members if each.folder.parent.name == "plugins"]
    path = copy / file.format(plugin=next(each for each in plugins if each != "treadle_script"))
    path.write_text((path.read_text("utf-8") if path.exists() else "") + f"\n{line}\n", encoding="utf-8")
    done = lint(copy, "--contract", contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 broken" in done.stdout


def test_only_the_host_uses_pluggys_manager(members):
    used = set()
    for path in (members[0].folder / "src").rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
        if "PluginManager" in names:
            used.add(path.name)
    assert used == {"host.py"}
