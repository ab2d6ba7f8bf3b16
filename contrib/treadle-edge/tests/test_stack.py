from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from treadle import Agent, Stack
from treadle_edge import STACK
from treadle_script import Script, ScriptModel

HERE = Path(__file__).resolve().parents[1]


def test_the_stack_is_a_script_and_memory() -> None:
    assert STACK == {"plugins": ("script",), "settings": {}, "store": "memory:"}


def test_it_depends_on_the_kernel_without_extras_and_on_nothing_of_others() -> None:
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["treadle==0.1.*", "treadle-script==0.1.*"]
    assert project["entry-points"]["treadle.stacks"] == {"edge": "treadle_edge:STACK"}


async def test_a_conversation_lives_in_memory_as_long_as_the_stack() -> None:
    model = ScriptModel(["Good morning.", "And good night."])
    async with Stack([Script()], store=STACK["store"]) as stack:
        await stack.run(Agent(model=model), "Hello", session="s")
        second = await stack.run(Agent(model=model), "Bye", session="s")
    assert (second.text, second.turn) == ("And good night.", 2)


def test_a_turn_of_it_loads_neither_a_database_nor_an_http_client_nor_a_converter() -> None:
    program = (
        "import sys\n"
        "from treadle import Agent, Stack\n"
        "from treadle_edge import STACK\n"
        "from treadle_script import Script, ScriptModel\n"
        "print(Stack([Script()], store=STACK['store']).run_sync(Agent(model=ScriptModel(['Hi.'])), 'x').text)\n"
        "print(sorted({'sqlite3', 'httpx', 'cattrs', 'msgspec', 'click', 'rich'} & set(sys.modules)))\n"
    )
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "Hi.\n[]\n"
