"""Why a value was refused, in words that a model can act on: where, what was expected, what came.

msgspec stops at the first fault and says it in Python's words; here it is told in JSON's, with the path to the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from treadle.errors import InvalidArguments
from treadle.messages import Json

Place: TypeAlias = "str | int"


class Refusal(InvalidArguments, ValueError):
    """A value that does not fit; `path` leads to it. A ValueError, because that is what msgspec's hooks may raise."""

    def __init__(self, path: Sequence[Place], after: str, before: str = "") -> None:
        self.path, self.after, self.before = tuple(path), after, before
        super().__init__(self.path, after, before)

    def under(self, *places: Place) -> Refusal:
        """The same, seen from further out."""
        return Refusal((*places, *self.path), self.after, self.before)

    @property
    def words(self) -> str:
        """What is wrong, as a part of a sentence."""
        return f"{self.before}{'.'.join(map(str, self.path)) or 'the value'}{self.after}"

    def __str__(self) -> str:
        words = self.words
        return words if words.endswith(".") else f"{words}."


_JSON_NAMES = {
    "int": "integer", "float": "number", "str": "string", "bool": "boolean", "bytes": "base64 string",
    "datetime": "string with a date and time", "date": "string with a date", "time": "string with a time",
    "duration": "string with a duration", "uuid": "string with a UUID",
}  # fmt: skip
_FORMATS = {
    "Invalid RFC3339 encoded datetime": ' must be a date and time as in RFC 3339, such as "2024-12-31T23:59:00Z"',
    "Invalid RFC3339 encoded date": ' must be a date as in RFC 3339, such as "2024-12-31"',
    "Invalid RFC3339 encoded time": ' must be a time as in RFC 3339, such as "23:59:00"',
    "Invalid ISO8601 duration": ' must be a duration as in ISO 8601, such as "P1DT2H" or "PT30S"',
    "Invalid UUID": " must be a UUID",
    "Invalid base64 encoded string": " must be base64 text",
    "Number out of range": " must be a number that fits 64 bits",
}


def refusal(
    given: Json,
    error: msgspec.ValidationError,
    convert: Callable[[Json], object],
    rules: Callable[[Sequence[Place]], Iterable[Json]],
) -> Refusal:
    """What msgspec's error about `given` means. `rules` are the schemas that hold at a path."""
    inner = error.__cause__
    if inner is not None and str(error).startswith(str(inner)):
        path, _ = _split(str(error)[len(str(inner)) :])
        path = _located(given, path, str(error), convert)
        return inner.under(*path) if isinstance(inner, Refusal) else Refusal(path, f" was refused: {inner}")
    path, message = _split(str(error))
    path = _located(given, path, str(error), convert)
    of_key = " at `key` in " in str(error)
    return _in_words(Refusal(path, ": a key" if of_key else ""), message, list(rules(path)), _value(given, path))


def _in_words(at: Refusal, message: str, rules: Sequence[Json], value: Json) -> Refusal:
    path, of_key = at.path, at.after
    if found := re.fullmatch("Object missing required field `(.*)`", message):
        wanted = next((rule["required"] for rule in rules if found[1] in rule.get("required", ())), [found[1]])
        missing = [name for name in wanted if not isinstance(value, dict) or name not in value]
        first, *more = missing or [found[1]]
        return Refusal((*path, first), "".join(f", {'.'.join(map(str, (*path, name)))}" for name in more), "Missing: ")
    if found := re.fullmatch("Object contains unknown field `(.*)`", message, re.S):
        allowed = next((", ".join(rule["properties"]) for rule in rules if "properties" in rule), "") or "none"
        return Refusal((*path, found[1][:80]), f". Allowed: {allowed}", "Unknown argument ")
    if found := re.fullmatch("Invalid (?:enum )?value (.*)", message, re.S):
        keys = [rule["propertyNames"] for rule in rules if "propertyNames" in rule] if of_key else rules
        allowed = ", ".join(json.dumps(each, ensure_ascii=False) for rule in keys for each in rule.get("enum", ()))
        wanted = f"must be one of {allowed}, not" if allowed else "cannot be"
        return Refusal(path, f"{of_key} {wanted} {found[1][:80]}")
    if re.fullmatch(r"Expected `float` [<>]= -?1\.797\d+e\+308", message):
        return Refusal(path, " must be a finite number")
    if message in _FORMATS:
        return Refusal(path, of_key + _FORMATS[message])
    words = re.sub("`([^`]*)`", lambda found: " or ".join(_json_name(each) for each in found[1].split(" | ")), message)
    return Refusal(path, of_key + " " + words.replace("Expected ", "must be of type ").replace(", got ", ", not "))


def _json_name(name: str) -> str:
    return _JSON_NAMES.get(name, name)


# --- paths -----------------------------------------------------------------------------------------------------

_ANY = "..."


def _split(text: str) -> tuple[tuple[Place, ...], str]:
    """The path at the end of msgspec's text, and the text before it. `...` stands for some key of an object."""
    found = re.fullmatch(r"(.*?)(?: - at `(?:key` in `)?\$([^`]*)`)?", text, re.S)
    if found is None:
        return (), text
    places: list[Place] = []
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", found[2] or ""):
        places.append(name or (index if index == _ANY else int(index)))
    return tuple(places), found[1]


def _value(given: Json, path: Sequence[Place]) -> Json:
    for place in path:
        try:
            given = given[place]
        except (LookupError, TypeError):
            return None
    return given


def _located(
    given: Json, path: tuple[Place, ...], message: str, convert: Callable[[Json], object]
) -> tuple[Place, ...]:
    """The path with the real key in each place that msgspec leaves open.

    It is the first key of which, alone in its object, the very same is said.
    """
    for at, place in enumerate(path):
        if place != _ANY:
            continue
        parent = _value(given, path[:at])
        if not isinstance(parent, dict):
            return path
        for key in parent:
            try:
                convert(_with(given, path[:at], {key: parent[key]}))
            except msgspec.ValidationError as error:
                if str(error) == message:
                    given = _with(given, path[:at], {key: parent[key]})
                    path = (*path[:at], key, *path[at + 1 :])
                    break
    return path


def _with(given: Json, path: Sequence[Place], value: Json) -> Json:
    """A copy of `given` with `value` at `path`."""
    if not path:
        return value
    copy = given.copy()
    copy[path[0]] = _with(given[path[0]], path[1:], value)
    return copy


def rules_at(schema: Json, defs: Json, path: Sequence[Place]) -> Iterator[Json]:
    """The schemas that hold for the value at `path`, references followed, each form of a choice by itself."""
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield from rules_at(defs.get(schema["$ref"].removeprefix("#/$defs/")), defs, path)
    for form in schema.get("anyOf", ()):
        yield from rules_at(form, defs, path)
    if not path:
        yield schema
        return
    place, rest = path[0], path[1:]
    prefix = schema.get("prefixItems", ())
    if isinstance(place, int):
        inner = prefix[place] if place < len(prefix) else schema.get("items")
    else:
        inner = schema.get("properties", {}).get(place, schema.get("additionalProperties"))
    yield from rules_at(inner, defs, rest)


def whole_numbers(value: Json) -> Json:
    """A copy in which each float that is a whole number, and exactly so, is an int."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [whole_numbers(each) for each in value]
    if isinstance(value, dict):
        return {key: whole_numbers(each) for key, each in value.items()}
    return value
