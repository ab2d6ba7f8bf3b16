"""What `--schema` says, as the type of a structured answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

from treadle.plugin import Json, UsageError

from .loading import load_object

TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
# module:Type or file.py:Type; in the short form a space follows the colon.
_PLACE = re.compile(r"[^\s,]+:[A-Za-z_][\w.]*")
_NAME = re.compile(r"[A-Za-z_][\w-]*")


def read_schema(text: str, *, several: bool = False) -> object:
    """A JSON Schema as a dict, or a type; `several` asks for an array of them, under `items`.

    `text` is a JSON Schema, the path of a file with one, `module:Type` or `file.py:Type`, or fields in the short form
    that `llm --schema` takes: `name, age int, bio: one sentence`, separated by commas or, with newlines, one a line.
    Raises `UsageError` naming what cannot be read.
    """
    given = text.strip()
    if _PLACE.fullmatch(given) and not Path(given).is_file():
        made = load_object(given, "--schema")
        return list[made] if several else made  # type: ignore[valid-type]
    schema = _schema(given)
    if not several:
        return schema
    # References name places from the root, so definitions stay there.
    root: dict[str, Json] = {word: schema[word] for word in ("$defs", "definitions") if word in schema}
    items = {key: value for key, value in schema.items() if key not in root}
    properties: Json = {"items": {"type": "array", "items": items}}
    whole: dict[str, Json] = {"type": "object", "properties": properties, "required": ["items"], **root}
    return {**whole, "additionalProperties": False}


def _schema(given: str) -> dict[str, Json]:
    if given.startswith("{"):
        return _parsed(given, "--schema")
    path = Path(given)
    if "\n" not in given and path.suffix == ".json":
        try:
            return _parsed(path.read_text("utf-8"), f"--schema {given}")
        except OSError as error:
            raise UsageError(f"--schema {given}: the file cannot be read: {error.strerror}.") from error
    return short_form(given)


def _parsed(text: str, where: str) -> dict[str, Json]:
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: that is not JSON: {error}.") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{where}: a JSON Schema is an object, not {type(schema).__name__}.")
    return schema


def short_form(text: str) -> dict[str, Json]:
    """Fields as a JSON Schema object. Each is a name, a type (`str` if left out), and a description behind a colon."""
    properties: dict[str, Json] = {}
    for field in filter(None, (each.strip() for each in text.split("\n" if "\n" in text else ","))):
        head, _, description = (each.strip() for each in field.partition(":"))
        name, *kind = head.split() or [""]
        if not _NAME.fullmatch(name) or len(kind) > 1 or not set(kind) <= set(TYPES):
            raise UsageError(f'--schema: "{field}" is no field. Write NAME, or NAME TYPE with {", ".join(TYPES)}.')
        properties[name] = {"type": TYPES[kind[0] if kind else "str"]}
        if description:
            properties[name]["description"] = description
    if not properties:
        raise UsageError("--schema is empty. Write fields: --schema 'name, age int'.")
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
