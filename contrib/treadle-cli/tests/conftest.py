"""A folder, an environment and a home of a test's own; the command in this process, in another, or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 30.0

TOOLS = """
from pathlib import Path

import anyio
from treadle import CallContext, tool


@tool
def add(a: int, b: int) -> int:
    "Add two integers."
    return a + b


@tool(needs_approval=True)
def wipe(path: str) -> str:
    "Wipe a path."
    return f"wiped {path}"


@tool
async def wait(context: CallContext) -> str:
    "Wait for the file go."
    context.progress("waiting")
    while not Path("go").exists():
        await anyio.sleep(0.01)
    return "went"


@tool
async def hold(context: CallContext) -> str:
    "Hold until cancelled, then tidy up until there is a file go."
    context.progress("holding")
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            context.progress("tidying")
            while not Path("go").exists():
                await anyio.sleep(0.01)
    return "never"


def plain(text: str) -> str:
    "Repeat a text."
    return text
"""

CALC = [{"text": "Let me add.", "calls": [{"name": "add", "arguments": {"a": 17, "b": 25}}]}, "17 plus 25 is 42."]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that declares the members of this repository which are on the path but were not installed."""
    folder = tmp_path_factory.mktemp("site")
    for file in [
        ROOT / "kernel/pyproject.toml",
        *ROOT.glob("plugins/*/pyproject.toml"),
        *ROOT.glob("contrib/*/pyproject.toml"),
    ]:
        project = tomllib.loads(file.read_text())["project"]
        try:
            distribution(project["name"])
        except PackageNotFoundError:
            if find_spec(project["name"].replace("-", "_")) is None:
                continue
            declare(folder, project["name"], project["version"], project.get("entry-points", {}))
    return folder


def declare(folder: Path, name: str, version: str, points: Mapping[str, Mapping[str, str]]) -> None:
    """What an installer writes of a distribution (PyPA: Recording installed projects)."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in each.items()) for group, each in points.items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))


class Home:
    """A folder to work in, and the command in it. Sessions of the default store are in its folder `home`."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder = folder
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("TREADLE_", "NO_COLOR", "FORCE_COLOR"))
        }
        paths = [str(site), *(path for path in sys.path if path)]
        own = {"TREADLE_HOME": str(folder / "home"), "PYTHONPATH": os.pathsep.join(paths), "TERM": "xterm"}
        self.env = {**kept, **own, "COLUMNS": "100"}
        (folder / "tools.py").write_text(TOOLS)
        self.script("hi", ["Hello there, friend."])
        self.script("calc", CALC)

    def script(self, name: str, replies: Sequence[Any]) -> str:
        """Write a script; returns the reference of a model that plays it."""
        (self.folder / f"{name}.json").write_text(json.dumps(list(replies)))
        return f"script:{name}"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def declare(self, name: str, version: str, points: Mapping[str, Mapping[str, str]], **modules: str) -> None:
        """Install a distribution here: its metadata and its modules. Seen by processes that begin later."""
        folder = self.folder / "site"
        folder.mkdir(exist_ok=True)
        declare(folder, name, version, points)
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
        if str(folder) not in self.env["PYTHONPATH"]:
            self.env["PYTHONPATH"] = os.pathsep.join([str(folder), self.env["PYTHONPATH"]])

    def here(self, *arguments: str, input: str | None = None, **env: str) -> Result:
        """Run the command in this process."""
        from treadle_cli.commands import treadle

        return CliRunner().invoke(treadle, list(arguments), input=input, env=env)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "treadle_cli", *arguments]

    def run(self, *arguments: str, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own."""
        return subprocess.run(
            self.command(*arguments), input=input, capture_output=True, text=True, cwd=self.folder,
            env={**self.env, **env}, timeout=PATIENCE_SECONDS,
        )  # fmt: skip

    def events(self, *arguments: str) -> list[Any]:
        """A session's events as `sessions show --jsonl` prints them."""
        done = self.here("sessions", "show", "--jsonl", *arguments)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def home(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path, site)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(site))
    for name in [name for name in os.environ if name.startswith(("TREADLE_", "NO_COLOR", "FORCE_COLOR"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    return made


class Live:
    """A process whose output is awaited, on pipes or on a terminal of its own."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str], *, terminal: bool) -> None:
        self.terminal, self.text, self._from = terminal, "", 0
        if terminal:
            self.descriptor, slave = pty.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
            # The terminal must be the process's controlling one, or typing Ctrl-C signals nobody.
            take = "fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
            begin = f"import fcntl, os, sys, termios; {take}; os.execv(sys.argv[1], sys.argv[1:])"
            command = [sys.executable, "-c", begin, *command]
            self.process = subprocess.Popen(
                command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env, start_new_session=True
            )
            os.close(slave)
        else:
            self.descriptor, write = os.pipe()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=write, stderr=write, cwd=folder, env=env
            )
            os.close(write)

    def wait_for(self, words: str) -> str:
        """Read on until `words` appear behind what was awaited before; returns what came up to them."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (at := self.text.find(words, self._from)) < 0:
            if not self._read(deadline):
                raise AssertionError(f"{words!r} never came; there was:\n{self.text}")
        start, self._from = self._from, at + len(words)
        return self.text[start : self._from]

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.descriptor], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(self.descriptor, 65536) if ready else b""
        except OSError:  # Linux says EIO when the last process left the terminal
            data = b""
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C: typed on a terminal, else as the signal it becomes."""
        if self.terminal:
            self.type("\x03")
        else:
            self.process.send_signal(signal.SIGINT)

    def code(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.descriptor)


Start = Callable[..., Live]


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    """Start the command; `terminal=True` gives it a terminal."""
    running: list[Live] = []

    def begin(*arguments: str, terminal: bool = False, **env: str) -> Live:
        made = Live(home.command(*arguments), home.folder, {**home.env, **env}, terminal=terminal)
        running.append(made)
        return made

    yield begin
    for each in running:
        each.close()
