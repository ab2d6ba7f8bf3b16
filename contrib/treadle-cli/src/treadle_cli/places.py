"""Where the command line keeps sessions if nobody says otherwise."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

SQLITE = "sqlite:///"


def data_folder(environ: Mapping[str, str] | None = None) -> Path:
    """`$TREADLE_HOME`, else treadle's folder among the user's data.

    That is `$XDG_DATA_HOME/treadle` or `~/.local/share/treadle` (XDG Base Directory Specification, which says to ignore
    a relative path), and `%LOCALAPPDATA%` on Windows.
    """
    env = os.environ if environ is None else environ
    if home := env.get("TREADLE_HOME"):
        return Path(home).absolute()
    if sys.platform == "win32" and (local := env.get("LOCALAPPDATA")):
        return Path(local) / "treadle"
    given = env.get("XDG_DATA_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "share") / "treadle"


def default_store(environ: Mapping[str, str] | None = None) -> str:
    """The reference of the default store, a SQLite file in the data folder."""
    return f"{SQLITE}{data_folder(environ) / 'sessions.db'}"


def file_of(store: str) -> Path | None:
    """The file that a SQLite reference names, None for any other reference."""
    return Path(store.removeprefix(SQLITE)).absolute() if store.startswith(SQLITE) else None
