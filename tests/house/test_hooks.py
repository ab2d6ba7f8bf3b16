"""Every hook is documented, and the reference pages say what the code says."""

import inspect
import subprocess
import sys

import pytest

from treadle.hooks import JOINS, Specs

SPECS = [name for name in vars(Specs) if not name.startswith("_")]


def test_every_spec_has_its_place_in_the_table_of_joins():
    assert list(JOINS) == SPECS


@pytest.mark.parametrize("name", SPECS)
def test_a_hooks_docstring_begins_with_one_sentence(name):
    text = inspect.getdoc(getattr(Specs, name))
    assert text
    assert text.splitlines()[0].endswith(".")


@pytest.mark.parametrize("name", SPECS)
def test_the_reference_says_when_none_and_fault(name, root):
    page = (root / "docs" / "reference" / "hooks.md").read_text("utf-8")
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert f"def {name}(" in section
    assert inspect.getdoc(getattr(Specs, name)) in section
    assert "\n- Joined: " in section
    assert "\n- None " in section
    assert "\n- A fault" in section


def test_the_reference_pages_are_as_the_code_is(root):
    command = [sys.executable, str(root / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}Run: python docs/generate.py"
