"""Times as text, and rows that somebody damaged."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.plugin import UnreadableLog, UsageError
from treadle_sqlite.rows import event_from_row, iso_time, post_from_row, seconds


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0.0, "1970-01-01T00:00:00.0000000Z"),
        (86_400.5, "1970-01-02T00:00:00.5000000Z"),
        (1_700_000_000, "2023-11-14T22:13:20.0000000Z"),
        (1e-7, "1970-01-01T00:00:00.0000001Z"),
        (4_102_444_800.25, "2100-01-01T00:00:00.2500000Z"),
    ],
)
def test_a_time_is_written_as_a_date_in_utc(time, text):
    assert iso_time(time) == text
    assert seconds(text) == time


@given(st.floats(min_value=0, max_value=4e9))
def test_a_time_comes_back_as_the_same_float(time):
    assert seconds(iso_time(abs(time))) == time


@given(st.floats(min_value=1.1e9, max_value=4e9), st.floats(min_value=1.1e9, max_value=4e9))
def test_the_texts_stand_in_the_order_of_the_times(one, other):
    assert (iso_time(one) < iso_time(other)) == (one < other)


@pytest.mark.parametrize("time", [-1.0, math.nan, math.inf, 1e300])
def test_what_is_no_time_is_refused(time):
    with pytest.raises(UsageError, match="seconds since 1970"):
        iso_time(time)


GOOD = (3, "2023-11-14T22:13:20.0000000Z", "turn/start", 1, None, None, 1, "{}")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        (1, "yesterday", "its row is damaged"),
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
