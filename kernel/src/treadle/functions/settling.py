"""The schema that msgspec generated, made ready for a model: self-contained, and without what was only for msgspec.

Works on JSON Schema alone (2020-12); knows no types.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Protocol

from treadle.messages import Json

MOST = sys.float_info.max
"""The limit that keeps NaN and Infinity out of floats, which no schema needs to show."""


class HasSchema(Protocol):
    """One form of a choice; its schema is there by the time that the choice is put in its place."""

    schema: Json


STANDS_FOR = "treadle-stand-in"
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs")
_SCHEMAS = ("items", "additionalProperties", "propertyNames", "not")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")


class Settling:
    """Puts the schemas of stand-ins in their places, and takes out what was only for msgspec."""

    def __init__(self, stand_ins: Mapping[type, Json | tuple[HasSchema, ...]], defs: dict[str, Json]) -> None:
        self._stand_ins, self._defs = stand_ins, defs

    def __call__(self, schema: Json) -> Json:
        if not isinstance(schema, dict):
            return schema
        out = dict(schema)
        kind = out.pop(STANDS_FOR, None)
        if kind is not None:
            return {**self._stand_in(self._stand_ins[kind]), **out}
        if out.get("minimum") == -MOST:
            del out["minimum"]
        if out.get("maximum") == MOST:
            del out["maximum"]
        if out.get("required") == []:
            del out["required"]
        for key in out.keys() & set(_MAPS_OF_SCHEMAS):
            out[key] = {name: self(each) for name, each in out[key].items()}
        for key in out.keys() & set(_SCHEMAS):
            out[key] = self(out[key])
        for key in out.keys() & set(_LISTS_OF_SCHEMAS):
            out[key] = [self(each) for each in out[key]]
        if "anyOf" in out:  # a choice within a choice is one choice
            forms = (each["anyOf"] if set(each) == {"anyOf"} else [each] for each in out["anyOf"])
            out["anyOf"] = [form for several in forms for form in several]
        return out

    def _stand_in(self, schema: Json | tuple[HasSchema, ...]) -> Json:
        if isinstance(schema, tuple):
            return {"anyOf": [self(form.schema) for form in schema]}
        if "$defs" not in schema:
            return schema
        rest = {key: each for key, each in schema.items() if key != "$defs"}
        names = {name: self._free(name, each, schema["$defs"]) for name, each in schema["$defs"].items()}
        moved = _renamed(schema["$defs"], names)
        self._defs.update({names[name]: each for name, each in moved.items()})
        return _renamed(rest, names)

    def _free(self, name: str, schema: Json, defs: Json) -> str:
        """A name for a definition of pydantic's: its own, unless another definition has that."""
        candidate, number = name, 2
        while candidate in self._defs and self._defs[candidate] != schema:
            candidate, number = f"{name}_{number}", number + 1
        return candidate


def _renamed(value: Json, names: Mapping[str, str]) -> Json:
    """A copy with each reference going to the new name."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    out = {key: _renamed(each, names) for key, each in value.items()}
    if isinstance(ref := out.get("$ref"), str):
        name = ref.removeprefix("#/$defs/")
        out["$ref"] = "#/$defs/" + names.get(name, name)
    return out


def schemas_in(schema: Json) -> Iterator[dict[str, Json]]:
    """A schema and every schema in it, in the places where JSON Schema has them."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in _MAPS_OF_SCHEMAS:
        for each in schema.get(key, {}).values():
            yield from schemas_in(each)
    for key in _SCHEMAS:
        yield from schemas_in(schema.get(key))
    for key in _LISTS_OF_SCHEMAS:
        for each in schema.get(key, ()):
            yield from schemas_in(each)


def self_contained(schema: Json, defs: dict[str, Json]) -> Json:
    """The root's own schema instead of a reference to it, with only those definitions that it reaches."""
    root = dict(schema)
    if "$ref" in root:
        root = {**defs[root.pop("$ref").removeprefix("#/$defs/")], **root}
    root.pop("title", None)
    reached: dict[str, Json] = {}
    waiting = [root]
    while waiting:
        for each in schemas_in(waiting.pop()):
            name = str(each.get("$ref", "")).removeprefix("#/$defs/")
            if name and name not in reached and name in defs:
                reached[name] = defs[name]
                waiting.append(defs[name])
    return {**root, "$defs": dict(sorted(reached.items()))} if reached else root
