"""A step's tool work: calls are taken up in the model's order, run side by side, and answered in order.

This is the part of the loop below the step. It knows guards, bodies, time-outs and what is left behind; it knows
nothing of models or of when a turn ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio import CancelScope, current_effective_deadline, current_time, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint_if_cancelled

from .agent import Agent
from .context import (
    Allow,
    Answer,
    AskedCall,
    CallContext,
    Decision,
    Defer,
    Deny,
    ToolAnswer,
    TurnContext,
    Verdict,
    as_answer,
    plugin_data,
    wanted_contexts,
)
from .errors import InvalidArguments, PluginError, UsageError
from .events import KERNEL, Data, ToolCall, ToolResult
from .excerpts import excerpt
from .hooks import Delta
from .host import Host
from .messages import Call, Json, Part, Status, Text
from .session import Note, Session
from .tools import Tool, Wanted

THREADS = sys.platform not in ("emscripten", "wasi")
"""Whether sync tools run in worker threads; elsewhere they run inline."""

_NAMES_SHOWN = 20


class CallTurn(Protocol):
    """What a step's tool work needs of its turn."""

    session: Session
    context: TurnContext[Any]
    tools: Mapping[str, Tool]
    next_agent: Agent | None
    output: Wanted | None

    @property
    def host(self) -> Host: ...
    def spawn(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None: ...
    def emit(self, delta: Delta) -> None: ...


class Run:
    """One call: from being taken up to its result in the log."""

    __slots__ = (
        "answer", "arguments", "asked", "begun", "call", "context", "cut", "detach_at", "hard", "left", "resumed",
        "scope", "tool",
    )  # fmt: skip

    def __init__(self, call: Call, resumed: bool) -> None:
        self.call, self.resumed = call, resumed
        self.arguments = call.arguments
        self.tool: Tool | None = None
        self.asked = AskedCall(id=call.id, name=call.name, arguments={}, raw=call.arguments)
        self.context: CallContext[Any] | None = None
        self.answer: ToolAnswer | None = None  # set once: the call is settled
        self.begun = False  # its body has started
        self.cut = ""  # why its body was told to stop: timeout or cancelled
        self.left = False  # its body was left behind
        self.scope = CancelScope()
        self.hard: CancelScope | None = None  # around a worker thread, which a cancel cannot stop
        self.detach_at = float("inf")

    @property
    def running(self) -> bool:
        return self.begun and self.answer is None


class Work:
    """All calls of one step, and how far they are."""

    def __init__(
        self, turn: CallTurn, calls: Sequence[Call], decisions: Mapping[str, Decision | None] | None = None
    ) -> None:
        self.turn = turn
        self.runs = [Run(call, resumed=decisions is not None) for call in calls]
        self.decisions = decisions or {}
        self.taken = 0  # calls that were taken up
        self.running = 0  # bodies that have begun and did not settle
        self.changed = False  # since this was last looked at
        self.waiting: anyio.Event | None = None  # made only where somebody waits: it costs more than a call's result

    # What the log has is asked of its fold, not remembered: a cancel may strike between a commit and who awaits it.

    @property
    def logged(self) -> int:
        """Calls whose result is in the log."""
        return self.turn.session.state.answered

    def _is_called(self, run: Run) -> bool:
        """Whether its tool/call is in the log."""
        return self.turn.session.state.calls[run.call.id].called is not None

    async def run(self) -> None:
        """Run them all. If cancelled, `finish_cancelled` must follow."""
        runs = self.runs
        while self.logged < len(runs):
            if self.turn.session.notes:
                await self._write_notes()
            if self._may_take():
                await self._take(runs[self.taken])
                self.taken += 1
            elif runs[self.logged].answer is not None:
                await self._log(runs[self.logged])
            else:
                await self._wait()

    def _may_take(self) -> bool:
        """Whether the next call may be taken up: a free slot, and exclusive calls run alone."""
        if self.taken == len(self.runs):
            return False
        if self.taken == self.logged:
            return True
        before, tool = self.runs[self.taken - 1].tool, self.turn.tools.get(self.runs[self.taken].call.name)
        if (tool is not None and tool.exclusive) or (before is not None and before.exclusive):
            return False
        return self.running < self.turn.context.limits.max_parallel

    # --- taking a call up ----------------------------------------------------------------------------------

    async def _take(self, run: Run) -> None:
        """Validate and guard a call; start its body, or settle it without one."""
        turn, decision = self.turn, self.decisions.get(run.call.id)
        tool = run.tool = turn.tools.get(run.call.name)
        seconds = turn.context.limits.tool_seconds
        if tool is not None and tool.timeout_seconds is not None:
            seconds = tool.timeout_seconds
        context = run.context = self._context(run, seconds, decision)
        if tool is None:
            run.answer = _refused("unknown_tool", _unknown(run.call.name, turn.tools))
            return
        try:
            if isinstance(decision, Allow) and decision.arguments is not None:
                run.arguments = json.dumps(dict(decision.arguments))
            arguments = tool.arguments(run.arguments)
        except InvalidArguments as error:
            run.answer = _refused("invalid_arguments", f"{error}")
            return
        except Exception as error:
            run.answer = _refused("invalid_arguments", f"The arguments do not fit the tool ({type(error).__name__}).")
            return
        run.asked = AskedCall(id=run.call.id, name=run.call.name, arguments=arguments, raw=run.arguments)
        verdict = await self._verdict(run, tool, decision, context)
        if verdict is None:
            await self._begin(run, tool, seconds)
        elif isinstance(verdict, Deny):
            run.answer = _refused("denied", f"The call was denied: {verdict.reason}")
        elif isinstance(verdict, Defer):
            reason = f": {verdict.reason}" if verdict.reason else "."
            run.answer = _refused("deferred", f"The call waits for a decision{reason}")
        else:
            run.answer = as_answer(verdict.result)

    async def _verdict(
        self, run: Run, tool: Tool, decision: Decision | None, context: CallContext[Any]
    ) -> Verdict | None:
        """What decision and guards say together. A person's Allow stands for every Defer, never against a Deny."""
        if isinstance(decision, (Deny, Answer)):
            return decision
        verdict = await self.turn.host.before_tool(run.asked, context) if self.turn.host.rows["before_tool"] else None
        if tool.needs_approval and not isinstance(verdict, Deny):
            verdict = Defer(f"{tool.name} needs approval")
        return None if isinstance(verdict, Defer) and isinstance(decision, Allow) else verdict

    async def _begin(self, run: Run, tool: Tool, seconds: float) -> None:
        turn = self.turn
        await checkpoint_if_cancelled()
        await turn.session.append(
            ToolCall(call_id=run.call.id, arguments=run.arguments, replay="safe" if tool.replay_safe else "never")
        )
        await turn.session.sync()
        await checkpoint_if_cancelled()  # a cancel during the barrier: the body must not begin
        run.begun = True
        self.running += 1
        if THREADS and not tool.is_async:
            run.hard = CancelScope(shield=True)
        run.scope.deadline = current_time() + seconds
        run.detach_at = run.scope.deadline + turn.context.limits.grace_seconds
        turn.spawn(self._body, run, tool)

    def _context(self, run: Run, seconds: float, decision: Decision | None) -> CallContext[Any]:
        turn = self.turn.context

        def progress(text: str) -> None:
            delta = Delta(kind="progress", text=text, turn=turn.turn, step=turn.step, call=run.call.id)
            _on_loop(self.turn.emit, delta)

        def note(plugin: str, name: str, data: Json) -> None:
            _on_loop(self._note, run, plugin, name, data)

        return CallContext(
            call=run.call.id,
            key=f"{turn.session}:{run.call.id}",
            deadline=current_time() + seconds,
            turn=turn,
            progress=progress,
            note=note,
            decision="allow" if isinstance(decision, Allow) else "",
        )

    def _note(self, run: Run, plugin: str, name: str, data: Json) -> None:
        if run.left or (run.answer is not None and self.runs.index(run) < self.logged):
            error = UsageError(f"a note {plugin}/{name} came after the call's result and was dropped")
            self.turn.host.report("note", plugin, error)
            return
        self.turn.session.notes.append(Note(plugin_data(plugin, name, data), plugin))
        self._change()

    async def _write_notes(self) -> None:
        notes, self.turn.session.notes = self.turn.session.notes, []
        await self.turn.session.append_notes(notes)

    # --- the body ------------------------------------------------------------------------------------------

    async def _body(self, run: Run, tool: Tool) -> None:
        """Run a body to its answer. A task of the driver's group; whatever the body raises becomes an answer."""
        answer: ToolAnswer | None = None
        try:
            with run.scope:
                try:
                    answer = await self._called(run, tool)
                except BaseException as error:
                    if isinstance(error, (GeneratorExit, KeyboardInterrupt)) or _is_cancel(error, run.scope):
                        raise  # trio raises a person's Ctrl-C in whatever runs: as a result it would be lost
                    answer = _fault(tool, error)
        except Exception as error:
            answer = _fault(tool, error)
        finally:
            if run.answer is None and not run.left:
                run.answer = answer if answer is not None else self._stopped(run, tool)
                self.running -= 1
            self._change()

    def _stopped(self, run: Run, tool: Tool) -> ToolAnswer:
        if run.scope.cancel_called and not run.cut:
            return _refused("timeout", f"{tool.name} did not answer in time and was stopped.")
        return _refused("cancelled", f"The call of {tool.name} was cancelled.")

    async def _called(self, run: Run, tool: Tool) -> ToolAnswer:
        host = self.turn.host
        if not host.rows["around_tool"] or run.context is None:
            return await self._invoke(run, tool, run.asked)

        async def innermost(asked: AskedCall) -> ToolAnswer:
            if run.context is not None:
                run.context.author = ""  # the body's notes are the application's, not a wrapper's
            return await self._invoke(run, tool, asked)

        return await host.around_tool(innermost, run.asked, run.context)

    async def _invoke(self, run: Run, tool: Tool, asked: AskedCall) -> ToolAnswer:
        context = run.context
        assert context is not None
        if run.resumed and tool.reconcile is not None:
            known = await _awaited(tool.reconcile(context.key))
            if known is not None:
                return as_answer(known)
        keywords = dict(asked.arguments)
        for name, wants_turn in wanted_contexts(tool):
            keywords[name] = context.turn if wants_turn else context
        if run.hard is None:
            return as_answer(await _awaited(tool.call(**keywords)))
        # The thread is shielded, so that a cancel lets it finish in the grace period; `hard` leaves it behind.
        with run.hard:
            value = await anyio.to_thread.run_sync(
                _in_thread, tool, keywords, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
            return as_answer(await _awaited(value))
        raise TimeoutError("left behind")

    # --- waiting and answering -----------------------------------------------------------------------------

    async def _wait(self) -> None:
        """Sleep until something settles, or a body has ignored its stop for too long."""
        if not self.changed:
            due = min(run.detach_at for run in self.runs[self.logged : self.taken] if run.running)
            self.waiting = anyio.Event()
            with CancelScope(deadline=due):
                await self.waiting.wait()
            self.waiting = None
        self.changed = False
        if self.running:
            self._leave_late(current_time())

    def _change(self) -> None:
        self.changed = True
        if self.waiting is not None:
            self.waiting.set()

    def _leave_late(self, now: float) -> None:
        for run in self.runs[: self.taken]:
            if run.running and now >= run.detach_at:
                self._leave(run)

    def _leave(self, run: Run) -> None:
        """Leave a body behind that does not stop; its late result is ignored."""
        name = run.call.name
        run.left = True
        self.running -= 1
        run.answer = _refused("detached", f"{name} did not stop and was left behind; its outcome is unknown.")
        run.scope.cancel()
        if run.hard is not None:
            run.hard.cancel()
        self.turn.host.report("body", name, TimeoutError(f"the body of call {run.call.id} was left behind"))

    async def _log(self, run: Run) -> None:
        """Pass a settled call through `after_tool` and log it, with its `tool/call` if no body ever began."""
        result = await self._passed(run)
        await self._answer(run, result)
        await self.turn.session.sync()

    async def _answer(self, run: Run, result: ToolResult) -> None:
        data: list[Data] = [] if self._is_called(run) else [self._unbegun(run)]
        await self.turn.session.append(*data, result)
        run.context = None  # it refers back to here

    def _unbegun(self, run: Run) -> ToolCall:
        return ToolCall(call_id=run.call.id, arguments=run.arguments, replay="never")

    async def _passed(self, run: Run) -> ToolResult:
        answer, context = run.answer, run.context
        assert answer is not None and context is not None
        host = self.turn.host
        if host.rows["after_tool"] and answer.status not in ("deferred", "detached"):
            try:
                answer = await host.after_tool(answer, run.asked, context)
            except PluginError as error:
                host.report("after_tool", error.plugin, error)
                answer = _refused("error", f"The result was withheld: the plugin {error.plugin} failed on it.")
        if answer.agent is not None and self.turn.next_agent is None:
            self.turn.next_agent = answer.agent
        return ToolResult(
            call_id=run.call.id,
            status=answer.status,
            parts=self._shown(run, answer),
            usage=answer.usage,
            concludes=answer.concludes,
            agent=answer.agent.name if answer.agent is not None else "",
        )

    def _shown(self, run: Run, answer: ToolAnswer) -> tuple[Part, ...]:
        """What enters the context; the whole of what is too long goes into the log, in the result's append.

        Behind `after_tool`, so that what is kept has passed the redactors too. A structured answer stays whole: it is
        the model's own words, and will be decoded.
        """
        output = self.turn.output
        most = None if output is not None and run.tool is output.tool else self.turn.context.limits.result_bytes
        parts, whole = excerpt(answer.parts, most, run.call.id)
        if whole is not None:
            self.turn.session.notes.append(Note(whole, KERNEL))
        return parts

    async def _passed_in_time(self, run: Run) -> ToolResult:
        """As `_passed`, within the grace period: a redactor that hangs lets nothing through."""
        with move_on_after(self.turn.context.limits.grace_seconds):
            return await self._passed(run)
        text = Text("The result was withheld: the turn was cancelled before it had been checked.")
        return ToolResult(call_id=run.call.id, status="error", parts=(text,))

    # --- cancelling ----------------------------------------------------------------------------------------

    def cancel_call(self, call_id: str) -> bool:
        """Stop one body; the turn goes on. False if it does not run."""
        run = next((run for run in self.runs if run.call.id == call_id), None)
        if run is None or not run.running:
            return False
        self._stop(run)
        return True

    def _stop(self, run: Run) -> None:
        if not run.cut:
            run.cut = "cancelled"
            run.scope.cancel()
            run.detach_at = min(run.detach_at, current_time() + self.turn.context.limits.grace_seconds)
            self._change()

    async def finish_cancelled(self) -> None:
        """After a cancel: stop what runs, wait for it up to the grace period, answer every call. Run it shielded."""
        for run in self.runs[: self.taken + 1]:
            if run.running:
                self._stop(run)
        while self.running:
            await self._wait()
        while self.logged < len(self.runs):
            run = self.runs[self.logged]
            result = await self._passed_in_time(run) if run.begun else _never_begun(run)
            await self._answer(run, result)


def _in_thread(tool: Tool, keywords: Mapping[str, Any]) -> object:
    """Call a sync tool. A `KeyboardInterrupt` here is its own idea: signals reach the main thread alone."""
    try:
        return tool.call(**keywords)
    except KeyboardInterrupt as error:
        return _fault(tool, error)


def truncated(calls: Sequence[Call]) -> list[Data]:
    """Call and result of each call in a reply that was cut off: none of them runs."""
    text = Text("The reply was cut off at its length limit, so this call was not started. Ask for it again, shorter.")
    out: list[Data] = []
    for call in calls:
        out.append(ToolCall(call_id=call.id, arguments=call.arguments, replay="never"))
        out.append(ToolResult(call_id=call.id, status="not_started", parts=(text,)))
    return out


def _never_begun(run: Run) -> ToolResult:
    if run.resumed:
        return ToolResult(call_id=run.call.id, status="deferred", parts=(Text("The call waits for a decision."),))
    text = Text("The turn was cancelled before this call was started.")
    return ToolResult(call_id=run.call.id, status="not_started", parts=(text,))


def _refused(status: Status, text: str) -> ToolAnswer:
    return ToolAnswer(parts=(Text(text),), status=status)


def _fault(tool: Tool, error: BaseException) -> ToolAnswer:
    if isinstance(error, InvalidArguments):
        return _refused("invalid_arguments", f"{error}")
    return _refused("error", f"{tool.name} failed: {type(error).__name__}: {error}"[:4000])


def _unknown(name: str, tools: Mapping[str, Tool]) -> str:
    """What the model is told of a name that is none: only the tools of this step, and never more than a page."""
    shown = [each[:64] for each in list(tools)[:_NAMES_SHOWN]]
    more = f" and {len(tools) - _NAMES_SHOWN} more" if len(tools) > _NAMES_SHOWN else ""
    return f'There is no tool named "{name[:64]}". Tools: {", ".join(shown) or "none"}{more}.'


def _is_cancel(error: BaseException, scope: CancelScope) -> bool:
    """Whether this is the scope's own cancellation, or one from outside, rather than the body's idea."""
    if isinstance(error, Exception):
        return False
    if not isinstance(error, (get_cancelled_exc_class(), BaseExceptionGroup)):
        return False
    return scope.cancel_called or current_effective_deadline() == float("-inf")


async def _awaited(value: object) -> object:
    if hasattr(value, "__await__"):
        return await value
    return value


def _on_loop(function: Callable[..., None], *args: object) -> None:
    """Call on the event loop's thread, from it or from a worker thread."""
    try:
        get_cancelled_exc_class()
    except Exception:  # no event loop here: this is a worker thread
        anyio.from_thread.run_sync(function, *args)
    else:
        function(*args)


__all__ = ["THREADS", "CallTurn", "Run", "Work", "truncated"]
