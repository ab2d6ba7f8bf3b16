"""`treadle chat`: a conversation at the terminal. What is typed while it works steers it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal, TypeAlias

import anyio
from anyio import CancelScope

from treadle import Driver

from .approvals import by_asking
from .composition import Acting, Composed, make_agent
from .exits import BUDGET, FAILED, OK, WAITING
from .interrupts import Interrupts, listening
from .lines import Lines, read_lines
from .screen import Screen
from .showing import Show
from .turns import name_of, opened

Busy: TypeAlias = Literal["steer", "queue"]
"""What a line does that comes while a turn runs: it aims at the next step, or waits for the next turn."""

HELP = """\
  /cancel   end the turn        /session  which session this is
  /exit     leave               /help     this
While it works, what you type steers it. Ctrl-C ends the turn; at the prompt it leaves."""


async def chat(acting: Acting, composed: Composed, screen: Screen, *, busy: Busy, interactive: bool) -> int:
    """Talk until the input ends, `/exit`, or Ctrl-C at the prompt; return the exit code.

    At a terminal leaving is 0. Elsewhere the code is that of the last turn, for scripts.
    """
    agent = make_agent(acting, composed)
    code, interrupted = OK, True
    async with (
        listening() as interrupts,
        opened(agent, acting, composed, screen, interrupts) as (driver, show, reference),
    ):
        name = name_of(composed, reference) if reference is not None else "in memory, gone afterwards"
        async with read_lines(sys.stdin) as lines:
            talk = Talk(driver, show, lines, interrupts, busy=busy, interactive=interactive, name=name)
            try:
                await talk.run()
            finally:
                talk.part()
        interrupted = talk.interrupted
        code = OK if interactive else talk.last_code()
    return interrupts.code if interrupted else code


class Talk:
    """One conversation. It is idle at the prompt, or a turn runs."""

    def __init__(
        self,
        driver: Driver,
        show: Show,
        lines: Lines,
        interrupts: Interrupts,
        *,
        busy: Busy,
        interactive: bool,
        name: str,
    ) -> None:
        self.driver, self.show, self.screen, self.lines = driver, show, show.screen, lines
        self.interrupts, self.busy, self.interactive, self.name = interrupts, busy, interactive, name
        self.leaving = False
        self.interrupted = False  # a signal made it leave
        self._presses = 0  # Ctrl-C in this turn
        interrupts.asked = self.interrupt

    def greet(self) -> None:
        if self.interactive:
            agent = self.driver.agent
            model = agent.model if isinstance(agent.model, str) else agent.model.ref
            self.screen.progress(self.screen.ink.dim(f"{model}. /help lists commands, Ctrl-D leaves."))

    def part(self) -> None:
        """Say what the session is called, below an open prompt."""
        if self.interrupted and not self._presses > 1:
            self.screen.tell("")
        if self.driver.seq:
            self.screen.progress(self.screen.ink.dim(f"session {self.name}"))

    async def run(self) -> None:
        """Prompt after prompt."""
        self.greet()
        while not self.leaving and not self.show.broken:
            if self.interactive:
                self.screen.ask(self.screen.ink.bold("> "))
            line = await self.lines.take()
            if line is None:
                if self.interactive:
                    self.screen.tell("")
                return
            if not line.strip() or await self.command(line):
                continue
            await self.driver.follow_up(line)
            await self.work()
            await self.approve()

    async def work(self) -> None:
        """Wait until the session idles, taking lines meanwhile if they steer."""
        self._presses = 0
        while self.driver.running:
            async with anyio.create_task_group() as group:
                if self.busy == "steer":
                    group.start_soon(self._listen)
                await self.driver.until_idle()
                group.cancel_scope.cancel()
        await self.show.caught_up()

    async def _listen(self) -> None:
        while (line := await self.lines.peek()) is not None:
            with CancelScope(shield=True):  # a line that was taken reaches the log
                self.lines.drop()
                if line.strip() and not await self.command(line):
                    await self.driver.steer(line)
                    self.screen.progress(self.screen.ink.dim("  (for the next step)"))

    async def approve(self) -> None:
        """Ask about the calls for which the turn that just ended waits; and again, after each turn that this opens."""
        while self.show.end is not None and self.show.end.reason == "waiting" and not self.leaving:
            decisions = await by_asking(self.driver.waiting, self.lines, self.screen)
            if not decisions:
                return
            await self.driver.decide(decisions)
            await self.work()

    async def command(self, line: str) -> bool:
        """Do what a line beginning with `/` says; False if it is none of the commands."""
        word = line.strip()
        commands: dict[str, Callable[[], object]] = {
            "/exit": self.leave,
            "/quit": self.leave,
            "/cancel": self.cancel,
            "/session": lambda: self.screen.tell(f"session {self.name}"),
            "/help": lambda: self.screen.tell(HELP),
        }
        if word not in commands:
            return False
        commands[word]()
        return True

    def leave(self) -> None:
        self.leaving = True
        self.driver.cancel("all", cause="the user left")

    def cancel(self) -> None:
        if not self.driver.cancel("all", cause="cancelled by the user"):
            self.screen.tell("Nothing runs.")

    def interrupt(self) -> None:
        """Ctrl-C, or a polite kill: end the turn; at the prompt, or when it comes again, leave."""
        self._presses += 1
        running = self.driver.cancel("all", cause="Ctrl-C")
        if running and self._presses == 1:
            self.screen.say_cancelling()
        if self._presses > 1 or not running:
            self.interrupted = self.leaving = True
            if not running:
                self.interrupts.scope.cancel()

    def last_code(self) -> int:
        """The exit code that says how the last turn ended."""
        reason = self.show.end.reason if self.show.end is not None else "completed"
        return {"completed": OK, "waiting": WAITING, "limit": BUDGET}.get(reason, FAILED)
