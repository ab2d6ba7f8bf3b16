"""Which file holds what. Names only; touches no file.

FOLDER/user-42.jsonl              the session
FOLDER/.treadle/locks/user-42     who writes it, while somebody does
FOLDER/.treadle/posts/user-42     what waits for its writer
FOLDER/.treadle/archived/user-42  there if it was put away
FOLDER/.treadle/torn/user-42.SEQ  what a killed writer left behind event SEQ
FOLDER/.treadle/lock              held while a session is forked or deleted
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote, unquote

import attrs

SUFFIX = ".jsonl"
LONGEST = 200
"""Most bytes of a name. File systems allow 255 with suffixes."""


def name_of(session_id: str) -> str:
    """A session's name among files: its id percent-encoded (RFC 3986), a long one cut and told apart by a digest.

    Two ids that a file system takes for one (`a` and `A` where case does not count) are told apart by the file's first
    line, which holds the id.
    """
    name = quote(session_id, safe=" @+=,", errors="surrogatepass")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[:120]}~{digest[:32]}"


def id_of(name: str) -> str:
    """The id that a name stands for, as far as that can be told without its file."""
    return unquote(name, errors="replace")


@attrs.frozen
class Places:
    """The files of one store."""

    folder: Path

    @property
    def _own(self) -> Path:
        return self.folder / ".treadle"

    def session(self, session_id: str) -> Path:
        """The session itself."""
        return self.folder / f"{name_of(session_id)}{SUFFIX}"

    def lock(self, session_id: str) -> Path:
        """Held by its writer."""
        return self._own / "locks" / name_of(session_id)

    def posts(self, session_id: str) -> Path:
        """What waits for its writer."""
        return self._own / "posts" / name_of(session_id)

    def archived(self, session_id: str) -> Path:
        """There if the session was put away."""
        return self._own / "archived" / name_of(session_id)

    def torn(self, session_id: str, seq: int) -> Path:
        """Where the torn tail behind event `seq` is kept."""
        return self._own / "torn" / f"{name_of(session_id)}.{seq}"

    def fresh(self, session_id: str) -> Path:
        """A session in the making."""
        return self._own / "fresh" / name_of(session_id)

    @property
    def store_lock(self) -> Path:
        """Held while sessions are forked or deleted."""
        return self._own / "lock"

    def sessions(self) -> list[Path]:
        """The files of all sessions; none if the folder is not there."""
        return sorted(self.folder.glob(f"*{SUFFIX}")) if self.folder.is_dir() else []


__all__ = ["Places", "id_of"]
