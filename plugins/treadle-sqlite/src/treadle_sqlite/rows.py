"""Events and posts as rows, and back. Values only; knows no connection."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

from treadle.codec import converter, dump_data, load_data
from treadle.plugin import (
    Event,
    Post,
    PostCancel,
    PostDecision,
    Posted,
    PostMessage,
    TreadleError,
    UnreadableLog,
    UsageError,
)

EventRow: TypeAlias = tuple[int, str, str, int | None, int | None, str | None, int, str]
"""seq, at, type, turn, step, owner, required, data: the columns of `events` after its session."""

KERNEL = "treadle"
"""The owner of core events, which the column leaves out."""

_POSTS: dict[str, type[Posted]] = {"message": PostMessage, "decision": PostDecision, "cancel": PostCancel}
_KINDS = {cls: kind for kind, cls in _POSTS.items()}


def event_to_row(event: Event, session_id: str) -> EventRow:
    """The row of an event. Raises `UsageError` if its data is not JSON (NaN, an object, a circle)."""
    try:
        data = dump_data(event.data)
    except TreadleError:
        raise
    except Exception as error:
        raise UsageError(
            f'Event {event.seq} ({event.type}) of session "{session_id}" cannot be stored: its data is not JSON '
            f"({type(error).__name__}: {error}). Nothing of its batch was written."
        ) from error
    owner = None if event.owner == KERNEL else event.owner
    return event.seq, iso_time(event.time), event.type, event.turn, event.step, owner, int(event.required), data


def event_from_row(row: EventRow, where: str) -> Event:
    """The event of a row. Raises `UnreadableLog` naming `where` and the event if it is damaged."""
    seq, at, type, turn, step, owner, required, text = row
    owner = KERNEL if owner is None else owner
    place = f"{where}, event {seq}"
    try:
        data = load_data(type, text, required=bool(required), owner=owner, where=place)
        return Event(seq, seconds(at), data, turn, step, owner, bool(required))
    except TreadleError:
        raise
    except Exception as error:
        reason = f"its row is damaged ({error.__class__.__name__}: {error})"
        raise UnreadableLog(place, reason, "Restore the file from a copy.") from error


def post_to_row(what: Posted) -> tuple[str, str]:
    """Kind and data of a post. Raises `UsageError` if it is none."""
    try:
        return _KINDS[type(what)], json.dumps(converter().unstructure(what), separators=(",", ":"), allow_nan=False)
    except TreadleError:
        raise
    except Exception as error:
        raise UsageError(f"{what!r:.200} cannot be posted ({type(error).__name__}: {error}).") from error


def post_from_row(post_id: str, kind: str, text: str, where: str) -> Post:
    """The post of a row. Raises `UnreadableLog` naming `where` if it is damaged."""
    try:
        return Post(post_id, converter().structure(json.loads(text), _POSTS[kind]))
    except TreadleError:
        raise
    except Exception as error:
        reason = f"it is damaged ({error.__class__.__name__}: {error})"
        remedy = f"Restore the file from a copy, or delete the row {post_id} of posts."
        raise UnreadableLog(f"{where}, post {post_id}", reason, remedy) from error


# --- times ------------------------------------------------------------------------------------------
# A float's shortest decimal form goes into the text and comes back as the same float. Seven digits at least keep the
# texts in the order of the times, from 2004 on.


def iso_time(time: float) -> str:
    """Seconds since 1970 as `2026-01-31T12:00:00.1234567Z`. Raises `UsageError` if no such date is."""
    text = repr(float(time))
    whole, _, fraction = (format(Decimal(text), "f") if "e" in text else text).partition(".")
    try:
        if whole.startswith("-"):
            raise ValueError("before 1970")
        return f"{_date(int(whole))}.{fraction.ljust(7, '0')}Z"
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"The time {time!r} is not a number of seconds since 1970 ({error}).") from error


def seconds(text: str) -> float:
    """The inverse of `iso_time`. Raises `ValueError` for anything else."""
    date, _, fraction = text.removesuffix("Z").partition(".")
    return float(f"{_timestamp(date)}.{fraction}")


@lru_cache(maxsize=64)
def _date(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=64)
def _timestamp(date: str) -> int:
    return int(datetime.fromisoformat(f"{date}+00:00").timestamp())


__all__ = [
    "EventRow", "event_from_row", "event_to_row", "iso_time", "post_from_row", "post_to_row", "seconds",
]  # fmt: skip
