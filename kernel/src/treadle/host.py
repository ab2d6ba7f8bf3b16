"""Orders and awaits plugins. The only module that uses pluggy's manager.

pluggy registers, validates and orders; it never calls. Call plans are built once, at composition, and replaced rather
than edited. The host knows how a hook's answers are joined, not what they mean to the loop.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import ModuleType
from typing import Any, TypeVar

import attrs
import pluggy
from anyio import CancelScope, current_time

from .context import APP, Answer, AskedCall, CallContext, Defer, Deny, Halt, Retry, ToolAnswer, TurnContext, Verdict
from .errors import CompositionError, PluginError, ProviderError, UnknownReference, UsageError
from .events import RESERVED_NAMES, Event
from .hooks import JOINS, Delta, Join, OpenStack, Specs
from .messages import Json, Message, as_message
from .model import Model, Reply, Request
from .store import Store
from .tools import Tool
from .view import View

T = TypeVar("T")
Turn = TurnContext[Json]


@attrs.frozen
class Row:
    """One implementation: called with the spec's arguments in the spec's order."""

    plugin: str
    call: Callable[..., Any]
    is_async: bool
    tryfirst: bool


Rows = tuple[Row, ...]
_MARK = "treadle_impl"  # where pluggy's marker leaves its options
_WAITS = "__treadle_waits__"  # a function made in place of an object that may turn out to be async


class Host:
    """The plugins of one stack, with a plan for each hook. Immutable once made, but for its fault counter."""

    def __init__(self, plugins: Sequence[tuple[str, object]], specs: Sequence[type] = ()) -> None:
        """Compose. Raises `CompositionError` with every fault at once."""
        self.names = tuple(name for name, _ in plugins)
        self.faults = 0
        self._plugins = dict(plugins)
        manager, faults = _manage(plugins, specs)
        plans = {hook: _plan(manager, hook, join, _wanted(Specs, hook), faults) for hook, join in JOINS.items()}
        if faults:
            raise CompositionError(faults)
        self.manager = manager
        self.required = {name: frozenset(getattr(plugin, "required_events", ())) for name, plugin in plugins}
        """By plugin, the names of its notes without which a session must not be read."""
        self._published = _published(manager, specs, faults)
        self.rows: dict[str, Rows] = plans
        self.provide = plans["provide_tools"]
        self.listens = bool(plans["on_delta"])
        self.notices = bool(plans["on_event"])

    # --- joins ---------------------------------------------------------------------------------------------

    async def _waterfall(
        self,
        hook: str,
        value: T,
        rest: tuple[object, ...],
        context: Any,
        accepts: object,
        changed: list[str] | None = None,
    ) -> T:
        """Each implementation gets what the one before returned; `changed` collects the plugins that answered.

        A fault is a `PluginError` naming the plugin.
        """
        with _bounded(self.rows[hook], _limits(context).hook_seconds) as bound:
            for row in self.rows[hook]:
                bound.plugin = context.author = row.plugin
                try:
                    answer = row.call(value, *rest, context)
                    if answer is not None and hasattr(answer, "__await__"):
                        answer = await answer
                except Exception as error:
                    raise PluginError(row.plugin, hook, error) from error
                if answer is None:
                    continue
                if not isinstance(answer, accepts):  # type: ignore[arg-type]
                    raise PluginError(row.plugin, hook, f"it returned {_kind(answer)}; see the hook's reference")
                value = answer
                if changed is not None:
                    changed.append(row.plugin)
                if isinstance(value, Halt):
                    break
        context.author = ""
        if bound.late:
            raise PluginError(bound.plugin, hook, f"no answer within {_limits(context).hook_seconds:g} s")
        return value

    async def _each(
        self,
        hook: str,
        args: tuple[object, ...],
        context: Any,
        take: Callable[[Row, Any], None],
        keep_author: bool = True,
    ) -> None:
        """Call each implementation; a fault goes to `take` as an exception and never stops the others.

        They share a scope, which costs more than most hooks do. One that times out ends it; those behind get another.
        """
        rows, at = self.rows[hook], 0
        seconds = _limits(context).hook_seconds if context is not None else 30.0
        while at < len(rows):
            with _bounded(rows[at:], seconds) as bound:
                for row in rows[at:]:
                    if keep_author and context is not None:
                        context.author = row.plugin
                    bound.renew()
                    try:
                        answer = row.call(*args)
                        if answer is not None and hasattr(answer, "__await__"):
                            answer = await answer
                    except Exception as error:
                        answer = error
                    take(row, answer)
                    at += 1
                    if bound.over:
                        break
            if bound.late:
                take(rows[at], TimeoutError(f"no answer within {seconds:g} s"))
                at += 1
        if keep_author and context is not None:
            context.author = ""

    def _notify(self, hook: str, *args: object) -> None:
        """Call sync observers; faults are contained and reported."""
        for row in self.rows[hook]:
            try:
                answer = row.call(*args)
                if hasattr(answer, "close") and hasattr(answer, "__await__"):
                    answer.close()
                    raise TypeError("it returned an awaitable, and this hook is sync")
            except Exception as error:
                if hook != "on_hook_error":
                    self.report(hook, row.plugin, error)

    def report(self, hook: str, plugin: str, error: BaseException) -> None:
        """Make a contained fault known: counted, logged, and told to `on_hook_error`. Never raises."""
        self.faults += 1
        import logging

        error.add_note(f"in hook {hook} of plugin {plugin}")
        logging.getLogger("treadle").warning("plugin %s failed in %s: %r", plugin, hook, error)
        self._notify("on_hook_error", hook, plugin, error)

    # --- composition's own ---------------------------------------------------------------------------------

    async def enter(self, stack: OpenStack, exits: AsyncExitStack) -> None:
        """Enter each plugin's lifespan in order; `exits` leaves them in reverse."""
        for row in self.rows["lifespan"]:
            try:
                manager = row.call(stack)
                if hasattr(manager, "__await__"):
                    manager = await manager
                if manager is None:
                    continue
                if not isinstance(manager, AbstractAsyncContextManager):
                    raise TypeError("lifespan returns an async context manager; decorate it with asynccontextmanager")
                await exits.enter_async_context(manager)
            except Exception as error:
                raise PluginError(row.plugin, "lifespan", error) from error

    def open_model(self, ref: str) -> Model:
        """The one model that a plugin opens for this reference."""
        model: Model = self._claim("open_model", "model", ref)
        return model

    def open_store(self, ref: str) -> Store:
        """The one store that a plugin opens for this reference."""
        store: Store = self._claim("open_store", "store", ref)
        return store

    def _claim(self, hook: str, what: str, ref: str) -> Any:
        claims: list[tuple[Row, object]] = []
        for row in self.rows[hook]:
            try:
                answer = row.call(ref)
            except Exception as error:
                raise PluginError(row.plugin, hook, error) from error
            if answer is not None:
                claims.append((row, answer))
                if row.tryfirst:
                    break
        if len(claims) > 1:
            raise UnknownReference(what, ref, self.names, [row.plugin for row, _ in claims])
        if not claims:
            raise UnknownReference(what, ref, self.names, hint=_hint(what, ref))
        return claims[0][1]

    async def fire(self, hook: str, **arguments: object) -> list[Any]:
        """Call a hook that a plugin published, and gather the answers that are not None. Faults are contained."""
        if hook not in self._published:
            known = ", ".join(sorted(self._published)) or "none"
            raise UsageError(f'No plugin of the stack publishes a hook "{hook}". Published: {known}.')
        rows, wanted = self._published[hook]
        if set(arguments) != set(wanted):
            raise UsageError(f"The hook {hook} takes {', '.join(wanted) or 'nothing'}, not {', '.join(arguments)}.")
        answers: list[Any] = []
        for row in rows:
            try:
                answer = row.call(*[arguments[name] for name in wanted])
                if hasattr(answer, "__await__"):
                    answer = await answer
            except Exception as error:
                self.report(hook, row.plugin, error)
                continue
            if answer is not None:
                answers.append(answer)
        return answers

    # --- the turn's hooks ----------------------------------------------------------------------------------

    async def tools(self, own: Sequence[Tool], context: Turn) -> dict[str, Tool]:
        """The agent's tools and those that plugins provide, by name; a name that is taken is a `PluginError`."""
        found = {tool.name: tool for tool in own}
        owner = dict.fromkeys(found, f"agent {context.agent.name}")
        faults: list[PluginError] = []

        def take(row: Row, answer: Any) -> None:
            if isinstance(answer, Exception):
                faults.append(PluginError(row.plugin, "provide_tools", answer))
                return
            for tool in answer or ():
                if tool.name in found:
                    why = f'tool "{tool.name}" is provided by {owner[tool.name]} too; rename one'
                    faults.append(PluginError(row.plugin, "provide_tools", why))
                found[tool.name], owner[tool.name] = tool, f"plugin {row.plugin}"

        await self._each("provide_tools", (context,), context, take)
        if faults:
            raise faults[0]
        return found

    async def before_step(self, batch: tuple[Message, ...], context: Turn) -> tuple[Message, ...] | Halt:
        """The batch as plugins let it pass, or the `Halt` of the first that stops the turn."""
        value = await self._waterfall("before_step", batch, (), context, (list, tuple, Halt))
        if isinstance(value, Halt):
            return value
        odd = next((each for each in value if not isinstance(each, Message)), None)
        if odd is not None:
            raise PluginError("?", "before_step", f"it returned a sequence with {_kind(odd)} in it, not messages")
        return tuple(value)

    async def transform_context(self, view: View, context: Turn, changed: list[str]) -> View:
        """The view as plugins change it; `changed` collects their names."""
        return await self._waterfall("transform_context", view, (), context, View, changed)

    async def shape_request(self, request: Request, context: Turn, changed: list[str]) -> Request:
        """The request as plugins change it; `changed` collects their names."""
        return await self._waterfall("shape_request", request, (), context, Request, changed)

    async def around_model(self, call: Callable[[Request], Awaitable[Reply]], request: Request, context: Turn) -> Reply:
        """The reply, through every wrapper."""
        for row in reversed(self.rows["around_model"]):
            call = _wrapped(row, call, context, "around_model", Reply)
        return await call(request)

    async def on_model_error(self, error: ProviderError, request: Request, context: Turn) -> Retry | None:
        """The first `Retry`; faults are contained."""
        verdict: list[Retry] = []

        def take(row: Row, answer: Any) -> None:
            if isinstance(answer, Exception):
                self.report("on_model_error", row.plugin, answer)
            elif isinstance(answer, Retry):
                verdict.append(answer)
            elif answer is not None:
                self.report("on_model_error", row.plugin, TypeError(f"it returned {_kind(answer)}, not Retry or None"))

        await self._each("on_model_error", (error, request, context), context, take)
        return verdict[0] if verdict else None

    async def before_tool(self, call: AskedCall, context: CallContext[Json]) -> Verdict | None:
        """What the guards say: Deny beats Defer beats Answer; a fault is a denial."""
        verdicts: list[Verdict] = []

        def take(row: Row, answer: Any) -> None:
            if isinstance(answer, (Deny, Defer, Answer)):
                verdicts.append(answer)
            elif answer is not None:
                error = answer if isinstance(answer, Exception) else TypeError(f"it returned {_kind(answer)}")
                self.report("before_tool", row.plugin, error)
                verdicts.append(Deny(f"The guard {row.plugin} failed, so the call was not allowed."))

        await self._each("before_tool", (call, context), context, take)
        for kind in (Deny, Defer, Answer):
            for verdict in verdicts:
                if isinstance(verdict, kind):
                    return verdict
        return None

    async def around_tool(
        self, body: Callable[[AskedCall], Awaitable[ToolAnswer]], call: AskedCall, context: CallContext[Json]
    ) -> ToolAnswer:
        """The answer, through every wrapper."""
        for row in reversed(self.rows["around_tool"]):
            body = _wrapped(row, body, context, "around_tool", ToolAnswer)
        return await body(call)

    async def after_tool(self, result: ToolAnswer, call: AskedCall, context: CallContext[Json]) -> ToolAnswer:
        """The result as plugins let it pass; raises `PluginError` instead of letting a raw value through."""
        return await self._waterfall("after_tool", result, (call,), context, ToolAnswer)

    async def on_turn_stopping(self, context: Turn) -> tuple[Message, ...]:
        """Objections to the end of the turn, as messages."""
        objections: list[Message] = []

        def take(row: Row, answer: Any) -> None:
            if answer is None:
                return
            given = answer if isinstance(answer, (list, tuple)) else (answer,)
            try:
                if isinstance(answer, Exception):
                    raise answer
                if not all(isinstance(each, (str, Message)) for each in given):
                    raise TypeError(f"it returned {_kind(answer)}, not messages")
            except Exception as error:
                self.report("on_turn_stopping", row.plugin, error)
                return
            objections.extend(as_message(each, role="context", origin=f"plugin:{row.plugin}") for each in given)

        await self._each("on_turn_stopping", (context,), context, take)
        return tuple(objections)

    async def on_event(self, event: Event, context: Turn | None) -> None:
        """Tell observers of an event."""

        def take(row: Row, answer: Any) -> None:
            if isinstance(answer, Exception):
                self.report("on_event", row.plugin, answer)

        await self._each("on_event", (event, context), context, take, keep_author=False)

    def on_delta(self, delta: Delta, context: Turn) -> None:
        """Tell observers of a delta."""
        self._notify("on_delta", delta, context)

    def on_status(self, session: str, status: str) -> None:
        """Tell observers of a driver's status."""
        self._notify("on_status", session, status)


