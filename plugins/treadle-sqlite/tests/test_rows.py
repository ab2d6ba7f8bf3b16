"""Rows that no file takes, and rows that somebody damaged."""

import math

import pytest

from treadle.plugin import UnreadableLog, UsageError
from treadle.testing.stores import noted
from treadle_sqlite.rows import event_from_row, event_to_row, post_from_row


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf])
def test_what_is_no_time_is_refused(time):
    with pytest.raises(UsageError, match="which is none"):
        event_to_row(noted(1, time=time), "s")


GOOD = (3, 1_700_000_000.5, "turn/start", 1, None, None, 1, "{}")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (2, "turn/unheard-of", "unknown event turn/unheard-of"),
        (7, '{"a": ', "not valid JSON"),
        (7, "", "not valid JSON"),
    ],
)
def test_a_damaged_row_is_named_by_file_session_and_event(column, value, said):
    row = [*GOOD[:column], value, *GOOD[column + 1 :]]
    with pytest.raises(UnreadableLog, match=said) as caught:
        event_from_row(tuple(row), 'sqlite:///a.db, session "s"')
    assert caught.value.where == 'sqlite:///a.db, session "s", event 3'
    assert caught.value.remedy


@pytest.mark.parametrize(("kind", "text"), [("message", "{"), ("message", "{}"), ("later", "{}"), ("cancel", "3")])
def test_a_damaged_post_is_named(kind, text):
    with pytest.raises(UnreadableLog, match="post p1"):
        post_from_row("p1", kind, text, "sqlite:///a.db")
