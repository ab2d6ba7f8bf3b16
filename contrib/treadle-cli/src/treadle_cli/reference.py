"""The reference of all hooks, printed from the specs themselves."""

from __future__ import annotations

import inspect
import re

import attrs

from treadle.hooks import JOINS, Specs
from treadle.plugin import Json, UsageError

from .ink import Ink, wants_colour
from .screen import Screen

JOINED = {
    "nested": "Each wraps the next; the first in the stack's order is outermost.",
    "first": "The first answer that is not None counts.",
    "gather": "All answers are collected, in order.",
    "waterfall": "Each gets what the one before returned.",
    "guards": "Every guard is asked; the strictest verdict counts.",
    "notify": "All are told; nobody answers.",
}
FAULTS = {
    "raise": "raised to the caller",
    "fail_turn": "fails the turn",
    "fail_step": "fails the step",
    "deny": "denies the call",
    "error_result": "becomes an error result of the call",
    "contain": "contained and reported to on_hook_error",
    "silent": "dropped",
}


@attrs.frozen(kw_only=True)
class Hook:
    """One spec, as text."""

    name: str
    signature: str
    joined: str
    fault: str
    sync: bool
    reverse: bool
    text: str

    @property
    def rule(self) -> str:
        """How the answers are joined."""
        order = " In reverse order of the stack." if self.reverse else ""
        return JOINED[self.joined] + order

    @property
    def kind(self) -> str:
        """Which implementations it takes."""
        return "sync only" if self.sync else "sync or async"


def hooks() -> tuple[Hook, ...]:
    """All hooks of the kernel, in the order in which it declares them."""
    return tuple(_hook(name) for name in JOINS)


def _hook(name: str) -> Hook:
    spec, join = getattr(Specs, name), JOINS[name]
    signature = inspect.signature(spec)
    kept = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    return Hook(
        name=name,
        signature=f"{name}{_unquoted(signature.replace(parameters=kept))}",
        joined=join.joined,
        fault=join.fault,
        sync=join.sync,
        reverse=join.reverse,
        text=inspect.cleandoc(spec.__doc__ or ""),
    )


def _unquoted(signature: inspect.Signature) -> str:
    # Annotations are text in the specs' module, and are shown in quotes otherwise.
    return re.sub(r"'([^']*)'", r"\1", str(signature))


def print_reference(screen: Screen, name: str | None, *, markdown: bool) -> None:
    """Print one hook or all."""
    chosen = [hook for hook in hooks() if name in (None, hook.name)]
    if not chosen:
        raise UsageError(f'There is no hook "{name}". Hooks: {", ".join(JOINS)}.')
    if screen.form == "json":
        screen.document([plain(hook) for hook in chosen])
    elif markdown:
        screen.out.write("\n\n".join(as_markdown(hook) for hook in chosen) + "\n")
    else:
        ink = Ink(wants_colour(screen.out))
        screen.out.write("\n\n".join(as_text(hook, ink) for hook in chosen) + "\n")


def plain(hook: Hook) -> dict[str, Json]:
    """A hook as plain data."""
    return {**attrs.asdict(hook), "rule": hook.rule}


def as_text(hook: Hook, ink: Ink) -> str:
    """A hook for the terminal."""
    doc = "\n".join(f"    {line}" if line else "" for line in hook.text.split("\n"))
    head = ink.bold(hook.name) + hook.signature.removeprefix(hook.name)
    joined = ink.dim(f"    {hook.joined} ({hook.kind}): {hook.rule}")
    return f"{head}\n{joined}\n{ink.dim(f'    A fault or time-out: {FAULTS[hook.fault]}.')}\n{doc}"


def as_markdown(hook: Hook) -> str:
    """A hook for the documentation."""
    return (
        f"### `{hook.name}`\n\n```python\n{hook.signature}\n```\n\n"
        f"*Joined:* {hook.joined} ({hook.kind}). {hook.rule}  \n"
        f"*A plugin's fault or time-out:* {FAULTS[hook.fault]}.\n\n{hook.text}"
    )
