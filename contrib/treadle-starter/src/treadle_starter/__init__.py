"""A stack to begin with, as data: the names of its plugins in order, their settings, and where sessions live."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.plugin import Json

STACK: Mapping[str, Json] = {
    "plugins": ("http", "local", "script", "sqlite"),
    "settings": {},
    "store": "sqlite:///treadle.db",
}
"""`Stack.discover(stack="starter")`, or `treadle --stack starter`. Sessions live in `treadle.db` of this folder."""

__all__ = ["STACK"]
