"""Who holds a lease: a process, and whether it still lives. Knows nothing of databases."""

from __future__ import annotations

import json
import os
import socket
import sys
from functools import cache
from pathlib import Path

import attrs


@attrs.frozen(kw_only=True)
class Holder:
    """One process. `boot` and `namespace` say where its number counts, `started` tells it from a later one of that
    number (clock ticks after boot, field 22 of /proc/PID/stat, man 5 proc). All three are empty off Linux.
    """

    host: str
    pid: int
    boot: str = ""
    namespace: str = ""
    started: int = 0

    def __str__(self) -> str:
        here = " (this process)" if self == this_process() else ""
        return f"process {self.pid} on {self.host}{here}"

    def to_text(self) -> str:
        """As it stands in `lease_holder`."""
        return json.dumps(attrs.asdict(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Holder:
        """The inverse. Raises `ValueError` or `TypeError` for anything else."""
        return cls(**json.loads(text))

    def is_dead(self) -> bool:
        """Whether this process has certainly ended. False also means: cannot be told from here."""
        me = this_process()
        if not self.started or (self.boot, self.namespace) != (me.boot, me.namespace):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # somebody else's process: there, and perhaps a later one of that number
        state, started = _stat(self.pid)
        return state in ("Z", "X") or started not in (0, self.started)


def this_process() -> Holder:
    """The running process; right also after a fork."""
    return _process(os.getpid())


@cache
def _process(pid: int) -> Holder:
    host = socket.gethostname()
    if sys.platform != "linux":
        return Holder(host=host, pid=pid)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return Holder(host=host, pid=pid)
    return Holder(host=host, pid=pid, boot=boot, namespace=namespace, started=_stat(pid)[1])


def _stat(pid: int) -> tuple[str, int]:
    """State and start of a process; empty and 0 where they cannot be read (hidepid, a race with its end)."""
    try:
        # The second field is the command's name in brackets, which may hold blanks and brackets itself.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError, ValueError):
        return "", 0


__all__ = ["Holder", "this_process"]