class _bounded:
    """A scope of `seconds` around hooks that may wait; none around sync ones, which it would only slow down."""

    __slots__ = ("_began", "_scope", "_seconds", "late", "plugin")

    def __init__(self, rows: Rows, seconds: float) -> None:
        self.plugin, self.late = "", False
        self._scope: CancelScope | None = None
        if any(row.is_async for row in rows):
            self._began, self._seconds = current_time(), seconds
            self._scope = CancelScope(deadline=self._began + seconds)

    @property
    def over(self) -> bool:
        """Whether the time was up, though the hook may have answered all the same."""
        return self._scope is not None and self._scope.cancel_called

    def renew(self) -> None:
        """Give the hook that comes next its own time, unless those before took next to none of it."""
        if self._scope is not None and (now := current_time()) - self._began > self._seconds / 100:
            self._began, self._scope.deadline = now, now + self._seconds

    def __enter__(self) -> _bounded:
        if self._scope is not None:
            self._scope.__enter__()
        return self

    def __exit__(self, *exc: Any) -> bool:
        if self._scope is None:
            return False
        caught = self._scope.__exit__(*exc)
        self.late = self._scope.cancelled_caught
        return bool(caught)


def _limits(context: Any) -> Any:
    return context.limits if isinstance(context, TurnContext) else context.turn.limits


