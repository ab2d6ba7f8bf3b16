"""Functions into tools, and types into structured answers. Needs treadle[tools] (msgspec), loaded on first use.

A tool's schema and its decoder come from the function's signature and docstring, once, when it is decorated. What
has no JSON form, or would be decoded otherwise than written, is refused then and there, with the reason.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import typing
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import lru_cache, partial, update_wrapper
from inspect import Parameter
from typing import TYPE_CHECKING, Union, overload

import attrs

from treadle.context import ToolAnswer, as_answer, context_parameters
from treadle.errors import InvalidArguments, MissingExtra, UsageError
from treadle.messages import Json, Text
from treadle.model import OutputSchema
from treadle.tools import Replay, Tool, parse_object

from .docstrings import Docs, read_docs
from .records import ABSENT, Field, from_parameter, innermost, own_doc, parameter_hints

if TYPE_CHECKING:
    from .shapes import Shape


@overload
def tool(
    function: Callable[..., object],
    /,
    *,
    name: str = ...,
    description: str | None = ...,
    exclusive: bool = ...,
    replay: Replay = ...,
    timeout_seconds: float | None = ...,
    needs_approval: bool = ...,
    concludes: bool = ...,
    reconcile: Callable[[str], object | Awaitable[object]] | None = ...,
) -> Tool: ...
@overload
def tool(
    *,
    name: str = ...,
    description: str | None = ...,
    exclusive: bool = ...,
    replay: Replay = ...,
    timeout_seconds: float | None = ...,
    needs_approval: bool = ...,
    concludes: bool = ...,
    reconcile: Callable[[str], object | Awaitable[object]] | None = ...,
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str = "",
    description: str | None = None,
    exclusive: bool = False,
    replay: Replay = "at_most_once",
    timeout_seconds: float | None = None,
    needs_approval: bool = False,
    concludes: bool = False,
    reconcile: Callable[[str], object | Awaitable[object]] | None = None,
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a function a `Tool`: as `@tool`, as `@tool(...)` or as `tool(function)`.

    Takes sync and async functions, bound methods, partials, classes and callable objects. The description is the
    docstring's, unless given. Parameters annotated `CallContext` or `TurnContext` are not in the schema; what a
    partial has bound is not either. `concludes` makes each result the end of the turn. The other options are `Tool`'s.

    Raises `UsageError` for what cannot be a tool, with the parameter and the reason, and `MissingExtra`.
    """
    names = sys._getframe(1).f_locals  # a class inside of a function is known only there

    def decorate(function: Callable[..., object]) -> Tool:
        label = _name_of(function, name)
        shape, docs = _signature_shape(function, f'Tool "{label}"', names)
        return Tool(
            name=label,
            description=docs.text if description is None else description,
            parameters=shape.schema,
            call=_concluding(function) if concludes else function,
            exclusive=exclusive,
            replay=replay,
            timeout_seconds=timeout_seconds,
            needs_approval=needs_approval,
            decode=typing.cast("Callable[[Mapping[str, Json]], Mapping[str, object]]", shape.decode),
            reconcile=reconcile,
        )

    return decorate if function is None else decorate(function)


# The providers' own rule for names of functions and of schemas, in their API references.
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")


def _name_of(function: Json, name: str) -> str:
    if isinstance(function, Tool):
        raise UsageError(f'"{function.name}" is a tool already. Change a copy of it: attrs.evolve(tool, name=...).')
    if isinstance(function, classmethod):
        raise UsageError("A classmethod in its class body belongs to no class yet. Use tool(Class.method) after it.")
    if not callable(function):
        raise UsageError(f"tool() takes a function, not {type(function).__name__}. Options are named: tool(name=...).")
    while isinstance(function, partial):
        function = function.func
    name = name or str(getattr(function, "__name__", type(function).__name__))
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name} cannot name a tool: 1 to 64 letters, digits, _ and -. Give it one: tool(name=...).")
    return name


def _concluding(function: Json) -> Callable[..., object]:
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):

        async def conclude(**arguments: object) -> ToolAnswer:
            answer = await typing.cast("Awaitable[object]", function(**arguments))
            return attrs.evolve(as_answer(answer), concludes=True)

        return update_wrapper(conclude, function, updated=())

    def conclude_now(**arguments: object) -> ToolAnswer:
        return attrs.evolve(as_answer(function(**arguments)), concludes=True)

    return update_wrapper(conclude_now, function, updated=())


# --- signatures ----------------------------------------------------------------------------------------------


