"""What callers get of what they sent: receipts, what became of a message, how a turn came out."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, Union

import anyio
import attrs

from .errors import BudgetExceeded, Dropped, Parked, TurnNotCompleted
from .events import DropReason, Ending
from .messages import Call, Message, Usage
from .model import FinishReason


@attrs.frozen(kw_only=True)
class Result:
    """How a turn came out.

    `text` is the last reply's words, `output` the decoded value where `output=` was asked for (None, and `output_error`
    says why, if the model gave none), `messages` all that entered the conversation in this turn. `reason` is how it
    ended and `detail` what of (the limit, the cause, the failure); `finish` why the model stopped last. `waiting` are
    the calls that wait for a decision. `cost` is None where no plugin knows prices.
    """

    text: str
    output: Any
    messages: tuple[Message, ...]
    usage: Usage
    cost: float | None
    reason: Ending
    detail: str
    finish: FinishReason | None
    session: str
    turn: int
    steps: int
    waiting: tuple[Call, ...]
    output_error: str = ""

    def check(self) -> Result:
        """Itself, if the turn completed with what was asked; else raises `BudgetExceeded` or `TurnNotCompleted`."""
        if self.reason == "completed" and not self.output_error:
            return self
        kind = BudgetExceeded if self.reason == "limit" else TurnNotCompleted
        raise kind(self.session, self.reason, self.detail)


@attrs.frozen
class Entered:
    """The message entered a turn, which has ended with this result."""

    result: Result


@attrs.frozen
class WasDropped:
    """The message left the inbox: withdrawn, cancelled or rejected."""

    why: DropReason
    detail: str = ""


@attrs.frozen
class IsParked:
    """The session idles and the message still waits; a wake, nudge or withdraw moves it.

    `ending` is how the last turn ended, `detail` what of.
    """

    ending: str
    detail: str = ""


Fate: TypeAlias = Union[Entered, WasDropped, IsParked]


class Sender(Protocol):
    """What a receipt needs of the driver that gave it."""

    @property
    def session_id(self) -> str: ...
    def not_inside(self, method: str) -> None:
        """Raise `Reentrant` in the session's own turn."""
        ...

    def check_fault(self) -> None:
        """Raise the store's fault, if there is one."""
        ...

    async def withdraw(self, message_id: str) -> bool:
        """Take a pending message back."""
        ...


class Receipt:
    """What a caller holds of a message (or a decision) it sent. It is durable when the receipt is returned."""

    def __init__(self, driver: Sender, id: str) -> None:
        self._driver, self.id = driver, id
        self._known: Fate | None = None
        self._event: anyio.Event | None = None
        self.turn: int | None = None
        """The turn it entered, as soon as it did."""

    async def fate(self) -> Fate:
        """Wait for what becomes of it. Cancelling the wait harms nothing. Raises the fault if the store fails."""
        self._driver.not_inside("a receipt")
        while self._known is None:
            self._driver.check_fault()
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        return self._known

    async def result(self) -> Result:
        """The result of its turn; raises `Dropped` or `Parked` if it entered none."""
        fate = await self.fate()
        if isinstance(fate, Entered):
            return fate.result
        if isinstance(fate, WasDropped):
            raise Dropped(self.id, fate.why, fate.detail)
        raise Parked(self._driver.session_id, self.id, fate.ending, fate.detail)

    async def withdraw(self) -> bool:
        """Take the message back; False if it no longer pends."""
        return await self._driver.withdraw(self.id)

    def settle(self, fate: Fate) -> None:
        self._known = fate
        self.wake()

    def wake(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None
