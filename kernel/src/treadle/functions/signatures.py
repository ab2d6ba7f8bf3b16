"""Signatures: the shape of a function's arguments, from its annotations, defaults and docstring."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from typing import TYPE_CHECKING

import attrs

from treadle.context import context_parameters
from treadle.errors import MissingExtra, UsageError
from treadle.messages import Json

from .docstrings import Docs, read_docs
from .records import ABSENT, Field, from_parameter, innermost, own_doc, parameter_hints

if TYPE_CHECKING:
    from .shapes import Shape

NAME = re.compile("[a-zA-Z0-9_-]{1,64}")
"""The providers' own rule for names of functions and of schemas, in their API references."""


def signature_shape(
    function: Callable[..., object], where: str, names: Mapping[str, object], *, contexts: bool = True
) -> tuple[Shape, Docs]:
    """The shape of a function's arguments, and what its docstring says."""
    shape_of_fields = shapes().shape_of_fields
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


def shapes() -> Json:
    """The module that makes schemas, loaded on first use. Raises `MissingExtra` if msgspec is not there."""
    try:
        from . import shapes as made
    except ImportError as error:
        if error.name != "msgspec":
            raise
        raise MissingExtra("tools", "Making a tool of a function, or a schema of a type,") from None
    return made


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