def _signature_shape(
    function: Callable[..., object], where: str, names: Mapping[str, object], *, contexts: bool = True
) -> tuple[Shape, Docs]:
    """The shape of a function's arguments, and what its docstring says."""
    shape_of_fields = _shapes().shape_of_fields
    docs = read_docs(_doc_of(function))
    try:
        signature = _checked_signature(function)
        skipped = {name for name, _ in context_parameters(function)} if contexts else set()
        skipped |= set(function.keywords) if isinstance(function, partial) else set()
        hints = parameter_hints(function, signature, names, skipped)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    fields, supply = [], {}
    for name, hint in hints.items():
        field = from_parameter(signature.parameters[name], hint)
        field, anew = _with_pydantic_default(attrs.evolve(field, text=docs.parameters.get(name, "")))
        fields.append(field)
        if anew is not None:
            supply[name] = anew
    return shape_of_fields(fields, where, names, supply), docs


def _shapes() -> Json:
    try:
        from . import shapes
    except ImportError as error:
        if error.name != "msgspec":
            raise
        raise MissingExtra("tools", "Making a tool of a function, or a schema of a type,") from None
    return shapes


def _doc_of(function: Json) -> str | None:
    while isinstance(function, partial):
        function = function.func
    if inspect.isclass(function):
        return own_doc(function)
    if inspect.isroutine(function):
        return function.__doc__
    return type(function).__call__.__doc__ or type(function).__doc__


def _checked_signature(function: Json) -> inspect.Signature:
    """The signature, if keywords can fill all of it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"its signature cannot be read ({error}). Wrap it in a function with annotations.") from error
    parameters = list(signature.parameters.values())
    home = innermost(function)
    if home is function and parameters and parameters[0].name in ("self", "cls") and "." in home.__qualname__:
        raise UsageError("it is a method without its object. Use tool(object.method), once there is an object.")
    for each in parameters:
        if each.kind is Parameter.POSITIONAL_ONLY:
            raise UsageError(f'parameter "{each.name}" is positional only, and calls come by name. Remove the "/".')
        if each.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise UsageError(f'"{each}" takes arguments that no schema can name. Name them, or take a list or a dict.')
    if inspect.isgeneratorfunction(home) or inspect.isasyncgenfunction(home):
        raise UsageError("it is a generator. Return the whole answer; for progress, use CallContext.progress.")
    return signature


def _with_pydantic_default(field: Field) -> tuple[Field, Callable[[], object] | None]:
    """Take apart pydantic's `Field(...)` as a default: to Python it is the default value itself."""
    info: Json = field.default
    if type(info).__module__.split(".")[0] != "pydantic" or type(info).__name__ != "FieldInfo":
        return field, None
    hint = typing.Annotated[(field.hint, info)]  # type: ignore[name-defined]
    if info.is_required():
        return attrs.evolve(field, hint=hint, required=True, default=ABSENT), None
    default = ABSENT if info.default_factory is not None else info.default
    return attrs.evolve(field, hint=hint, default=default), partial(info.get_default, call_default_factory=True)


# --- structured answers ---------------------------------------------------------------------------------------


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
    the value, or raises ValueError with what the model should mend. The answer's text is the JSON document that
    `decode_output` reads. A type whose JSON form is no object stands in one, under `value`.
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


def decode_output(wanted: object, text: str) -> object:
    """The value in the text of a structured answer. Raises `InvalidArguments`, in words for the model."""
    return _output(wanted).decode(parse_object(text))


def _output(wanted: Json) -> _Output:
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        wanted = Union[tuple(wanted)]
    # Unions are equal whatever their order, which decides here, so their text is a part of the key.
    return _known_output(wanted, repr(wanted)) if isinstance(wanted, Hashable) else _new_output(wanted)


def _new_output(wanted: Json) -> _Output:
    label = wanted.__name__ if inspect.isclass(wanted) or inspect.isroutine(wanted) else ""
    where, name = f"Output {label or wanted}", label if _NAME.fullmatch(label) else "answer"
    if inspect.isroutine(wanted) or isinstance(wanted, partial):
        if inspect.iscoroutinefunction(wanted):
            raise UsageError(f"{where}: a validator is a plain function, not an async one. Do its work in a tool.")
        shape, docs = _signature_shape(wanted, where, {}, contexts=False)
        return _Output(name=name, description=docs.text, schema=shape.schema, decode=_validated(shape, wanted))
    alone: Shape | None = _shapes().shape_of(wanted, where, {})
    if alone is not None:
        text = read_docs(own_doc(wanted)).text if inspect.isclass(wanted) else ""
        return _Output(name=name, description=text, schema=alone.schema, decode=alone.decode)
    field = Field(name="value", key="value", hint=wanted, required=True)
    wrapped = _shapes().shape_of_fields([field], where, {}, {})
    decode: Json = wrapped.decode
    return _Output(name=name, description="", schema=wrapped.schema, decode=lambda given: decode(given)["value"])


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
