"""What may be done: the definition of a tool, and how a call's raw arguments become its own.

A `Tool` is immutable and shared by any number of turns. How a call is guarded, run and logged is the loop's
business; how a Python function becomes a tool is `functions`'.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from inspect import iscoroutinefunction
from math import isfinite
from typing import Literal

import attrs

from .errors import InvalidArguments, UsageError
from .messages import Json
from .model import OutputSchema, ToolSchema

Replay = Literal["pure", "idempotent", "reconcile", "at_most_once"]
"""What may happen to a call whose outcome is unknown. `pure` and `idempotent` may run again with the same key;
`reconcile` asks the tool's own `reconcile(key)` first; `at_most_once` never runs again."""

NO_ARGUMENTS: Json = {"type": "object", "properties": {}, "additionalProperties": False}


@attrs.frozen(kw_only=True, eq=False)
class Tool:
    """One thing that a model may ask for.

    `call` gets the decoded arguments as keywords, and a `CallContext` or `TurnContext` where a parameter is
    annotated so; it may be sync (it then runs in a worker thread) or async, and may raise anything: a fault goes
    to the model. `parameters` is a JSON Schema object. `decode` turns the parsed object into keywords and raises
    `InvalidArguments`; without it the kernel checks required names and top-level types. `exclusive` runs alone.
    `timeout_seconds` of None means the agent's `tool_seconds`. `needs_approval` defers each call until somebody
    decides. `reconcile(key)` says what came of an earlier try: a result, or None if nothing did.
    """

    name: str
    description: str = ""
    parameters: Json = NO_ARGUMENTS
    call: Callable[..., object]
    exclusive: bool = False
    replay: Replay = "at_most_once"
    timeout_seconds: float | None = None
    needs_approval: bool = False
    decode: Callable[[Mapping[str, Json]], Mapping[str, object]] | None = None
    reconcile: Callable[[str], object | Awaitable[object]] | None = None

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise UsageError("A tool needs a name. Give Tool(name=...), or decorate a named function.")
        if self.replay == "reconcile" and self.reconcile is None:
            raise UsageError(f'Tool "{self.name}" says replay="reconcile" but has no reconcile(key). Give it one.')

    @property
    def schema(self) -> ToolSchema:
        """What the model is told."""
        return ToolSchema(name=self.name, description=self.description, parameters=self.parameters)

    @cached_property
    def is_async(self) -> bool:
        """Whether `call` is a coroutine function; any other runs in a worker thread."""
        return iscoroutinefunction(self.call) or iscoroutinefunction(type(self.call).__call__)

    @property
    def replay_safe(self) -> bool:
        """Whether an interrupted call may run again."""
        return self.replay in ("pure", "idempotent", "reconcile")

    def arguments(self, raw: str) -> Mapping[str, object]:
        """The keywords for `call` out of the model's raw text, or `InvalidArguments`."""
        given = parse_object(raw)
        if self.decode is not None:
            return self.decode(given)
        return check_object(given, self.parameters)


NO_ANSWER = "no structured answer"
"""How the detail of a completed turn begins that owed one; what was wrong follows."""


@attrs.frozen(kw_only=True, eq=False)
class Wanted:
    """A structured answer that a turn owes.

    `tool` is how a model gives it, and concludes the turn; `schema` is for providers that write it themselves.
    `decode` makes the value of the answer's JSON text, or raises `InvalidArguments` in words for the model.
    """

    tool: Tool
    schema: OutputSchema
    decode: Callable[[str], object]


def parse_object(raw: str) -> dict[str, Json]:
    """The JSON object in a call's raw arguments.

    Nothing but white space means no arguments. An object that was encoded twice is unwrapped once, as some models
    send it. Anything else is `InvalidArguments`, in words for the model.
    """
    if not raw.strip():
        return {}
    value = _json(raw)
    if isinstance(value, str):
        value = _json(value)
    if not isinstance(value, dict):
        raise InvalidArguments("The arguments are not a JSON object. Send one object with the tool's parameters.")
    return value


def _json(text: str) -> Json:
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        raise InvalidArguments("The arguments are not valid JSON. Send one complete JSON object.") from None


def _finite(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _no_constant(text)  # 1e999 is JSON's grammar, but no float holds it


def _no_constant(name: str) -> float:
    raise InvalidArguments(f"The arguments hold {name}, which is not a JSON number. Send a finite number.")


_decoder = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)  # json.loads would make one a call

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def check_object(given: Mapping[str, Json], schema: Json) -> Mapping[str, object]:
    """`given`, if it has the schema's required names and top-level types and no unknown name where that is refused."""
    properties: Mapping[str, Json] = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in given]
    if missing:
        raise InvalidArguments(f"Missing: {', '.join(missing)}.")
    for name, value in given.items():
        rule = properties.get(name)
        if rule is None:
            if schema.get("additionalProperties", True) is False:
                allowed = ", ".join(properties) or "none"
                raise InvalidArguments(f"Unknown argument {name[:80]}. Allowed: {allowed}.")
            continue
        wanted = rule.get("type") if isinstance(rule, dict) else None
        names = [wanted] if isinstance(wanted, str) else wanted
        if names and not any(is_of(value, kind) for kind in names):
            raise InvalidArguments(f"{name} must be of type {' or '.join(names)}, not {kind_of(value)}.")
    return given


def is_of(value: Json, kind: str) -> bool:
    """Whether a value is of a type as JSON Schema names it."""
    # JSON Schema counts 1.0 as an integer and never counts a boolean as a number (2020-12, section 6.1.1).
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, (object,)))


def kind_of(value: Json) -> str:
    """The type of a value as JSON Schema names it."""
    kinds = ("null", "boolean", "integer", "number", "string", "array")
    return next((kind for kind in kinds if is_of(value, kind)), "object")
