"""What can be set, and which folder a reference names. Imports nothing heavy and touches no file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from treadle.plugin import Json, SettingsError, UsageError

FORMS = "Write jsonl:relative/folder or jsonl:/absolute/folder"


def _positive(_: object, field: attrs.Attribute[Json], value: float) -> None:
    if not value > 0:
        raise SettingsError("jsonl", field.name, f"{value!r} is not a positive number of seconds.")


def _durability(_: object, field: attrs.Attribute[Json], value: str) -> None:
    if value not in ("normal", "full"):
        raise SettingsError("jsonl", field.name, f'{value!r} is neither "normal" nor "full".')


@attrs.frozen(kw_only=True)
class JsonlSettings:
    """How the store trades speed for safety.

    `durability` "full" waits at each sync, on a thread, until the disk has the file, so that it survives a power cut.
    "normal" leaves that to the system: a killed process loses nothing, a power cut may take the last commits.
    `poll_seconds` is how soon `tail` and `posted` see what other processes wrote. `busy_seconds` is how long a post, a
    fork or a delete waits for another process's.
    """

    durability: Literal["normal", "full"] = attrs.field(default="full", validator=_durability)
    poll_seconds: float = attrs.field(default=0.1, validator=_positive)
    busy_seconds: float = attrs.field(default=10.0, validator=_positive)


def folder_of(ref: str) -> Path | None:
    """The absolute folder that a reference names; None if the reference is not ours.

    A relative one counts from the current folder at this moment, whatever folder the process changes to later.
    """
    scheme, colon, rest = ref.partition(":")
    if scheme != "jsonl" or not colon:
        return None
    if not rest:
        raise UsageError(f'"{ref}" names no folder. {FORMS}, or memory: to keep nothing.')
    if rest.startswith("//"):
        raise UsageError(f'"{ref}" begins with slashes as if it named a host. {FORMS}.')
    if "\0" in rest:
        raise UsageError(f"{ref!r} holds a NUL, which no path may. {FORMS}.")
    return Path(rest).absolute()


__all__ = ["JsonlSettings", "folder_of"]