def _wrapped(row: Row, call_next: Callable[[Any], Awaitable[T]], context: Any, hook: str, kind: type[T]) -> Any:
    async def inner(value: Any) -> T:
        try:
            return await call_next(value)
        finally:
            context.author = row.plugin  # an inner wrapper or hook has had the pen meanwhile

    async def call(value: Any) -> T:
        context.author = row.plugin
        try:
            answer = await row.call(inner, value, context)
        except (ProviderError, PluginError):
            raise
        except Exception as error:
            raise PluginError(row.plugin, hook, error) from error
        finally:
            context.author = ""
        if not isinstance(answer, kind):
            raise PluginError(row.plugin, hook, f"it returned {_kind(answer)}, not {kind.__name__}")
        return answer

    return call


def _kind(value: object) -> str:
    return type(value).__name__


def _hint(what: str, ref: str) -> str:
    plugin = {"sqlite": "sqlite", "postgresql": "postgres", "jsonl": "jsonl", "local": "local", "script": "script"}.get(
        ref.split(":")[0], "http" if what == "model" else "sqlite"
    )
    return f"Install one that does, for example: pip install treadle-{plugin}"


# --- composing ---------------------------------------------------------------------------------------------


def _registrable(name: str, plugin: object) -> object:
    """The plugin, or a module of functions in its place if it marks partials or callable objects.

    pluggy looks at routines alone and would pass such an implementation over in silence.
    """
    odd = {
        attribute: marked
        for attribute in dir(plugin)
        if not attribute.startswith("__")
        and callable(marked := inspect.getattr_static(plugin, attribute, None))
        and not inspect.isroutine(marked)
        and hasattr(marked, _MARK)
    }
    if not odd:
        return plugin
    stand_in = ModuleType(name)
    for attribute in dir(plugin):
        value = odd[attribute] if attribute in odd else getattr(plugin, attribute)
        if attribute in odd:
            made = _binding(value, takes := _takes(value), takes, always=True)
            made.__name__ = attribute
            setattr(made, _MARK, getattr(value, _MARK))
            setattr(made, _WAITS, True)
            setattr(stand_in, attribute, made)
        elif hasattr(value, _MARK):
            setattr(stand_in, attribute, value)
    return stand_in


