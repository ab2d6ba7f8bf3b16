"""Structured answers: the tool that gives one, the schema that asks for one, and the value in what came."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Union

import attrs

from treadle.context import ToolAnswer
from treadle.errors import InvalidArguments, UsageError
from treadle.messages import Json, Text
from treadle.model import OutputSchema
from treadle.tools import Tool, Wanted, parse_object

from .docstrings import read_docs
from .documents import check_document
from .records import Field, own_doc
from .signatures import NAME, shapes, signature_shape

if TYPE_CHECKING:
    from .shapes import Shape


@attrs.frozen(kw_only=True)
class _Output:
    """What `output=` asks for: the schema of its document, and how a document becomes the value."""

    name: str
    description: str
    schema: Json
    decode: Callable[[Mapping[str, Json]], object]


def output_tool(wanted: object, name: str = "final_answer", description: str = "") -> Tool:
    """The tool with which a model gives its structured answer; its result concludes the turn.

    `wanted` is a type, a union or sequence of types, or a function: then the parameters are its own, and it returns
    the value, or raises ValueError with what the model should mend. A dict is a JSON Schema, and the value plain data.
    The answer's text is the JSON document that `decode_output` reads. A type whose JSON form is no object stands in
    one, under `value`.
    """
    output = _output(wanted)

    def decode(given: Mapping[str, Json]) -> Mapping[str, object]:
        return {"answer": output.decode(given), "text": json.dumps(given, ensure_ascii=False)}

    def conclude(answer: object, text: str) -> ToolAnswer:
        return ToolAnswer(parts=(Text(text),), concludes=True)

    text = description or "\n\n".join(each for each in ("Give the final answer.", output.description) if each)
    return Tool(name=name, description=text, parameters=output.schema, call=conclude, replay="pure", decode=decode)


def output_schema(wanted: object) -> OutputSchema:
    """The schema for providers that write structured answers themselves; `wanted` as for `output_tool`."""
    output = _output(wanted)
    return OutputSchema(name=output.name, schema=output.schema)


def wanted_output(wanted: object) -> Wanted:
    """All that a turn needs to ask for such an answer and to read it; `wanted` as for `output_tool`."""
    output = _output(wanted)
    schema = OutputSchema(name=output.name, schema=output.schema)
    return Wanted(tool=output_tool(wanted), schema=schema, decode=lambda text: output.decode(parse_object(text)))


def decode_output(wanted: object, text: str) -> object:
    """The value in the text of a structured answer. Raises `InvalidArguments`, in words for the model."""
    return _output(wanted).decode(parse_object(text))


def _output(wanted: Json) -> _Output:
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        wanted = Union[tuple(wanted)]
    # Unions are equal whatever their order, which decides here, so their text is a part of the key.
    return _known_output(wanted, repr(wanted)) if isinstance(wanted, Hashable) else _new_output(wanted)


def _new_output(wanted: Json) -> _Output:
    if isinstance(wanted, Mapping):
        return _of_schema(wanted)
    label = wanted.__name__ if inspect.isclass(wanted) or inspect.isroutine(wanted) else ""
    where, name = f"Output {label or wanted}", label if NAME.fullmatch(label) else "answer"
    if inspect.isroutine(wanted) or isinstance(wanted, partial):
        if inspect.iscoroutinefunction(wanted):
            raise UsageError(f"{where}: a validator is a plain function, not an async one. Do its work in a tool.")
        shape, docs = signature_shape(wanted, where, {}, contexts=False)
        return _Output(name=name, description=docs.text, schema=shape.schema, decode=_validated(shape, wanted))
    alone: Shape | None = shapes().shape_of(wanted, where, {})
    if alone is not None:
        text = read_docs(own_doc(wanted)).text if inspect.isclass(wanted) else ""
        return _Output(name=name, description=text, schema=alone.schema, decode=alone.decode)
    field = Field(name="value", key="value", hint=wanted, required=True)
    wrapped = shapes().shape_of_fields([field], where, {}, {})
    decode: Json = wrapped.decode
    return _Output(name=name, description="", schema=wrapped.schema, decode=lambda given: decode(given)["value"])


def _of_schema(schema: Mapping[str, Json]) -> _Output:
    """An answer whose form is given as a JSON Schema; its value is plain data."""
    title, text = schema.get("title", ""), schema.get("description", "")
    name = title if isinstance(title, str) and NAME.fullmatch(title) else "answer"
    if schema.get("type") == "object" or "properties" in schema:
        whole, key = dict(schema), ""
    else:  # its references name places from its own root, so the definitions move up with it
        whole = {"type": "object", "properties": {"value": dict(schema)}, "required": ["value"]}
        whole |= {word: schema[word] for word in ("$defs", "definitions") if word in schema}
        whole["additionalProperties"], key = False, "value"

    def decode(given: Mapping[str, Json]) -> object:
        check_document(dict(given), whole, whole)
        return given[key] if key else dict(given)

    return _Output(name=name, description=text if isinstance(text, str) else "", schema=whole, decode=decode)


@lru_cache(maxsize=256)
def _known_output(wanted: Json, text: str) -> _Output:
    return _new_output(wanted)


def _validated(shape: Shape, validator: Callable[..., object]) -> Callable[[Mapping[str, Json]], object]:
    def decode(given: Mapping[str, Json]) -> object:
        keywords: Json = shape.decode(given)
        try:
            return validator(**keywords)
        except (ValueError, AssertionError) as error:
            raise InvalidArguments(f"The answer was refused: {error or type(error).__name__}") from error

    return decode
