"""What waits for a session's writer: a side file, to which any process appends under its lock.

A line is a post, or a list of those that were forgotten. When none is left the file is emptied.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from treadle.codec import converter
from treadle.plugin import (
    Json,
    Post,
    PostCancel,
    PostDecision,
    Posted,
    PostMessage,
    TreadleError,
    UnreadableLog,
    UsageError,
)

from .locks import waited_for

_POSTS: dict[str, type[Posted]] = {"message": PostMessage, "decision": PostDecision, "cancel": PostCancel}
_KINDS = {cls: kind for kind, cls in _POSTS.items()}


class Posts:
    """The posts to one session."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.path, self._busy_seconds = path, busy_seconds

    def stamp(self) -> tuple[int, int, int]:
        """What changes when the file does; looking takes no lock."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return (0, 0, 0)
        return found.st_ino, found.st_size, found.st_mtime_ns

    def pending(self) -> list[Post]:
        """The posts that nobody forgot yet, oldest first. Raises `UnreadableLog` if a whole line is damaged."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return []
        posts: dict[str, Post] = {}
        for number, line in enumerate(raw.split(b"\n")[:-1], 1):  # behind the last newline somebody still writes
            try:
                plain = json.loads(line)
                for post_id in plain.get("forget", ()):
                    posts.pop(post_id, None)
                if "id" in plain:
                    posts[plain["id"]] = Post(plain["id"], converter().structure(plain["data"], _POSTS[plain["kind"]]))
            except TreadleError:
                raise
            except Exception as error:
                remedy = f"Remove that line, which nobody can take: sed -i {number}d '{self.path.name}'"
                reason = f"it is no post ({type(error).__name__}: {error})"
                raise UnreadableLog(f"{self.path}, line {number}", reason, remedy) from error
        return list(posts.values())

    async def add(self, post_id: str, what: Posted) -> None:
        """Leave a post. One whose id waits already is there once. Raises `UsageError` if it is none."""
        line = _line({"id": post_id, **_plain(what)})
        async with self._locked() as descriptor:
            if all(post.id != post_id for post in self.pending()):
                os.write(descriptor, line)

    async def forget(self, post_ids: Sequence[str]) -> None:
        """Remove posts; those that are not there do no harm."""
        gone = set(post_ids)
        if gone.isdisjoint(post.id for post in self.pending()):
            return
        async with self._locked() as descriptor:
            if {post.id for post in self.pending()} <= gone:
                os.ftruncate(descriptor, 0)
            else:
                os.write(descriptor, _line({"forget": sorted(gone)}))

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[int]:
        async with waited_for(self.path, self._busy_seconds, os.O_APPEND) as descriptor:
            raw = self.path.read_bytes()
            if raw and not raw.endswith(b"\n"):  # a poster was killed in its write: nobody was told that it arrived
                os.ftruncate(descriptor, raw.rfind(b"\n") + 1)
            yield descriptor


def _line(plain: dict[str, Json]) -> bytes:
    return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _plain(what: Posted) -> dict[str, Json]:
    try:
        plain = {"kind": _KINDS[type(what)], "data": converter().unstructure(what)}
        json.dumps(plain, allow_nan=False)
        return plain
    except TreadleError:
        raise
    except Exception as error:
        raise UsageError(f"{what!r:.200} cannot be posted ({type(error).__name__}: {error}).") from error


__all__ = ["Posts"]
