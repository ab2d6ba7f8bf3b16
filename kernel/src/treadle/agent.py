"""Who acts, and within which limits. An `Agent` is a definition: immutable, and shared by any number of turns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias, Union

import attrs

from .errors import UsageError
from .messages import Json, Text
from .model import Model
from .tools import Tool


@attrs.frozen(kw_only=True)
class Limits:
    """Every loop has a budget. None means no limit.

    A turn: `max_steps`, `max_vetoes` (rounds of objections to its end), `tokens`, `seconds`. A step: `max_attempts`
    model calls, `max_parallel` tool bodies at once. A tool body: `tool_seconds`. A tool's result: `result_bytes` of its
    text enter the context, the whole is kept in the log. A hook call: `hook_seconds`. What ignores a cancel is left
    behind after `grace_seconds`. A store silent for `store_seconds` has failed. A session: `max_turns_alone` turns in
    a row without a message from outside.
    """

    max_steps: int = 10
    max_vetoes: int = 3
    max_attempts: int = 4
    max_parallel: int = 8
    max_turns_alone: int = 25
    tool_seconds: float = 120.0
    hook_seconds: float = 30.0
    grace_seconds: float = 5.0
    store_seconds: float = 30.0
    result_bytes: int | None = 50_000
    tokens: int | None = None
    seconds: float | None = None

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Limits):
            value = getattr(self, field.name)
            low = 1 if field.name in ("max_steps", "max_attempts", "max_parallel", "max_turns_alone") else 0
            if value is not None and value < low:
                raise UsageError(f"Limits({field.name}={value!r}): must be at least {low}.")


Instructions: TypeAlias = Union[str, Callable[..., Union[str, Awaitable[str]]]]


def _tools(tools: Sequence[Tool | Callable[..., object]]) -> tuple[Tool, ...]:
    if all(isinstance(each, Tool) for each in tools):
        return tuple(each for each in tools if isinstance(each, Tool))
    from .functions import tool  # msgspec is loaded only when a function becomes a tool

    return tuple(each if isinstance(each, Tool) else tool(each) for each in tools)


def _frozen(mapping: Mapping[str, Json]) -> Mapping[str, Json]:
    return MappingProxyType(dict(mapping))


@attrs.frozen(kw_only=True, eq=False)
class Agent:
    """An immutable definition.

    `instructions` is text, or a sync or async callable of the turn's context, evaluated once a turn. `model` is a
    reference such as `openai:gpt-5`, opened by the stack, or a `Model`. `params` are the model's own settings.
    Plain functions among `tools` become tools. `digest` names this definition in the log of each step.
    """

    name: str = "agent"
    version: str = ""
    instructions: Instructions = ""
    model: str | Model
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=_tools)
    limits: Limits = attrs.field(factory=Limits)
    params: Mapping[str, Json] = attrs.field(factory=dict, converter=_frozen)
    metadata: Mapping[str, Json] = attrs.field(factory=dict, converter=_frozen)

    def __attrs_post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f'Agent "{self.name}" has several tools named {", ".join(twice)}. Rename all but one.')

    @cached_property
    def digest(self) -> str:
        """A SHA-256 over all that decides how it acts. Callables count by their qualified name."""
        instructions = self.instructions
        if not isinstance(instructions, str):
            instructions = getattr(instructions, "__qualname__", type(instructions).__qualname__)
        definition = [
            self.name,
            self.version,
            instructions,
            self.model if isinstance(self.model, str) else self.model.ref,
            [
                [t.name, t.description, t.parameters, t.exclusive, t.replay, t.needs_approval, t.timeout_seconds]
                for t in self.tools
            ],
            dict(self.params),
            attrs.asdict(self.limits),
        ]
        text = json.dumps(definition, sort_keys=True, default=repr, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def instructions_text(self) -> tuple[Text, ...]:
        """The instructions as parts, where they are plain text."""
        return (Text(self.instructions),) if isinstance(self.instructions, str) and self.instructions else ()
