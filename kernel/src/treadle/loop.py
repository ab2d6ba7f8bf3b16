"""The loop: a turn is steps until nothing must be pushed on; a step is one model decision and its tool work.

It reads top-down: `run_turn`, the checkpoints between steps, `run_step`, the model call. The loop keeps no state of its
own: what lasts is in the log's fold, what dies with the turn in the `Turn`. Only the loop writes; hooks return values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import anyio
import attrs
from anyio import CancelScope, current_time, move_on_after
from anyio.lowlevel import checkpoint_if_cancelled

from .agent import Agent
from .calls import Work, truncated
from .context import Decision, Halt, TurnContext
from .errors import InvalidArguments, PluginError, ProviderError, StoreFault, UsageError
from .events import (
    AssistantMessage,
    Changes,
    Data,
    Ending,
    Header,
    InboxDrop,
    InboxPut,
    ModelFailed,
    ModelRequest,
    SessionOpen,
    StepEnd,
    StepStart,
    TurnEnd,
    UserMessage,
)
from .grammar import Phase, State, is_outside, link
from .hooks import Delta
from .host import Host
from .messages import Message, Text, Usage, estimate_tokens, new_id, plain
from .model import (
    Assembly,
    CallDelta,
    Model,
    Piece,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolSchema,
    own_calls,
)
from .session import Session
from .tools import NO_ANSWER, Tool, Wanted, parse_object
from .view import changes_of, why_invalid


@attrs.frozen
class End:
    """How a turn ends, decided before it is written; `seq` is the log's last event at that moment."""

    reason: Ending
    detail: str
    seq: int


class TurnOver(Exception):
    """The turn ends here, in the middle of a step."""

    def __init__(self, end: End) -> None:
        self.end = end


