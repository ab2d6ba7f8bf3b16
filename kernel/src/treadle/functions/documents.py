"""Documents against a JSON Schema that is given as data, for answers whose type no Python class says.

It checks the keywords that say what a document looks like (JSON Schema 2020-12, Core and Validation): type, enum,
const, properties, required, additionalProperties, items, anyOf, oneOf, allOf, `$ref` within the schema, and the limits
of numbers, texts and arrays. Any other keyword is the provider's business and passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from treadle.errors import InvalidArguments, UsageError
from treadle.messages import Json
from treadle.tools import is_of, kind_of


def check_document(value: Json, schema: Json, root: Json) -> None:
    """Raise `InvalidArguments` with all that is wrong, each with its path, in words for the model."""
    faults = list(_faults(value, schema, root, "the answer", 0))
    if faults:
        raise InvalidArguments(" ".join(faults[:5]))


def _faults(value: Json, schema: Json, root: Json, at: str, depth: int) -> Iterator[str]:
    if depth > 100:
        yield f"{at} is nested too deep."
    elif schema is False:
        yield f"{at} is not allowed."
    elif isinstance(schema, Mapping):
        if (wanted := schema.get("type")) is not None:
            kinds = [wanted] if isinstance(wanted, str) else list(wanted)
            if not any(is_of(value, kind) for kind in kinds):
                yield f"{at} must be of type {' or '.join(kinds)}, not {kind_of(value)}."
                return
        yield from _choices(value, schema, root, at, depth)
        yield from _bounds(value, schema, at)
        if isinstance(value, dict):
            yield from _members(value, schema, root, at, depth)
        elif isinstance(value, list):
            for place, each in enumerate(value):
                yield from _faults(each, schema.get("items", True), root, _below(at, place), depth + 1)


def _choices(value: Json, schema: Json, root: Json, at: str, depth: int) -> Iterator[str]:
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        yield f"{at} must be one of {json.dumps(schema['enum'], ensure_ascii=False)[:500]}."
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{at} must be {json.dumps(schema['const'], ensure_ascii=False)[:500]}."
    if "$ref" in schema:
        yield from _faults(value, _referred(schema["$ref"], root), root, at, depth + 1)
    for each in schema.get("allOf", ()):
        yield from _faults(value, each, root, at, depth + 1)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            fits = sum(not any(_faults(value, each, root, at, depth + 1)) for each in schema[word])
            if not fits or (word == "oneOf" and fits > 1):
                yield f"{at} fits {fits or 'none'} of the {len(schema[word])} forms that it may have."


def _members(value: Mapping[str, Json], schema: Json, root: Json, at: str, depth: int) -> Iterator[str]:
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        yield f"{at} lacks {', '.join(missing)}."
    others = schema.get("additionalProperties", True)
    for name, each in value.items():
        if name not in properties and others is False:
            yield f"{at} has no {name[:80]}; it has {', '.join(properties) or 'nothing'}."
        else:
            yield from _faults(each, properties.get(name, others), root, _below(at, name), depth + 1)


def _bounds(value: Json, schema: Json, at: str) -> Iterator[str]:
    if is_of(value, "number"):
        size, words = value, ("minimum", "maximum", "be")
        if "exclusiveMinimum" in schema and not value > schema["exclusiveMinimum"]:
            yield f"{at} must be more than {schema['exclusiveMinimum']}."
        if "exclusiveMaximum" in schema and not value < schema["exclusiveMaximum"]:
            yield f"{at} must be less than {schema['exclusiveMaximum']}."
    elif isinstance(value, str):
        size, words = len(value), ("minLength", "maxLength", "have a length of")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{at} must match {schema['pattern']}."
    elif isinstance(value, list):
        size, words = len(value), ("minItems", "maxItems", "have a length of")
    else:
        return
    if words[0] in schema and size < schema[words[0]]:
        yield f"{at} must {words[2]} at least {schema[words[0]]}."
    if words[1] in schema and size > schema[words[1]]:
        yield f"{at} must {words[2]} at most {schema[words[1]]}."


def _same(one: Json, other: Json) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _referred(ref: str, root: Json) -> Json:
    """What a `$ref` within the schema names (RFC 6901)."""
    found = root
    try:
        if not ref.startswith("#"):
            raise KeyError(ref)
        for step in ref[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found[int(step)] if isinstance(found, list) else found[step]
    except (KeyError, IndexError, ValueError, TypeError):
        raise UsageError(f'The schema refers to "{ref}", which is not in it. Put it under "$defs".') from None
    return found


def _below(at: str, name: object) -> str:
    return f"{name}" if at == "the answer" else f"{at}.{name}"
