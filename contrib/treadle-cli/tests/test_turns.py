from __future__ import annotations

import io
import os
import signal
from typing import TYPE_CHECKING

import anyio
import pytest

from treadle_cli.composition import Acting, Composing, compose
from treadle_cli.interrupts import listening
from treadle_cli.screen import Screen
from treadle_cli.turns import Asked, run_once

if TYPE_CHECKING:
    from conftest import Home


def screen() -> Screen:
    return Screen(io.StringIO(), io.StringIO())


async def test_a_turn_runs_on_either_backend(home: Home) -> None:
    shown = screen()
    acting = Acting(model="script:calc", tools=("tools.py:add",))
    composed = compose(Composing(db="t.db"))
    assert await run_once(Asked(prompt="17 + 25?"), acting, composed, shown) == 0
    assert shown.out.getvalue() == "Let me add.\n17 plus 25 is 42.\n"  # type: ignore[attr-defined]
    assert "  add(a=17, b=25)\n  -> 42\n" in shown.err.getvalue()  # type: ignore[attr-defined]


async def test_a_signal_cancels_what_nobody_else_handles() -> None:
    async with listening() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()
    assert (interrupts.times, interrupts.code) == (1, 130)


async def test_a_signal_asks_and_interrupts_nothing() -> None:
    heard = anyio.Event()
    async with listening() as interrupts:
        interrupts.asked = heard.set
        os.kill(os.getpid(), signal.SIGTERM)
        await heard.wait()
        reached = True
    assert (reached, interrupts.code) == (True, 143)


async def test_the_first_signal_names_the_exit_code() -> None:
    async with listening() as interrupts:
        interrupts.asked = lambda: None
        interrupts.take(signal.SIGINT)
        interrupts.take(signal.SIGTERM)
    assert interrupts.code == 130


async def test_a_fault_in_the_body_comes_out_of_the_listening_block() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with listening():
            raise ValueError("mine")
    assert [f"{error}" for error in caught.value.exceptions] == ["mine"]
