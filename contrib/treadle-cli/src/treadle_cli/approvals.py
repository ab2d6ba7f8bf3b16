"""Decisions about calls that wait: from options, or asked of the person at the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union

from treadle import Allow, Answer, Deny
from treadle.plugin import Call, Json, UsageError

from .lines import Lines
from .screen import Screen, signature

Decision: TypeAlias = Union[Allow, Deny, Answer]

ALL = "all"
_CHOICES = "? [y]es, [n]o, [e]dit, [s]kip: "
NOBODY = "The user did not allow it."


def by_options(waiting: Sequence[Call], allow: Sequence[str], deny: Sequence[str]) -> dict[str, Decision]:
    """What `--approve` and `--deny` say of the calls that wait. Both name a call's id, a tool, or all; deny wins."""
    out: dict[str, Decision] = {}
    for call in waiting:
        if _named(call, deny):
            out[call.id] = Deny(NOBODY)
        elif _named(call, allow):
            out[call.id] = Allow()
    return out


def _named(call: Call, names: Sequence[str]) -> bool:
    return ALL in names or call.id in names or call.name in names


async def by_asking(waiting: Sequence[Call], lines: Lines, screen: Screen) -> dict[str, Decision]:
    """Ask about each call. Calls that are skipped, or left open at the end of the input, are not in the answer."""
    out: dict[str, Decision] = {}
    for call in waiting:
        decision = await _ask(call, lines, screen)
        if decision is not None:
            out[call.id] = decision
        if lines.ended:
            break
    return out


async def _ask(call: Call, lines: Lines, screen: Screen) -> Decision | None:
    what = signature(call.name, call.arguments, screen.width - len(_CHOICES) - 6, screen.ink)
    while True:
        screen.ask(f"{screen.ink.asks('allow')} {what}{_CHOICES}")
        answer = await lines.take()
        if answer is None:
            screen.tell("")
            return None
        word, _, rest = answer.strip().partition(" ")
        if word.lower() in ("y", "yes"):
            return Allow()
        if word.lower() in ("n", "no"):
            return Deny(rest or NOBODY)
        if word.lower() in ("s", "skip"):
            return None
        if word.lower() in ("e", "edit"):
            edited = await _edit(call, rest, lines, screen)
            if edited is not None:
                return Allow(edited)


async def _edit(call: Call, given: str, lines: Lines, screen: Screen) -> Mapping[str, Json] | None:
    """The arguments as the person wants them: an object behind `edit`, or on the next line. None if it is none."""
    if not given:
        screen.tell(f"  now: {call.arguments}")
        screen.ask("  new: ")
        given = await lines.take() or ""
    try:
        value = json.loads(given)
    except ValueError as error:
        screen.tell(f"  That is not JSON ({error}).")
        return None
    if not isinstance(value, dict):
        screen.tell("  Arguments are one JSON object.")
        return None
    return value


def check_names(waiting: Sequence[Call], names: Sequence[str], session: str) -> None:
    """Raise `UsageError` if none of the names is that of a call that waits."""
    if not waiting:
        raise UsageError(f"Nothing waits for a decision in session {session}. Give a prompt.")
    if not any(_named(call, names) for call in waiting):
        known = ", ".join(f"{call.name} ({call.id})" for call in waiting)
        raise UsageError(f"No call that waits is named {', '.join(names)}. Waiting: {known}.")