def _manage(plugins: Sequence[tuple[str, object]], specs: Sequence[type]) -> tuple[pluggy.PluginManager, list[str]]:
    manager = pluggy.PluginManager("treadle")
    manager.add_hookspecs(Specs)
    for each in specs:
        manager.add_hookspecs(each)
    faults: list[str] = []
    seen: set[str] = set()
    for name, plugin in reversed(plugins):  # pluggy calls the last registered first; the stack's list is call order
        if name in seen:
            faults.append(f'two plugins are named "{name}"; rename one, or leave one out')
        elif name in RESERVED_NAMES or name == APP:
            faults.append(f'plugin "{name}" is named like a core event type; rename it')
        else:
            seen.add(name)
            faults.extend(_odd_implementations(name, plugin, manager))
            try:
                manager.register(_registrable(name, plugin), name)
            except Exception as error:
                faults.append(f"{_where(name, plugin)}: {error}")
    return manager, faults


def _where(name: str, plugin: object) -> str:
    """The plugin with its distribution and version, where discovery left them."""
    origin = getattr(plugin, "__treadle_origin__", "")
    return f'plugin "{name}"' + (f" ({origin})" if origin else "")


def _odd_implementations(name: str, plugin: object, manager: pluggy.PluginManager) -> Iterable[str]:
    """What pluggy would let pass: misspelt names, keyword-only parameters, generator wrappers, async on sync hooks."""
    known = {spec for spec in vars(manager.hook) if not spec.startswith("_")}
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            continue
        hook, function = options.get("specname") or attribute, getattr(plugin, attribute)
        at = f"{_where(name, plugin)}, {attribute}"
        if hook not in known and not options["optionalhook"]:
            near = difflib.get_close_matches(hook, known, 1)
            yield f"{at}: there is no hook of that name" + (f"; did you mean {near[0]}?" if near else "")
            continue
        if options["wrapper"] or options["hookwrapper"]:
            yield f"{at}: generator wrappers are not awaited; use around_model or around_tool"
        odd = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        if odd:
            yield f"{at}: the parameter {odd[0]} is keyword-only and would never be passed"
        if hook in JOINS and JOINS[hook].sync and inspect.iscoroutinefunction(function):
            yield f"{at}: this hook is sync; an async implementation would never be awaited"


