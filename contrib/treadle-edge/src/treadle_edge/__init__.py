"""The smallest stack, as data: a scripted model and sessions in memory. All of it is pure Python."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.plugin import Json

STACK: Mapping[str, Json] = {"plugins": ("script",), "settings": {}, "store": "memory:"}
"""`Stack.discover(stack="edge")`."""

__all__ = ["STACK"]
