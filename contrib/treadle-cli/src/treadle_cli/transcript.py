"""A session's log as people read it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import attrs

from treadle.plugin import (
    AssistantMessage,
    Call,
    ContextEdit,
    Event,
    InboxDrop,
    InboxPut,
    ModelFailed,
    ModelRequest,
    PluginData,
    SessionInfo,
    SessionMeta,
    SessionOpen,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    Usage,
    UserMessage,
)

from .ink import Ink, one_line, shown
from .screen import outcome, signature, words

_WIDTH = 160


@attrs.frozen(kw_only=True)
class Digest:
    """What a list says of a session. `words` are the first ones said in it."""

    info: SessionInfo
    turns: int
    words: str


def digest(info: SessionInfo, events: Sequence[Event]) -> Digest:
    """Sum a session up."""
    first = next((event.data for event in events if isinstance(event.data, UserMessage)), None)
    turns = sum(isinstance(event.data, TurnStart) for event in events)
    return Digest(info=info, turns=turns, words=first.message.text if first is not None else "")


def when(seconds: float) -> str:
    """A time as people here write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def transcript(events: Sequence[Event], ink: Ink) -> Iterator[str]:
    """The lines of a session: who said what, in which turn and step, what its tools did, how it ended, what it cost."""
    reader = _Reader(ink)
    for event in events:
        yield from reader.read(event)
    yield from reader.rest()


class _Reader:
    """Reads events in order; keeps what later ones refer to."""

    def __init__(self, ink: Ink) -> None:
        self.ink = ink
        self.calls: dict[str, Call] = {}
        self.waiting: dict[str, str] = {}
        self.open_turn = 0

    def read(self, event: Event) -> Iterator[str]:
        data, ink = event.data, self.ink
        if isinstance(data, SessionOpen):
            yield from self._opened(data, event)
        elif isinstance(data, SessionMeta):
            yield from _named(data, ink)
        elif isinstance(data, InboxPut):
            self.waiting[data.message.id] = data.message.text
        elif isinstance(data, InboxDrop):
            for each in data.ids:
                why = f"{data.why}: {data.detail}" if data.detail else data.why
                yield ink.asks(f"  {why}: ") + one_line(self.waiting.pop(each, each), _WIDTH)
        elif isinstance(data, TurnStart):
            self.open_turn = event.turn or 0
            yield ""
            yield ink.bold(f"turn {event.turn}") + ink.dim(f"  {when(event.time)}")
        elif isinstance(data, TurnEnd):
            self.open_turn = 0
            yield self._ended(data)
        elif isinstance(data, UserMessage):
            self.waiting.pop(data.message.id, None)
            yield from _said("you" if data.message.role == "user" else data.message.origin, data.message.text, ink)
        else:
            yield from self._work(event)

    def _work(self, event: Event) -> Iterator[str]:
        data, ink = event.data, self.ink
        if isinstance(data, StepStart):
            resumed = f", resumes {len(data.resumes)}" if data.resumes else ""
            yield ink.dim(f"  step {event.step}  {data.agent}{resumed}")
        elif isinstance(data, ModelRequest) and data.header is not None:
            yield ink.dim(f"  asks {data.header.model}")
        elif isinstance(data, ModelFailed):
            yield ink.bad(f"  attempt {data.attempt} failed: ") + shown(data.error)
        elif isinstance(data, AssistantMessage):
            self.calls.update((call.id, call) for call in data.message.calls)
            mark = " (interrupted)" if data.interrupted else ""
            if data.message.text or not data.message.calls:
                yield from _said(f"assistant{mark}", data.message.text, ink)
        elif isinstance(data, ToolCall):
            call = self.calls.get(data.call_id)
            yield "    " + signature(call.name if call else data.call_id, data.arguments, _WIDTH, ink)
        elif isinstance(data, ToolResult):
            call = self.calls.get(data.call_id)
            yield f"    {call.name if call else data.call_id} -> {outcome(data, _WIDTH, ink)}"
        elif isinstance(data, StepEnd):
            if data.outcome != "done":
                yield ink.asks(f"  step {event.step} {data.outcome}")
        elif isinstance(data, ContextEdit):
            put = "hidden" if data.put is None else f"replaced by: {one_line(words(data.put), _WIDTH)}"
            yield ink.dim(f"  events {data.first} to {data.last} {put} ({data.plugin})")
        elif isinstance(data, PluginData):
            yield ink.dim(f"  {data.name}: {one_line(f'{data.value}', _WIDTH)}")

    def _opened(self, data: SessionOpen, event: Event) -> Iterator[str]:
        if data.reason == "new":
            yield self.ink.dim(f"opened {when(event.time)} by treadle {data.kernel}")
        elif data.reason == "fork":
            yield self.ink.dim(f"forked from {data.parent} at event {data.parent_seq}")
        else:
            yield self.ink.dim(f"{data.reason} {when(event.time)}")

    def _ended(self, end: TurnEnd) -> str:
        ink = self.ink
        paint = ink.good if end.reason == "completed" else ink.asks if end.reason == "waiting" else ink.bad
        detail = f": {shown(end.detail)}" if end.detail else ""
        steps = f"{end.steps} step" + ("" if end.steps == 1 else "s")
        return f"  {paint(end.reason)}{detail}" + ink.dim(f"  {steps}, {cost(end.usage)}")

    def rest(self) -> Iterator[str]:
        """What is still open at the end of the log."""
        if self.open_turn:
            text = f"  turn {self.open_turn} is open: it runs in another process, or its process died"
            yield self.ink.asks(text + " (then the next use of the session closes it)")
        for text in self.waiting.values():
            yield self.ink.asks("waits in the inbox: ") + one_line(text, _WIDTH)


def _named(meta: SessionMeta, ink: Ink) -> Iterator[str]:
    if meta.title:
        yield ink.bold(shown(meta.title))
    if meta.labels:
        yield ink.dim(f"labels: {', '.join(meta.labels)}")


def _said(who: str, text: str, ink: Ink) -> Iterator[str]:
    """Words with their speaker; further lines stand below the first."""
    first, *more = shown(text).split("\n")
    yield f"  {ink.name(who + ':')} {first}"
    for line in more:
        yield f"    {line}" if line else ""


def cost(usage: Usage) -> str:
    """Tokens, as a person sums them up."""
    guess = "about " if usage.estimated else ""
    read = usage.input + usage.cache_read + usage.cache_write
    return f"{guess}{usage.tokens} tokens ({read} in, {usage.output + usage.reasoning} out)"
