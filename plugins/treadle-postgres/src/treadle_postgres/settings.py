"""What can be set, and which references are ours. Imports nothing heavy and connects to nothing."""

from __future__ import annotations

import re

import attrs

from treadle.plugin import Json, SettingsError, UsageError

FORMS = "Write postgresql://user@host:5432/database (libpq's connection URIs); the password may stand in PGPASSWORD"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")


def _positive(_: object, field: attrs.Attribute[Json], value: float) -> None:
    if not value > 0:
        raise SettingsError("postgres", field.name, f"{value!r} is not positive.")


def _name(_: object, field: attrs.Attribute[Json], value: str) -> None:
    if not _NAME.fullmatch(value):
        reason = f"{value!r} is no plain name: small letters, digits and _, at most 41, no digit first."
        raise SettingsError("postgres", field.name, reason)


@attrs.frozen(kw_only=True)
class PostgresSettings:
    """Where the tables are, and how patient the store is.

    `schema` holds the tables; it is made by the first write. `connections` is how many one store uses at most, beside
    the one that listens. `lease_seconds` is how long a writer that fell silent keeps its session; one whose connection
    to the server ended loses it at once. `poll_seconds` is how often `tail` and `posted` look although no
    notification came (a pooler may swallow them). `connect_seconds` is how long to wait for the server.
    """

    schema: str = attrs.field(default="treadle", validator=_name)
    connections: int = attrs.field(default=4, validator=_positive)
    lease_seconds: float = attrs.field(default=60.0, validator=_positive)
    poll_seconds: float = attrs.field(default=5.0, validator=_positive)
    connect_seconds: int = attrs.field(default=10, validator=_positive)


def is_ours(ref: str) -> bool:
    """Whether a reference is one of PostgreSQL's. Raises `UsageError` if it is no URI."""
    scheme, colon, rest = ref.partition(":")
    if scheme not in ("postgresql", "postgres") or not colon:
        return False
    if not rest.startswith("//"):
        raise UsageError(f'"{shown(ref)}" is no connection URI. {FORMS}.')
    return True


def shown(ref: str) -> str:
    """A reference without its password, for people and logs."""
    return re.sub(r"(?i)(password=)[^&]*", r"\1***", re.sub(r"(//[^/:@]*:).*@", r"\1***@", ref))


__all__ = ["PostgresSettings", "is_ours", "shown"]