class Live(Protocol):
    """What a turn asks of the driver that runs it."""

    agent: Agent

    @property
    def host(self) -> Host:
        """The hooks of the stack as of now."""
        ...

    def take_up(self) -> Host:
        """The hooks for the coming step, whose stack stays open for it."""
        ...

    def swapped(self) -> SessionOpen | None:
        """What the log must say if the plugins are others than it last named."""
        ...

    @property
    def watching(self) -> bool:
        """Whether anybody watches deltas."""
        ...

    def spawn(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Start a task of the driver's group, which a turn can leave behind."""
        ...

    def watched(self, delta: Delta) -> None:
        """Tell the watchers."""
        ...

    def opened(self, agent: Agent) -> Model:
        """The model that an agent names."""
        ...


class Turn:
    """One turn, alive. It dies with its `turn/end`; nothing in it is stored."""

    def __init__(
        self,
        live: Live,
        session: Session,
        context: TurnContext[Any],
        *,
        woken: bool,
        resumes: Mapping[str, Decision | None],
        output: Wanted | None = None,
    ) -> None:
        self.live, self.session, self.context = live, session, context
        self.woken, self.resumes, self.output = woken, resumes, output
        self.scope = CancelScope()
        self.cause = ""
        self.decided_at = 0
        self.host = live.host
        self.agent: Agent | None = None  # who acts in this step
        self.next_agent: Agent | None = None  # a handoff, for the steps to come
        self.handed = False
        self.model: Model | None = None
        self.tools: Mapping[str, Tool] = {}
        self.schemas: tuple[ToolSchema, ...] = ()
        self.instructions: dict[int, tuple[Text, ...]] = {}
        self.ask: Ask | None = None
        self.work: Work | None = None
        self.ignored = 0
        self.reply: AssistantMessage | None = None
        self.messages: list[Message] = []  # what entered the log in this turn, for its result
        self.native = False  # whether the provider writes the structured answer in this step
        self.given: str | None = None  # the structured answer's text, if its tool was called
        self.repairs = 0  # how often the model was asked for it again
        self._judged: tuple[str, object, str] | None = None

    @property
    def state(self) -> State:
        return self.session.state

    def spawn(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        self.live.spawn(task, *args)

    def emit(self, delta: Delta) -> None:
        """Tell `on_delta` and the watchers."""
        if self.host.listens:
            self.host.on_delta(delta, self.context)
        self.live.watched(delta)

    def cancel(self, cause: str) -> None:
        """End the turn; the first cause wins."""
        if not self.cause:
            self.cause, self.decided_at = cause, self.state.seq
            self.scope.cancel()

    def end(self, reason: Ending, detail: str = "") -> End:
        return End(reason, detail, self.state.seq)

    def answer(self) -> tuple[object, str]:
        """The structured answer, and why there is none: from its tool, else from the last reply. Judged once."""
        if self.output is None:
            return None, ""
        text = self.given if self.given is not None else self.reply.message.text if self.reply is not None else ""
        if self._judged is None or self._judged[0] != text:
            value, fault = judge(self.output, text)
            self._judged = text, value, fault
        return self._judged[1:]


# --- the turn ----------------------------------------------------------------------------------------------


async def run_turn(turn: Turn) -> None:
    """Drive a turn, whose `turn/start` stands in the log, to its `turn/end`.

    A cancel, from whomever, leaves a lawful log: what closes the turn is written under a shield, and what ignores the
    cancel is left behind after the grace period. A store fault is raised, and then nothing more is written.
    """
    end: End | None = None
    if turn.context.limits.seconds is not None:
        turn.scope.deadline = current_time() + turn.context.limits.seconds
    try:
        with turn.scope:
            end = await take_steps(turn)
    except TurnOver as over:
        end = over.end
    except StoreFault:
        raise
    except Exception as error:
        if not isinstance(error, PluginError):
            turn.host.report("loop", "treadle", error)
        end = turn.end("failed", f"{error}" if isinstance(error, PluginError) else f"{type(error).__name__}: {error}")
    finally:
        if turn.session.fault is None:
            with CancelScope(shield=True):
                await close(turn, end or cut_short(turn))


async def take_steps(turn: Turn) -> End:
    """Steps until nothing must be pushed on."""
    if turn.resumes:
        await resume_step(turn)
        if end := await check(turn):
            return end
    while True:
        proposal = await propose(turn)
        if isinstance(proposal, End):
            return proposal
        await run_step(turn, proposal)
        if end := await check(turn):
            return end


@attrs.frozen
class Proposal:
    """What the coming step takes in, and the ids that hooks removed."""

    messages: tuple[Message, ...]
    rejected: tuple[str, ...]


async def propose(turn: Turn) -> Proposal | End:
    """The next step's batch, or how the turn ends without one."""
    await checkpoint_if_cancelled()
    state, first = turn.state, turn.state.step == 0
    if limit := spent(turn):
        return turn.end("limit" if state.owed or limit == "max_turns_alone" else "completed", limit)
    take_up(turn)
    batch = state.batch(with_turn_lane=first and turn.woken)
    may_ask = state.owed and not (first and turn.woken)
    if not batch and not may_ask:
        return turn.end("completed", finish_detail(state))
    allowed = await turn.host.before_step(batch, turn.context) if turn.host.rows["before_step"] else batch
    if isinstance(allowed, Halt):
        end = turn.end("blocked", allowed.reason)
        await reject(turn, [message.id for message in batch], allowed.reason)
        return end
    offered = {message.id for message in batch}
    kept = tuple(each for each in allowed if each.id in state.pending or each.id not in offered)
    kept_ids = {message.id for message in kept}
    rejected = tuple(each.id for each in batch if each.id not in kept_ids and each.id in state.pending)
    if not kept and not may_ask:
        await reject(turn, rejected)
        return turn.end("completed", finish_detail(state))
    return Proposal(kept, rejected)


def take_up(turn: Turn) -> None:
    """Read stack and agent for the coming step; they stay for that step. A handoff holds to the end of the turn."""
    turn.host = turn.live.take_up()
    before = turn.agent
    if turn.next_agent is not None:
        turn.agent, turn.next_agent, turn.handed = turn.next_agent, None, True
    elif not turn.handed:
        turn.agent = turn.live.agent
    assert turn.agent is not None
    if turn.agent is not before:
        turn.model, turn.tools = turn.live.opened(turn.agent), {}
    turn.context.agent = turn.agent
    turn.context.step = turn.state.step + 1


def spent(turn: Turn) -> str:
    """Which budget is used up, or an empty string."""
    limits, state = turn.context.limits, turn.state
    if state.step >= limits.max_steps:
        return "max_steps"
    if limits.tokens is not None and state.usage.tokens >= limits.tokens:
        return "tokens"
    if state.step == 0 and state.alone > limits.max_turns_alone and not turn.resumes:
        alone = not any(is_outside(put.message) for put in state.pending.values())
        return "max_turns_alone" if alone and state.pending else ""
    return ""


async def reject(turn: Turn, ids: Sequence[str], detail: str = "") -> None:
    """Drop what still pends of these messages."""
    left = tuple(each for each in ids if each in turn.state.pending)
    if left:
        await turn.session.append(InboxDrop(ids=left, why="rejected", detail=detail))


async def check(turn: Turn) -> End | None:
    """After a step: does it wait, must it go on, may it end?"""
    state = turn.state
    if state.last_deferred and not state.wakes("step"):
        return turn.end("waiting")
    if state.owed or state.wakes("step"):
        return None
    return await stopping(turn)


async def stopping(turn: Turn) -> End | None:
    """The stopping checkpoint: objections buy a step each round, while vetoes and steps last."""
    state, limits, context = turn.state, turn.context.limits, turn.context
    objections = await turn.host.on_turn_stopping(context) if turn.host.rows["on_turn_stopping"] else ()
    await checkpoint_if_cancelled()  # an objection put after a cancel would wake the session that was told to stop
    if not objections and (repair := ask_again(turn)) is not None:
        objections = (repair,)
    if objections and context.vetoes < limits.max_vetoes and state.step < limits.max_steps:
        context.vetoes += 1
        await turn.session.append(*[InboxPut(message=each, lane="step", wake=True) for each in objections])
        return None
    turn.ignored += len(objections)
    if state.wakes("step"):
        return None
    if fault := turn.answer()[1]:
        return turn.end("completed", f"{NO_ANSWER}: {fault}")
    return turn.end("completed", "objections ignored" if turn.ignored else finish_detail(state))


def ask_again(turn: Turn) -> Message | None:
    """An objection to a turn that ends without the structured answer it owes; one a turn."""
    fault = turn.answer()[1]
    if turn.output is None or not fault or turn.repairs:
        return None
    turn.repairs, turn.tools = 1, {}
    how = f"Call {turn.output.tool.name} with the answer."
    if getattr(turn.model, "native_output", False):
        how = "Give the answer now, as one JSON object and nothing else."
    return Message(id=new_id(), role="context", parts=(Text(f"{fault} {how}"),), origin="turn:output")


def judge(output: Wanted, text: str) -> tuple[object, str]:
    """A text as the answer that is wanted, and what is wrong with it. A code fence around it is taken off."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json")
    if not text:
        return None, "There is no answer yet."
    try:
        parse_object(text)
    except InvalidArguments:
        return None, "The answer is not one JSON object."
    try:
        return output.decode(text), ""
    except InvalidArguments as error:
        return None, f"{error}"


def finish_detail(state: State) -> str:
    """What the reader of a completed turn should know of its last reply: cut off, refused or empty."""
    reply = state.last_reply
    if state.step == 0 or reply is None:
        return ""
    if reply.finish in ("length", "refused"):
        return reply.finish
    return "" if reply.message.parts else "empty answer"


def cut_short(turn: Turn) -> End:
    """Why a turn's scope ended before its steps did."""
    if not turn.cause and turn.scope.cancel_called:
        return turn.end("limit", "seconds")
    return End("aborted", turn.cause or "the host was cancelled", turn.decided_at or turn.state.seq)


async def close(turn: Turn, end: End) -> None:
    """Write what closes the turn: an open request, unanswered calls, the step, the turn itself."""
    state, session = turn.state, turn.session
    if turn.ask is not None:
        await turn.ask.stop()
    if state.phase is Phase.ASKING:
        await session.append(cut_reply(turn, end))
    if state.phase is Phase.ACTING:
        await open_work(turn).finish_cancelled()
    if state.phase is not Phase.OPEN:
        await session.append(StepEnd("failed" if end.reason == "failed" else _outcome(end.reason)))

    def ending(now: State) -> Sequence[Data]:
        park = end.reason != "completed" and not now.woken_since(end.seq)
        ended = TurnEnd(
            reason=end.reason, detail=end.detail, park=park, steps=now.step, usage=now.usage, ignored=turn.ignored
        )
        return (ended,)

    await session.append_built(ending, loop=True)


def open_work(turn: Turn) -> Work:
    """The open step's tool work; also where the cancel came as its calls were logged, before the work began."""
    calls = [turn.state.calls[each] for each in turn.state.order]
    resumed = any(each.placeholder for each in calls)
    return turn.work or Work(turn, [each.call for each in calls], turn.resumes if resumed else None)


def _outcome(reason: Ending) -> Any:
    return "limit" if reason == "limit" else "aborted"


def cut_reply(turn: Turn, end: End) -> Data:
    """What is left of a request that was cut off: its complete visible text, or that it failed."""
    state, ask = turn.state, turn.ask
    partial = ask.assembly.visible if ask is not None and end.reason in ("aborted", "limit") else ()
    usage = _guess(state, partial) if partial else None
    if any(not isinstance(part, Text) or part.text.strip() for part in partial):
        message = Message(id=new_id(), role="assistant", parts=partial, origin="model")
        return AssistantMessage(message=message, finish="end", usage=usage, interrupted=True)
    kind = "cancelled" if end.reason == "aborted" else end.reason
    return ModelFailed(attempt=state.attempt, kind=kind, error=end.detail, action="stop", usage=usage)


# --- the step ----------------------------------------------------------------------------------------------


async def run_step(turn: Turn, proposal: Proposal) -> None:
    """One model decision and the tool work that it causes, from `step/start` to `step/end`."""
    session, agent = turn.session, turn.agent
    assert agent is not None
    await load_tools(turn, agent)
    await checkpoint_if_cancelled()  # a cancel while hooks were asked: the step must not begin
    claims = tuple(each.id for each in proposal.messages if each.id in turn.state.pending)
    await log_swap(turn)
    gone = [InboxDrop(ids=proposal.rejected, why="rejected")] if proposal.rejected else []
    start = StepStart(agent=agent.name, digest=agent.digest, claims=claims)
    await session.append(*gone, start, *[UserMessage(message) for message in proposal.messages])
    reply = await ask_model(turn)
    calls = reply.message.calls
    if calls and reply.finish == "length":
        await session.append(*truncated(calls))
    elif calls:
        turn.work = Work(turn, calls)
        await turn.work.run()
        turn.work = None
    await session.append(StepEnd("done"))
    await session.sync()


async def resume_step(turn: Turn) -> None:
    """A step that runs the calls which waited, and asks no model."""
    session, state = turn.session, turn.state
    await checkpoint_if_cancelled()
    take_up(turn)
    assert turn.agent is not None
    await load_tools(turn, turn.agent)
    await log_swap(turn)
    ids = tuple(turn.resumes)
    await session.append(StepStart(agent=turn.agent.name, digest=turn.agent.digest, resumes=ids))
    turn.work = Work(turn, [state.calls[each].call for each in ids], turn.resumes)
    await turn.work.run()
    turn.work = None
    await session.append(StepEnd("done"))
    await session.sync()


async def log_swap(turn: Turn) -> None:
    """Say in the log that other plugins serve from here on, if they do."""
    if (swap := turn.live.swapped()) is not None:
        await turn.session.append(swap)


async def load_tools(turn: Turn, agent: Agent) -> None:
    """The tools of the coming step: the agent's, the turn's output tool, and what plugins provide.

    A provider that writes structured answers itself does so where there is no other tool, and when it is asked again:
    then it gets no tools at all, since not all can do both.
    """
    if turn.tools and not turn.host.provide:
        return
    own = agent.tools if turn.output is None else (*agent.tools, turn.output.tool)
    if turn.host.provide:
        turn.tools = await turn.host.tools(own, turn.context)
    else:
        turn.tools = {tool.name: tool for tool in own}
    if turn.output is not None:
        alone = turn.repairs > 0 or len(turn.tools) == 1
        turn.native = alone and getattr(turn.model, "native_output", False) is True
        turn.tools = {} if turn.native else turn.tools
    turn.schemas = tuple(tool.schema for tool in turn.tools.values())


async def ask_model(turn: Turn) -> AssistantMessage:
    """Ask until there is a reply, and log it. Raises `TurnOver` when the step has no reply to hope for."""
    session, state, context = turn.session, turn.state, turn.context
    while True:
        await checkpoint_if_cancelled()
        if limit := spent_tokens(turn):
            raise TurnOver(turn.end("limit", limit))
        request, changes = await build_request(turn)
        await checkpoint_if_cancelled()
        await session.append(request_event(turn, request, changes))
        await session.sync()
        try:
            reply = await call_model(turn, request)
            break
        except ProviderError as error:
            await after_failure(turn, request, error)
    parts = own_calls(reply.parts)
    message = Message(id=new_id(), role="assistant", parts=parts, origin="model")
    usage = reply.usage if reply.usage is not None else _guess(state, parts)
    event = AssistantMessage(message=message, finish=reply.finish, usage=usage)
    turn.ask = None
    await session.append(event)
    context.usage = state.usage
    return event


def spent_tokens(turn: Turn) -> str:
    """The token budget is tested before each attempt too."""
    tokens = turn.context.limits.tokens
    return "tokens" if tokens is not None and turn.state.usage.tokens >= tokens else ""


async def after_failure(turn: Turn, request: Request, error: ProviderError) -> None:
    """Log a failed attempt and wait for the next, or end the turn."""
    session, state, limits = turn.session, turn.state, turn.context.limits
    usage = error.usage or (_guess(state, error.partial) if error.partial else None)
    retry = await turn.host.on_model_error(error, request, turn.context) if turn.host.rows["on_model_error"] else None
    await checkpoint_if_cancelled()  # a cancel beats the verdict
    more = retry is not None and state.attempt < limits.max_attempts
    seconds = retry.after_seconds if retry is not None and more else 0.0
    failed = ModelFailed(
        attempt=state.attempt,
        kind=error.kind,
        error=f"{error}",
        action="retry" if more else "stop",
        usage=usage,
        after_seconds=seconds,
    )
    turn.ask = None
    end = turn.end("failed", f"{error}" if retry is None else f"max_attempts: {error}")
    await session.append(failed)
    turn.context.usage = state.usage
    if turn.host.listens or turn.live.watching:
        turn.emit(_delta(turn, "void", ""))
    if not more:
        raise TurnOver(end)
    await anyio.sleep(seconds)


# --- the request -------------------------------------------------------------------------------------------


async def build_request(turn: Turn) -> tuple[Request, Changes | None]:
    """The request as hooks leave it, and how they changed the view. Costs nothing per message unless they did."""
    agent, host, context = turn.agent, turn.host, turn.context
    assert agent is not None
    base = view = turn.state.view
    changed: list[str] = []
    if host.rows["transform_context"]:
        view = await host.transform_context(base, context, changed)
    request = Request(
        instructions=await instructions(turn, agent),
        messages=view,
        tools=turn.schemas,
        params=agent.params,
        output=turn.output.schema if turn.native and turn.output is not None else None,
    )
    if host.rows["shape_request"]:
        request = await host.shape_request(request, context, changed)
    if request.messages is base:
        return request, None
    if reason := why_invalid(request.messages):
        raise PluginError(", ".join(changed), "transform_context", f"the view it leaves fits no model: {reason}")
    return request, changes_of(base, request.messages, tuple(dict.fromkeys(changed)))


async def instructions(turn: Turn, agent: Agent) -> tuple[Text, ...]:
    """An agent's instructions, evaluated once a turn."""
    known = turn.instructions.get(id(agent))
    if known is None:
        given = agent.instructions
        if not isinstance(given, str):
            try:
                with anyio.fail_after(turn.context.limits.hook_seconds):
                    made = given(turn.context)
                    given = made if isinstance(made, str) else await made
            except Exception as error:
                raise PluginError("app", "instructions", error) from error
        known = turn.instructions[id(agent)] = (Text(given),) if given else ()
    return known


def request_event(turn: Turn, request: Request, changes: Changes | None) -> ModelRequest:
    """What the log holds of a request, so that it can be rebuilt: header, digest, changes."""
    state, model = turn.state, turn.model
    assert model is not None
    digest = state.digest
    if changes is not None:
        digest = link(bytes.fromhex(digest), changes_text(changes)).hex()
    attempt = state.attempt + 1
    header = state.header
    if header is not None and _same_header(header, request, model):
        return ModelRequest(attempt=attempt, digest=digest, header_seq=state.header_seq, changes=changes)
    header = Header(
        model=model.ref,
        family=model.family,
        instructions=request.instructions,
        tools=request.tools,
        params=dict(request.params),
        output=request.output,
    )
    return ModelRequest(attempt=attempt, digest=digest, header=header, changes=changes)


def _same_header(header: Header, request: Request, model: Model) -> bool:
    return (
        header.model == model.ref
        and header.family == model.family
        and header.tools == request.tools
        and header.instructions == request.instructions
        and header.params == request.params
        and header.output == request.output
    )


def changes_text(changes: Changes) -> bytes:
    """A change as bytes for the digest chain."""
    view = [
        [entry.message.role, entry.message.id, [plain(part) for part in entry.message.parts]]
        if hasattr(entry, "message")
        else [entry.first, entry.last]
        for entry in changes.view
    ]
    return json.dumps([changes.plugins, view], separators=(",", ":")).encode()


# --- the model call ----------------------------------------------------------------------------------------


async def call_model(turn: Turn, request: Request) -> Reply:
    """The reply, through `around_model`. Raises `ProviderError`, also for a reply that the provider calls a fault."""

    async def innermost(given: Request) -> Reply:
        if given is not request:
            raise UsageError("around_model must hand on the request as it is; shape_request may change it")
        return await stream(turn, request)

    turn.context.held = False
    if not turn.host.rows["around_model"]:
        return await stream(turn, request)
    reply = await turn.host.around_model(innermost, request, turn.context)
    if turn.context.held:
        turn.context.held = False
        for part in reply.parts:
            if isinstance(part, Text):
                turn.emit(_delta(turn, "text", part.text))
    return reply


async def stream(turn: Turn, request: Request) -> Reply:
    """One stream of the model, pumped by a task that the turn can leave behind."""
    assert turn.model is not None
    ask = turn.ask = Ask(turn)
    turn.spawn(ask.pump, turn.model, request)
    await ask.done.wait()
    if ask.error is not None:
        raise ask.error
    assert ask.reply is not None
    return ask.reply


class Ask:
    """One attempt at a model: its stream, and what has arrived."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.scope = CancelScope()
        self.assembly = Assembly()
        self.done = anyio.Event()
        self.reply: Reply | None = None
        self.error: ProviderError | None = None

    async def pump(self, model: Model, request: Request) -> None:
        """Read the stream to its end. Deltas go straight from here to whoever listens, without a task switch."""
        try:
            with self.scope:
                async with model.stream(request) as pieces:
                    async for piece in pieces:
                        self.feed(piece)
            self.reply = self.assembly.reply()
            if self.reply is None:
                self.error = self.interrupted()
            elif self.reply.finish == "fault":
                self.error = self.failed("tool_use_failed", "the model's tool call could not be read")
        except ProviderError as error:
            self.error = error
        except Exception as error:
            self.error = self.failed("server", f"{type(error).__name__}: {error}")
            self.error.__cause__ = error
        finally:
            if self.reply is None and self.error is None:
                self.error = self.failed("cancelled", "the call was cancelled")
            self.done.set()

    def feed(self, piece: Piece) -> None:
        self.assembly.feed(piece)
        turn = self.turn
        if (turn.host.listens or turn.live.watching) and not turn.context.held and not self.done.is_set():
            if isinstance(piece, TextDelta):
                turn.emit(_delta(turn, "text", piece.text, piece.key))
            elif isinstance(piece, ReasoningDelta):
                turn.emit(_delta(turn, "reasoning", piece.text, piece.key))
            elif isinstance(piece, CallDelta):
                turn.emit(_delta(turn, "arguments", piece.arguments, piece.key))
            elif not hasattr(piece, "finish") and isinstance(piece.part, Text) and piece.key is None:
                turn.emit(_delta(turn, "text", piece.part.text))

    def snapshot(self) -> list[Delta]:
        """The text so far, for a watcher who joins in mid-message."""
        text = "".join(part.text for part in self.assembly.parts if isinstance(part, Text))
        if not text or self.turn.context.held:
            return []
        return [attrs.evolve(_delta(self.turn, "text", text), snapshot=True)]

    def interrupted(self) -> ProviderError:
        if self.scope.cancel_called:
            return self.failed("cancelled", "the call was cancelled")
        return self.failed("interrupted", "the stream ended before the reply was complete")

    def failed(self, kind: Any, message: str) -> ProviderError:
        end = self.assembly.end
        return ProviderError(kind, message, partial=self.assembly.parts, usage=end.usage if end else None)

    async def stop(self) -> None:
        """Cancel the stream and wait for its end, up to the grace period; then leave it behind."""
        if self.done.is_set():
            return
        self.scope.cancel()
        with move_on_after(self.turn.context.limits.grace_seconds):
            await self.done.wait()
        if not self.done.is_set():
            self.done.set()
            late = TimeoutError("its stream did not stop and was left behind")
            self.turn.host.report("stream", self.turn.model.ref if self.turn.model else "?", late)


def _delta(turn: Turn, kind: Any, text: str, key: str | int = "") -> Delta:
    state = turn.session.state
    return Delta(kind=kind, text=text, turn=state.turn, step=state.step, attempt=state.attempt, key=key)


def _guess(state: State, parts: Sequence[Any]) -> Usage:
    return Usage(input=max(1, state.size // 4), output=estimate_tokens(parts), estimated=True)
