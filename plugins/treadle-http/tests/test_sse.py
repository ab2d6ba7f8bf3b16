from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle_http.sse import BadStream, Event, EventReader

LIMIT = 1_000_000


def read(*pieces: bytes, limit: int = LIMIT) -> list[Event]:
    reader = EventReader(limit)
    out: list[Event] = []
    for piece in pieces:
        out += reader.feed(piece)
    return [*out, *reader.end()]


def data(*pieces: bytes) -> list[str]:
    return [event.data for event in read(*pieces)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_with_lf_crlf_or_cr(end: bytes) -> None:
    stream = b"data: a" + end + end + b"data: b" + end + b"data: c" + end + end
    assert data(stream) == ["a", "b\nc"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_one_byte_at_a_time_gives_the_same_events(end: bytes) -> None:
    stream = b"event: x" + end + b"data: a" + end + end + b"data: b" + end + end
    assert read(*(bytes([byte]) for byte in stream)) == [Event("x", "a"), Event("", "b")]


def test_a_cr_at_the_end_of_a_piece_and_an_lf_at_the_start_of_the_next_are_one_line_end() -> None:
    assert data(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == ["a\nb"]


def test_tc_033_a_character_split_between_pieces_survives_every_split() -> None:
    text = '{"t":"日本🎉é"}'
    stream = b"\xef\xbb\xbfdata: " + text.encode() + b"\n\n"
    assert data(*(bytes([byte]) for byte in stream)) == [text]
    for cut in range(len(stream) + 1):
        assert data(stream[:cut], stream[cut:]) == [text]


def test_tc_035_keep_alives_and_meta_only_events_are_no_events() -> None:
    noise = b": ping\n\nretry: 3000\n\nid: 7\n\nevent: ping\ndata:\n\ndata\n\n"
    assert read(b"data: 1\n\n" + noise + b"data: 2\n\n") == [Event("", "1"), Event("", "2")]


def test_the_name_of_a_meta_only_event_does_not_stick_to_the_next() -> None:
    assert read(b"event: error\n\ndata: fine\n\n") == [Event("", "fine")]


def test_unicode_line_separators_are_text() -> None:
    text = "a\u2028b\u2029c\x85d\x0ce\x0bf\x1cg"
    assert data(b"data: " + text.encode() + b"\n\n") == [text]


def test_only_one_space_after_the_colon_is_left_out() -> None:
    assert data(b"data:  two\n\ndata:none\n\n") == [" two", "none"]


def test_an_event_without_its_blank_line_is_handed_out_at_the_end_and_marked() -> None:
    assert read(b"data: a\n\ndata: [DONE]\n") == [Event("", "a"), Event("", "[DONE]", whole=False)]
    assert read(b"data: [DONE]") == [Event("", "[DONE]", whole=False)]


def test_an_event_of_some_megabytes_comes_whole() -> None:
    big = b"x" * 5_000_000
    pieces = [b"data: ", *(big[at : at + 65_536] for at in range(0, len(big), 65_536)), b"\n\n"]
    (event,) = read(*pieces, limit=6_000_000)
    assert event.data == big.decode()


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 200, b"data: x\n" * 60, b":" + b"x" * 200])
def test_an_event_beyond_the_limit_is_refused_before_it_fills_the_memory(stream: bytes) -> None:
    with pytest.raises(BadStream, match="longer than 100 bytes"):
        read(stream, limit=100)


def test_data_that_is_not_utf_8_is_refused_and_comments_may_hold_anything() -> None:
    assert data(b": \xff\xfe\n\ndata: a\n\n") == ["a"]
    with pytest.raises(BadStream, match="not UTF-8"):
        read(b"data: \xff\n\n")


@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)), min_size=1), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 400), max_size=20),
)
def test_any_text_comes_through_any_split(texts: list[str], end: bytes, cuts: list[int]) -> None:
    stream = b"".join(b"data: " + text.encode() + end + end for text in texts)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(stream)), len(stream)]
    assert data(*(stream[a:b] for a, b in pairwise(edges))) == texts
