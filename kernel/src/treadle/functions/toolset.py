"""Tool sets: a module, an object or a class as a bundle of tools, and as a plugin with a life of its own."""

from __future__ import annotations

import difflib
import inspect
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from types import ModuleType
from typing import Any

import anyio
import attrs
from anyio.abc import TaskGroup

from treadle.context import TurnContext, context_parameters
from treadle.errors import UsageError
from treadle.hooks import hookimpl
from treadle.messages import Json
from treadle.tools import Tool

from .decorator import tool

_LIFE = "lifespan"
"""The one public function of a bundle that is no tool: an async context manager around its use."""

Options = Mapping[str, Mapping[str, Any]]


def tools_of(
    source: object,
    *,
    prefix: str = "",
    rename: Mapping[str, str] | None = None,
    only: Sequence[str] | None = None,
    options: Options | None = None,
) -> tuple[Tool, ...]:
    """The public functions of a module, or the public methods of an object, as tools, in the order they were written.

    A module's `__all__` counts where it has one; else what it defines itself. Tools in there stay as they are. Names
    that begin with `_`, and `lifespan`, are left out. `prefix` stands before each name with a `_` between, except
    where `rename` (old to new) says the whole name; `only` picks; `options` are those of `tool()`, by old name.

    Raises `UsageError` for a class (which has no object yet), for a name that is not there, and for two tools that
    would end with one name.
    """
    if inspect.isclass(source):
        raise UsageError(f"{source.__name__} is a class. Make an object of it, or ToolSet({source.__name__}).")
    found = dict(_of_module(source) if isinstance(source, ModuleType) else _of_object(source))
    where = getattr(source, "__name__", type(source).__name__)
    for name in [*(rename or ()), *(only or ()), *(options or ())]:
        if name not in found:
            near = difflib.get_close_matches(name, found, 1)
            hint = f"Did you mean {near[0]}?" if near else f"It has: {', '.join(found) or 'none'}."
            raise UsageError(f'{where} has no tool "{name}". {hint}')
    made: dict[str, Tool] = {}
    for name, each in found.items():
        if only is not None and name not in only:
            continue
        new = (rename or {}).get(name) or (f"{prefix}_{name}" if prefix else name)
        if new in made:
            raise UsageError(f'{where} would have two tools named "{new}". Rename one: rename={{"{name}": ...}}.')
        made[new] = _tool(each, new, (options or {}).get(name, {}))
    if not made:
        raise UsageError(f"{where} has no public function that could be a tool.")
    return tuple(made.values())


def _tool(each: object, name: str, options: Mapping[str, Any]) -> Tool:
    if isinstance(each, Tool):
        return attrs.evolve(each, name=name, **options)
    function: Json = each
    return tool(function, name=name, **options)


def _of_module(module: ModuleType) -> Iterable[tuple[str, object]]:
    listed: Sequence[str] | None = getattr(module, "__all__", None)
    for name, value in vars(module).items():
        if name in listed if listed is not None else not name.startswith("_"):
            own = listed is not None or getattr(value, "__module__", "") == module.__name__
            if isinstance(value, Tool) or (own and inspect.isroutine(value) and name != _LIFE):
                yield (value.name if isinstance(value, Tool) else name), value


def _of_object(source: object) -> Iterable[tuple[str, object]]:
    seen: dict[str, None] = {}
    for kind in reversed(type(source).__mro__[:-1]):  # all but `object`; what a class inherits was written before
        seen |= dict.fromkeys(vars(kind))
    for name in seen:
        plain = inspect.getattr_static(type(source), name)
        method = inspect.isroutine(plain) or isinstance(plain, (staticmethod, classmethod))
        if not name.startswith("_") and name != _LIFE and (method or isinstance(plain, Tool)):
            yield (plain.name if isinstance(plain, Tool) else name), getattr(source, name)


# --- as a plugin -----------------------------------------------------------------------------------------------------


