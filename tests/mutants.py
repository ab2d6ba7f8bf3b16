"""Mutation testing of the kernel's core: `python tests/mutants.py grammar` prints the score and what survived.

Each mutant is a small wrong change of one module; a good test fails on it. The module, the kernel and the tests that
know it are copied into a folder of their own, so that nothing here is touched. Needs mutmut 3 (`pip install mutmut`),
and the environment that the tests need. Slow: minutes for a module. What survives for a reason stands in
`docs/explanation/mutants.md`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNEL = ROOT / "kernel"
SCRIPT = ROOT / "plugins" / "treadle-script" / "src" / "treadle_script"
TESTS = {
    "grammar": ("grammar", "resume", "rebuild"),
    "session": ("session", "resume", "host", "driver"),
    "calls": ("calls", "cancel", "resume", "host", "tools"),
    "loop": ("loop", "cancel", "resume", "rebuild", "host", "driver"),
    "host": ("host", "stack", "loop", "calls", "cancel"),
    "driver": ("driver", "cancel", "resume", "loop", "stack"),
}
"""The test files that know a module, quickest first. Properties and long searches are left out: too slow for each."""

SETTINGS = """\
[mutmut]
source_paths = src
only_mutate = src/treadle/{module}.py
pytest_add_cli_args_test_selection =
{tests}
use_git_change_detection = false

[tool:pytest]
addopts = --import-mode=importlib -p no:cacheprovider -m "not slow"
filterwarnings = error
anyio_mode = auto
markers =
    slow: long
"""


def prepared(module: str, folder: Path) -> Path:
    """The copy that mutmut works in."""
    for source, name in ((KERNEL / "src" / "treadle", "treadle"), (SCRIPT, "treadle_script")):
        shutil.copytree(source, folder / "src" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").mkdir()
    names = [f"test_{name}.py" for name in TESTS[module]]
    for name in ("conftest.py", *names):
        shutil.copy(KERNEL / "tests" / name, folder / "tests" / name)
    listed = "\n".join(f"    tests/{name}" for name in names)
    (folder / "setup.cfg").write_text(SETTINGS.format(module=module, tests=listed), "utf-8")
    return folder


def main() -> int:
    """Run mutmut over the modules named; the score of each is printed. Exit code 0, whatever survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", choices=[[], *TESTS], default=[], help="which; all if none is named")
    parser.add_argument("--children", default=str(os.cpu_count() or 1), help="how many mutants are tried at once")
    given = parser.parse_args()
    mutmut = Path(sys.executable).parent / "mutmut"
    for module in given.modules or TESTS:
        with tempfile.TemporaryDirectory(prefix="mutants-") as made:
            folder = prepared(module, Path(made))
            subprocess.run([mutmut, "run", "--max-children", given.children], cwd=folder, stdout=subprocess.DEVNULL)
            listed = subprocess.run([mutmut, "results", "--all", "true"], cwd=folder, capture_output=True, text=True)
            results = dict(line.strip().rsplit(": ", 1) for line in listed.stdout.splitlines() if ": " in line)
            for name in (name for name, status in results.items() if status not in ("killed", "timeout")):
                shown = subprocess.run([mutmut, "show", name], cwd=folder, capture_output=True, text=True)
                print(shown.stdout)
            statuses = Counter(results.values())
            killed = statuses["killed"] + statuses["timeout"]
            print(f"{module}: {killed} of {len(results)} killed; {dict(statuses)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
