"""Exclusive locks of files (`flock`, man 2 flock): the kernel frees them when their process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from treadle.plugin import SessionBusy, StoreFault

_RETRY_SECONDS = 0.002


def locked(path: Path, flags: int = 0) -> int | None:
    """A descriptor of the file, made if need be and locked; None if somebody else has the lock.

    Whoever had it may have removed the file meanwhile: a lock of a file that no longer stands there is worth nothing.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        if stands_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def stands_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that stands at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


class SessionLock:
    """One session's lease: held until released, or until this process ends.

    It does not run out. A writer that hangs keeps its session until somebody ends it, or removes the lock's file by
    hand: then its next append finds that, and is refused.
    """

    def __init__(self, path: Path, session_id: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = locked(path)
        if descriptor is None:
            raise SessionBusy(session_id, _holder(path))
        self._path, self._descriptor, self._process = path, descriptor, os.getpid()
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {self._process} on {socket.gethostname()}".encode())

    @property
    def is_held(self) -> bool:
        """Whether it is still this process's: not released, not removed, not carried into a child by `os.fork`."""
        mine = self._descriptor >= 0 and os.getpid() == self._process
        return mine and stands_at(self._descriptor, self._path)

    def release(self) -> None:
        """Give it back. Safe to call twice."""
        if self._descriptor < 0:
            return
        if self.is_held:
            self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1


def _holder(path: Path) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        text = ""
    mine = text.startswith(f"process {os.getpid()} on ")
    return (text or "another process") + (" (this process)" if mine else "")


@asynccontextmanager
async def waited_for(path: Path, seconds: float, flags: int = 0) -> AsyncIterator[int]:
    """Hold the lock of a file that others hold only for moments. Raises `StoreFault` if one keeps it for `seconds`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = anyio.current_time() + seconds
    while (descriptor := locked(path, flags)) is None:
        if anyio.current_time() > deadline:
            raise StoreFault("*", f"another process kept {path} locked for {seconds:g} seconds. Find it, and end it")
        await anyio.sleep(_RETRY_SECONDS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


__all__ = ["SessionLock", "stands_at", "waited_for"]
