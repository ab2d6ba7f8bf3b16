"""JSON as it is read and written here: strict, checked field by field, and the same text each time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from treadle.plugin import Json

from . import Malformed


def parsed(text: str | bytes) -> Json:
    """Strict JSON, or ValueError; also for nesting beyond reason."""
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text)).removeprefix("\ufeff")
        return _STRICT.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def no_constant(name: str) -> Json:
    """Refuse NaN and the infinities, which Python reads and JSON has not."""
    raise ValueError(name)


_STRICT = json.JSONDecoder(parse_constant=no_constant)  # made once: that takes as long as reading an event


def dumped(value: Json) -> str:
    """`value` as JSON text without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_EMPTY: Mapping[type, Json] = {dict: {}, list: [], str: "", int: 0}
_WORDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "text", int: "a number"}


def of(value: Json, name: str, kind: type, what: str, missing: Json = None) -> Json:
    """`value[name]`, if it is of that kind; missing and null are the same. Raises `Malformed`."""
    if not isinstance(value, dict):
        raise Malformed(f"{what} is no object")
    found = value.get(name)
    if found is None:
        return _EMPTY[kind] if missing is None else missing
    if not isinstance(found, kind) or isinstance(found, bool):
        raise Malformed(f'"{name}" of {what} is not {_WORDS[kind]}')
    return found


def count(raw: Json, *path: str) -> int:
    """The number of tokens at a path of names; 0 for anything that is none."""
    for name in path:
        raw = raw.get(name) if isinstance(raw, dict) else None
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and raw > 0 else 0
