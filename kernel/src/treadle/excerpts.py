"""Excerpts: what a model sees of a result that is too long, and the whole of it, kept in the log.

One result without a cap can outgrow the window, and then no later request fits. So its start and end go to the model,
with a note between them that says how much is missing; the whole stands in the log, in the same append, under the
call's id. It knows nothing of tools and their work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from .events import Event, PluginData
from .messages import Json, Part, Text

WHOLE = "treadle/whole"
"""The type of the event that keeps a whole result: `{"call": ID, "texts": [...]}`. Readers may skip it."""


def excerpt(parts: Sequence[Part], most: int | None, call_id: str) -> tuple[tuple[Part, ...], PluginData | None]:
    """The parts with at most `most` bytes of text (UTF-8), and the event that keeps the whole; None if they fit.

    Half of the bytes come from the start and half from the end; no character is cut. Images and documents are
    references and stay. `most` of None is no cap.
    """
    texts = [part.text for part in parts if isinstance(part, Text)]
    if most is None or 4 * sum(map(len, texts)) <= most:  # no character has more than 4 bytes
        return tuple(parts), None
    whole = sum(map(_size, texts))
    if whole <= most:
        return tuple(parts), None
    return tuple(_cut(parts, most, whole, call_id)), PluginData(WHOLE, {"call": call_id, "texts": texts})


def _cut(parts: Sequence[Part], most: int, whole: int, call_id: str) -> Iterable[Part]:
    head, tail = most // 2, whole - (most - most // 2)  # the gap: bytes from `head` to `tail`, of all texts in a row
    note = f"[... {tail - head} of {whole} bytes are left out here. The whole is kept under the handle {call_id} ...]"
    at, noted = 0, False
    for part in parts:
        if not isinstance(part, Text):
            yield part
            continue
        data = part.text.encode("utf-8", "surrogatepass")
        start, end = data[: max(0, head - at)], data[max(0, tail - at) :]
        at += len(data)
        if at <= head or at - len(data) >= tail:
            yield part
        elif not noted:
            noted = True
            yield attrs.evolve(part, text=f"{_text(start)}\n{note}\n{_text(end)}")
        elif end:
            yield attrs.evolve(part, text=_text(end))


def whole_result(events: Iterable[Event], call_id: str) -> str | None:
    """The whole text of a result of which the model saw an excerpt; None if nothing is kept under this call's id."""
    found: str | None = None
    for event in events:
        data = event.data
        if isinstance(data, PluginData) and data.name == WHOLE and data.value["call"] == call_id:
            texts: Json = data.value["texts"]
            found = "".join(texts)
    return found


def stretch(text: str, start: int, most: int) -> str:
    """The text's bytes from `start`, at most `most` of them, without half characters at the ends."""
    return _text(text.encode("utf-8", "surrogatepass")[start : start + most])


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _text(data: bytes) -> str:
    """Bytes cut anywhere as text: what is left of a character at either end goes."""
    first = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), len(data[:4]))
    last = len(data)
    for back in range(1, min(4, last) + 1):
        byte = data[last - back]
        if byte & 0xC0 != 0x80:
            width = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            last -= back if width > back else 0
            break
    return data[first:last].decode("utf-8", "surrogatepass")
