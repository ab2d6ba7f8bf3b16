"""Events and posts as rows, and back. Values only; knows no connection."""

from __future__ import annotations

import json
import math
from typing import TypeAlias

from treadle.codec import converter, dump_data, load_data
from treadle.plugin import (
    Event,
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

EventRow: TypeAlias = tuple[int, float, str, int | None, int | None, str | None, bool, str]
"""seq, time, type, turn, step, owner, required, data: the columns of `events` after its session."""

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
    if not math.isfinite(event.time):
        raise UsageError(f'Event {event.seq} of session "{session_id}" has the time {event.time}, which is none.')
    owner = None if event.owner == KERNEL else event.owner
    return event.seq, event.time, event.type, event.turn, event.step, owner, event.required, data


def event_from_row(row: tuple[Json, ...], where: str) -> Event:
    """The event of a row. Raises `UnreadableLog` naming `where` and the event if it is damaged."""
    seq, time, type, turn, step, owner, required, text = row
    owner = KERNEL if owner is None else owner
    place = f"{where}, event {seq}"
    try:
        data = load_data(type, text, required=required, owner=owner, where=place)
        return Event(seq, time, data, turn, step, owner, required)
    except TreadleError:
        raise
    except Exception as error:
        reason = f"its row is damaged ({error.__class__.__name__}: {error})"
        raise UnreadableLog(place, reason, "Restore the database from a copy.") from error


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
        raise UnreadableLog(f"{where}, post {post_id}", reason, f"Delete the row {post_id} of posts.") from error


__all__ = ["EventRow", "event_from_row", "event_to_row", "post_from_row", "post_to_row"]
