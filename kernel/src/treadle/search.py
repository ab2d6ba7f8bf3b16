"""Words found in sessions: by a store's own index if it has one, else by reading everything.

Both understand words alike: letters and digits, in any case, with or without accents. A message is found if each word
of the question begins one of its words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import attrs

from .errors import TreadleError, Unsupported, UsageError
from .events import AssistantMessage, Event, ToolResult, UserMessage
from .messages import Text
from .store import SessionFilter, Store

_WORD = re.compile(r"[^\W_]+")


@attrs.frozen(kw_only=True)
class Found:
    """One message with all the words. `time` is seconds since 1970; an inherited one is its first session's."""

    session: str
    seq: int
    time: float
    role: str
    text: str


@runtime_checkable
class Searching(Protocol):
    """What a store has that keeps an index."""

    async def search(self, words: Sequence[str], limit: int | None) -> Sequence[Found]:
        """Messages with all the `words` (as `words_in` gives them), newest first.

        Raises `Unsupported` where the index cannot be made; then the sessions are read.
        """
        ...


def words_in(text: str) -> list[str]:
    """The words of a text, in lower case and without accents."""
    plain = "".join(each for each in unicodedata.normalize("NFD", text) if not unicodedata.combining(each))
    return _WORD.findall(plain.lower())


def said_in(event: Event) -> tuple[str, str] | None:
    """Who said what in an event; None if nothing was said in it."""
    data = event.data
    if isinstance(data, UserMessage | AssistantMessage):
        return (data.message.role, data.message.text) if data.message.text else None
    if isinstance(data, ToolResult):
        text = "".join(part.text for part in data.parts if isinstance(part, Text))
        return ("tool", text) if text else None
    return None


async def search_sessions(
    store: Store,
    question: str,
    *,
    limit: int | None = 20,
    report: Callable[[str, TreadleError], None] | None = None,
) -> Sequence[Found]:
    """Messages that have all the words of a question, newest first, from archived sessions too.

    Raises `UsageError` if the question has no word, and `UnreadableLog` at a damaged session that had to be read. If
    `report` takes that, with the session's id, the others are searched all the same.
    """
    words = words_in(question)
    if not words:
        raise UsageError(f"There is no word in {question!r} to look for. Give letters or digits.")
    if isinstance(store, Searching):
        try:
            return await store.search(words, limit)
        except Unsupported:
            pass
    found = [each async for each in _read(store, words, report)]
    found.sort(key=lambda each: (each.time, each.session, each.seq), reverse=True)
    return found[:limit]


async def _read(
    store: Store, words: Sequence[str], report: Callable[[str, TreadleError], None] | None
) -> AsyncIterator[Found]:
    for info in [*await store.list(), *await store.list(SessionFilter(archived=True))]:
        try:
            log = await store.open(info.id, write=False)
            try:
                events = await log.read(info.parent_seq)
            finally:
                await log.close()
        except TreadleError as error:
            if report is None:
                raise
            report(info.id, error)
            continue
        for each in _matching(info.id, events, words):
            yield each


def _matching(session: str, events: Sequence[Event], words: Sequence[str]) -> Iterator[Found]:
    for event in events:
        said = said_in(event)
        if said is not None:
            there = words_in(said[1])
            if all(any(each.startswith(word) for each in there) for word in words):
                yield Found(session=session, seq=event.seq, time=event.time, role=said[0], text=said[1])


__all__ = ["Found", "Searching", "said_in", "search_sessions", "words_in"]