class ToolSet:
    """A plugin that provides a bundle's tools: `Stack([ToolSet(weather), ToolSet(Basket, prefix="shop")])`.

    A module or an object serves all sessions. Of a class each session gets an object of its own, made when the session
    first needs tools, from no arguments or from a parameter annotated `TurnContext`: what it keeps is that session's
    state, and goes when the session's driver closes. State that must outlast that belongs into notes or a store.

    A bundle that is an async context manager, or has a `lifespan()` that makes one, is entered before its first tool is
    offered and left when the session, or for shared ones the stack, closes. `when` (a plain function of the turn's
    context) says in which steps the tools are offered. `name` is the plugin's; the rest is as for `tools_of`.

    A name that another tool of the step has fails the turn and names both owners: give a `prefix`, or `rename`.
    """

    def __init__(
        self,
        source: object,
        *,
        name: str = "",
        prefix: str = "",
        rename: Mapping[str, str] | None = None,
        only: Sequence[str] | None = None,
        options: Options | None = None,
        when: Callable[[TurnContext[Any]], bool] | None = None,
    ) -> None:
        self._choice: dict[str, Any] = {"prefix": prefix, "rename": rename, "only": only, "options": options}
        self.name = name or _plugin_name(source, prefix)
        self._source, self._when = source, when
        self._shared = None if inspect.isclass(source) else tools_of(source, **self._choice)
        self._group: TaskGroup | None = None
        self._live: dict[str, _Bundle] = {}

    @hookimpl
    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Keep the bundles' tasks while the stack is open, and close all bundles with it."""
        fault: Exception | None = None
        async with nullcontext() if self._shared is None else _life(self._source), anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            except Exception as error:  # kept, so that it comes out as it is and not in the task group's own
                fault = error
            finally:
                for session in [*self._live]:
                    self._close(session)
                self._group = None
        if fault is not None:
            raise fault

    @hookimpl
    async def provide_tools(self, context: TurnContext[Any]) -> Sequence[Tool]:
        """The shared tools, or those of this session's own bundle."""
        if self._when is not None and not self._when(context):
            return ()
        if self._shared is not None:
            return self._shared
        bundle = self._live.get(context.session)
        if bundle is None:
            assert self._group is not None
            bundle = self._live[context.session] = _Bundle()
            self._group.start_soon(bundle.live, self._source, context, self._choice)
        await bundle.ready.wait()
        if bundle.fault is not None:
            self._live.pop(context.session, None)
            raise bundle.fault
        return bundle.tools

    @hookimpl
    def on_status(self, session: str, status: str) -> None:
        """Close a session's bundle with its driver."""
        if status == "closed":
            self._close(session)

    def _close(self, session: str) -> None:
        if bundle := self._live.pop(session, None):
            bundle.closing.set()


class _Bundle:
    """One session's object, alive in a task of its own: what enters a context must also leave it."""

    def __init__(self) -> None:
        self.ready, self.closing = anyio.Event(), anyio.Event()
        self.tools: tuple[Tool, ...] = ()
        self.fault: Exception | None = None

    async def live(self, kind: Json, context: TurnContext[Any], choice: Mapping[str, Any]) -> None:
        try:
            wanting = {name: context for name, wants_turn in context_parameters(kind) if wants_turn}
            made = kind(**wanting)
            async with _life(made):
                self.tools = tools_of(made, **choice)
                self.ready.set()
                await self.closing.wait()
        except Exception as error:
            self.fault = error
            if self.ready.is_set():
                logging.getLogger("treadle").warning("tool set %s failed at its end: %r", kind, error)
        finally:
            self.ready.set()


def _life(bundle: Any) -> AbstractAsyncContextManager[object]:
    if hasattr(type(bundle), "__aenter__"):
        manager: AbstractAsyncContextManager[object] = bundle
        return manager
    lifespan = getattr(bundle, _LIFE, None)
    return nullcontext() if lifespan is None else lifespan()


def _plugin_name(source: Any, prefix: str) -> str:
    """The prefix, or the source's own name in lower case with dashes."""
    if prefix:
        return prefix
    name = getattr(source, "__name__", "") or type(source).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name.rpartition(".")[2]).replace("_", "-").lower()
