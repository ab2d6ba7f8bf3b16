"""The hook specs, and how each one's answers are joined.

A plugin's method marked `@hookimpl` and named like a spec is called with the arguments that it names. Implementations
may be sync or async, but those of hooks marked sync. They return values; only the loop writes to the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import attrs
import pluggy

from .context import AskedCall, CallContext, Halt, Retry, ToolAnswer, TurnContext, Verdict
from .errors import ProviderError
from .events import Event
from .messages import Json, Message
from .model import Model, Reply, Request
from .store import Store
from .tools import Tool
from .view import View

hookspec = pluggy.HookspecMarker("treadle")
hookimpl = pluggy.HookimplMarker("treadle")

Joined = Literal["nested", "first", "gather", "waterfall", "guards", "notify"]
Fault = Literal["raise", "fail_turn", "fail_step", "deny", "error_result", "contain", "silent"]


@attrs.frozen(kw_only=True)
class Join:
    """How a hook's implementations are called, and what becomes of a plugin's fault or time-out."""

    joined: Joined
    fault: Fault
    sync: bool = False
    reverse: bool = False


JOINS: Mapping[str, Join] = {
    "lifespan": Join(joined="nested", fault="raise"),
    "open_model": Join(joined="first", fault="raise", sync=True),
    "open_store": Join(joined="first", fault="raise", sync=True),
    "provide_tools": Join(joined="gather", fault="raise"),
    "before_step": Join(joined="waterfall", fault="fail_turn"),
    "transform_context": Join(joined="waterfall", fault="fail_step"),
    "shape_request": Join(joined="waterfall", fault="fail_step"),
    "around_model": Join(joined="nested", fault="fail_step"),
    "on_model_error": Join(joined="first", fault="contain"),
    "before_tool": Join(joined="guards", fault="deny"),
    "around_tool": Join(joined="nested", fault="error_result"),
    "after_tool": Join(joined="waterfall", fault="error_result", reverse=True),
    "on_turn_stopping": Join(joined="gather", fault="contain"),
    "on_event": Join(joined="notify", fault="contain"),
    "on_delta": Join(joined="notify", fault="contain", sync=True),
    "on_status": Join(joined="notify", fault="contain", sync=True),
    "on_hook_error": Join(joined="notify", fault="silent", sync=True),
}


@attrs.frozen(kw_only=True)
class Delta:
    """A live piece of a model's reply or of a tool's progress. Never logged.

    It names turn, step and attempt, or call. `kind` is text, reasoning, arguments, progress or void; `void` withdraws
    all deltas of its attempt, whose request failed. `snapshot` marks the text so far, for one who joined late.
    """

    kind: Literal["text", "reasoning", "arguments", "progress", "void"]
    text: str
    turn: int
    step: int
    attempt: int = 0
    call: str = ""
    key: str | int = ""
    snapshot: bool = False


class OpenStack(Protocol):
    """The stack as its plugins see it while it opens and runs."""

    @property
    def plugins(self) -> Sequence[str]:
        """Names of the plugins, in order."""
        ...

    def open_model(self, ref: str) -> Model:
        """The model of a reference, from whichever plugin claims it."""
        ...

    def open_store(self, ref: str) -> Store:
        """The store of a reference; one object per reference and stack."""
        ...

    async def fire(self, hook: str, **arguments: object) -> Sequence[object]:
        """Call a hook that a plugin of the stack publishes, and gather the answers."""
        ...


class Specs:
    """Every hook of the kernel. Arguments are passed by name; leave out what you do not use."""

    @hookspec
    def lifespan(self, stack: OpenStack) -> AbstractAsyncContextManager[None]:
        """Open and close the plugin's resources.

        Called once when the stack opens, in list order; what it returns is entered then and left, in reverse order,
        when the stack closes. A fault stops the stack from opening.
        """
        raise AssertionError

    @hookspec
    def open_model(self, ref: str) -> Model | None:
        """Claim a model reference such as `openai:gpt-5`. Sync.

        Return the `Model`, or None if the reference is not yours. Called once per reference and stack. Two claimants
        are an error unless one is marked tryfirst. A fault is raised to whoever asked for the model.
        """
        raise AssertionError

    @hookspec
    def open_store(self, ref: str) -> Store | None:
        """Claim a store reference such as `sqlite:///app.db`. Sync; as `open_model`. The stack closes the store."""
        raise AssertionError

    @hookspec
    def provide_tools(self, context: TurnContext[Json]) -> Sequence[Tool] | Awaitable[Sequence[Tool]] | None:
        """Offer tools for the coming step, beside the agent's own.

        Called before each step. A name that is taken is an error that names both owners; it fails the turn.
        """
        raise AssertionError

    @hookspec
    def before_step(
        self, batch: tuple[Message, ...], context: TurnContext[Json]
    ) -> Sequence[Message] | Halt | Awaitable[Sequence[Message] | Halt | None] | None:
        """See the messages that the coming step is about to take, and change or refuse them.

        Called before each step, also with an empty batch when a reply is owed. Each implementation gets what the one
        before it returned: a message with the same id is rewritten, one left out is rejected, one with a new id is
        added. `Halt` ends the turn blocked. None changes nothing. A fault fails the turn; the batch stays pending.
        """
        raise AssertionError

    @hookspec
    def transform_context(self, view: View, context: TurnContext[Json]) -> View | Awaitable[View | None] | None:
        """Change what this one request shows of the conversation.

        Called before each model call, retries included. Return `view.insert(...)`, `view.hide(...)` or
        `view.replace(...)`; the log stays as it is, and `model/request` logs the change. None changes nothing. A fault,
        or a view that no model can be given (a call without its result, an assistant message last), fails the step.
        """
        raise AssertionError

    @hookspec
    def shape_request(self, request: Request, context: TurnContext[Json]) -> Request | Awaitable[Request | None] | None:
        """Change the request as a whole: instructions, tools, parameters. The last stop before it is logged.

        Called after `transform_context`. Return an evolved `Request`, or None. A fault fails the step.
        """
        raise AssertionError

    @hookspec
    def around_model(
        self, call_next: Callable[[Request], Awaitable[Reply]], request: Request, context: TurnContext[Json]
    ) -> Awaitable[Reply]:
        """Wrap the model call. `await call_next(request)` is the reply; its deltas have passed by then.

        The request is logged already and must be handed on as it is. `context.hold_deltas()` beforehand keeps the
        deltas back until the reply is accepted. A `ProviderError` raised here goes the way of any; another fault
        fails the step. Bound by the model call, not by `hook_seconds`.
        """
        raise AssertionError

    @hookspec
    def on_model_error(
        self, error: ProviderError, request: Request, context: TurnContext[Json]
    ) -> Retry | Awaitable[Retry | None] | None:
        """Say whether a failed model call is tried again in its step.

        The first `Retry` counts; None leaves it to others. The request is then built anew, so that an edit of the
        context counts. A fault is contained and means None.
        """
        raise AssertionError

    @hookspec
    def before_tool(self, call: AskedCall, context: CallContext[Json]) -> Verdict | Awaitable[Verdict | None] | None:
        """Guard a call, after its arguments were decoded and before its body starts.

        Every guard is asked: `Deny` beats `Defer` beats `Answer` beats None. A fault or time-out is a denial.
        """
        raise AssertionError

    @hookspec
    def around_tool(
        self, call_next: Callable[[AskedCall], Awaitable[ToolAnswer]], call: AskedCall, context: CallContext[Json]
    ) -> Awaitable[ToolAnswer]:
        """Wrap a tool's body. Bound by the call's own time-out. A fault becomes an error result."""
        raise AssertionError

    @hookspec
    def after_tool(
        self, result: ToolAnswer, call: AskedCall, context: CallContext[Json]
    ) -> ToolAnswer | Awaitable[ToolAnswer | None] | None:
        """Change a result before it is logged, in the model's order of calls. Runs in reverse list order.

        None changes nothing. A fault makes it an error result: a raw value never passes a broken redactor.
        """
        raise AssertionError

    @hookspec
    def on_turn_stopping(
        self, context: TurnContext[Json]
    ) -> Message | str | Sequence[Message | str] | Awaitable[Message | str | Sequence[Message | str] | None] | None:
        """Object to the end of a turn whose model owes nothing, with messages for one more step.

        Called at each such checkpoint. `context.vetoes` says how often the end was objected to before. Without vetoes
        or steps left the objections are counted and the turn ends. A fault is contained and means no objection.
        """
        raise AssertionError

    @hookspec
    def on_event(self, event: Event, context: TurnContext[Json] | None) -> Awaitable[None] | None:
        """See each event after its commit, in order; the turn's context, or None outside a turn. Contained."""
        raise AssertionError

    @hookspec
    def on_delta(self, delta: Delta, context: TurnContext[Json]) -> None:
        """See each live delta. Sync, and called for every piece: be quick. Contained."""
        raise AssertionError

    @hookspec
    def on_status(self, session: str, status: str) -> None:
        """See a driver become running, idle or closed. Sync. Contained."""
        raise AssertionError

    @hookspec
    def on_hook_error(self, hook: str, plugin: str, error: BaseException) -> None:
        """See a fault of a plugin that was contained. Sync. Faults in here are dropped."""
        raise AssertionError