def _wanted(specs: type, hook: str) -> tuple[str, ...]:
    """The arguments of a spec."""
    return tuple(name for name in inspect.signature(getattr(specs, hook)).parameters if name != "self")


def _published(manager: pluggy.PluginManager, specs: Sequence[type], faults: list[str]) -> dict[str, tuple[Rows, Any]]:
    """Rows and arguments of the hooks that plugins publish themselves."""
    join = Join(joined="gather", fault="contain")
    return {
        hook: (_plan(manager, hook, join, wanted := _wanted(each, hook), faults), wanted)
        for each in specs
        for hook in vars(each)
        if hasattr(getattr(each, hook), "treadle_spec")
    }


def _plan(manager: pluggy.PluginManager, hook: str, join: Join, wanted: tuple[str, ...], faults: list[str]) -> Rows:
    rows: list[Row] = []
    if faults:
        return ()
    for impl in reversed(getattr(manager.hook, hook).get_hookimpls()):
        function, takes = impl.function, _takes(impl.function)
        odd = [name for name in takes if name not in wanted]
        if odd:
            faults.append(f'plugin "{impl.plugin_name}", {hook}: the hook has no argument {odd[0]}')
            continue
        is_async = not join.sync and (inspect.iscoroutinefunction(function) or hasattr(function, _WAITS))
        rows.append(Row(impl.plugin_name, _binding(function, takes, wanted), is_async, impl.tryfirst))
    return tuple(reversed(rows)) if join.reverse else tuple(rows)


def _takes(function: Callable[..., object]) -> tuple[str, ...]:
    """The arguments that an implementation takes by name; of partials and callables too, where pluggy sees none."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds)


def _binding(
    function: Callable[..., Any], takes: Sequence[str], wanted: Sequence[str], *, always: bool = False
) -> Callable[..., Any]:
    """`function` as a callable of all the spec's arguments in order, passing on those it takes by name."""
    if tuple(takes) == tuple(wanted) and not always:
        return function
    # A generated lambda costs a third of a closure over **kwargs; the names are parsed identifiers.
    passed = ", ".join(f"{name}={name}" for name in takes)
    made: Callable[..., Any] = eval(f"lambda {', '.join(wanted)}: function({passed})", {"function": function})
    return made
