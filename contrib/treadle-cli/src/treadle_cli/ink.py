"""Colour, and text made safe to show. Knows no events."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TextIO

import attrs
import click

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Whether to colour what goes to `stream`: on a terminal, unless NO_COLOR (no-color.org) or FORCE_COLOR decide."""
    env = os.environ if environ is None else environ
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return env["FORCE_COLOR"] != "0"
    return stream.isatty() and env.get("TERM") != "dumb"


@attrs.frozen
class Ink:
    """Paints text, or leaves it plain."""

    on: bool

    def dim(self, text: str) -> str:
        return self._paint(text, dim=True)

    def bold(self, text: str) -> str:
        return self._paint(text, bold=True)

    def good(self, text: str) -> str:
        return self._paint(text, fg="green")

    def bad(self, text: str) -> str:
        return self._paint(text, fg="red")

    def asks(self, text: str) -> str:
        return self._paint(text, fg="yellow")

    def name(self, text: str) -> str:
        return self._paint(text, fg="cyan")

    def _paint(self, text: str, **style: str | bool) -> str:
        return click.style(text, **style) if self.on else text  # type: ignore[arg-type]


def shown(text: str) -> str:
    """Text without control characters, so that what a model or tool wrote cannot steer the terminal."""
    return _CONTROLS.sub("�", text)


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters; what was cut is counted."""
    line = shown(" ".join(text.split()))
    if len(line) <= width:
        return line
    left = f"… ({len(text)} characters)"
    return line[: max(1, width - len(left))] + left
