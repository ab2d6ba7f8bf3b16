"""What can be set, and which file a reference names. Imports nothing heavy and touches no file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from treadle.plugin import Json, SettingsError, UsageError

FORMS = "Write sqlite:///relative.db or sqlite:////absolute/path.db"


def _positive(_: object, field: attrs.Attribute[Json], value: float) -> None:
    if not value > 0:
        raise SettingsError("sqlite", field.name, f"{value!r} is not a positive number of seconds.")


def _durability(_: object, field: attrs.Attribute[Json], value: str) -> None:
    if value not in ("normal", "full"):
        raise SettingsError("sqlite", field.name, f'{value!r} is neither "normal" nor "full".')


@attrs.frozen(kw_only=True)
class SqliteSettings:
    """How the store trades speed for safety.

    `durability` "normal" survives a killed process; only a power cut can take the last commits, never the file.
    "full" survives a power cut too: each append waits for the disk, on a thread of its own.
    `busy_seconds` is how long a write waits for another process's transaction. `lease_seconds` is how long a writer
    that fell silent keeps its session; one that died on this host loses it at once. `poll_seconds` is how soon
    `tail` and `posted` see what other processes wrote.
    """

    durability: Literal["normal", "full"] = attrs.field(default="normal", validator=_durability)
    busy_seconds: float = attrs.field(default=10.0, validator=_positive)
    lease_seconds: float = attrs.field(default=60.0, validator=_positive)
    poll_seconds: float = attrs.field(default=0.1, validator=_positive)


def file_of(ref: str) -> Path | None:
    """The absolute path that a reference names; None if the reference is not ours.

    The forms are SQLAlchemy's (its page "SQLite", section "Connect Strings"): what follows the third slash is the
    path as it stands, so three slashes name a relative and four an absolute one. A relative path counts from the
    current folder at this moment, whatever folder the process changes to later.
    """
    scheme, colon, rest = ref.partition(":")
    if scheme != "sqlite" or not colon:
        return None
    if rest in ("", "//", "///", "///:memory:"):
        raise UsageError(f'"{ref}" names no file. {FORMS}, or memory: to keep nothing.')
    if not rest.startswith("///"):
        raise UsageError(f'"{ref}" does not name a file: a path follows three slashes. {FORMS}.')
    if "?" in rest:
        raise UsageError(f'"{ref}" has options after "?". Set them in Sqlite.Settings. {FORMS}.')
    if "\0" in rest:
        raise UsageError(f"{ref!r} holds a NUL, which no path may. {FORMS}.")
    return Path(rest.removeprefix("///")).absolute()


__all__ = ["SqliteSettings", "file_of"]
