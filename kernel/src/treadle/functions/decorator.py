"""The decorator: a function becomes a `Tool`."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, update_wrapper
from typing import overload

import attrs

from treadle.context import ToolAnswer, as_answer
from treadle.errors import UsageError
from treadle.messages import Json
from treadle.tools import Replay, Tool

from .signatures import NAME, signature_shape


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
        shape, docs = signature_shape(function, f'Tool "{label}"', names)
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
    if not NAME.fullmatch(name):
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
