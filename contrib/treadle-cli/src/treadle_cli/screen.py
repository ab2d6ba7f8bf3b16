"""What people see of a turn: the model's words on stdout, its steps and tool calls on stderr.

One `Screen` shows the events and deltas of one session, in order. It decides nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Literal, TextIO

from treadle import Delta, Event
from treadle.plugin import (
    AssistantMessage,
    Call,
    Json,
    ModelFailed,
    ModelRequest,
    Part,
    Text,
    ToolCall,
    ToolResult,
    TurnEnd,
)

from .ink import Ink, one_line, shown, wants_colour

Form = Literal["text", "json", "jsonl", "answer"]


class Screen:
    """Two streams and how to write to them.

    `stream` shows words as they come, else each reply when it is whole. With another form than "text" no words go to
    stdout but what `document` and `line` write: the whole result, every event, or a structured answer alone. `quiet`
    leaves out steps and tool calls, never errors.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        *,
        form: Form = "text",
        stream: bool = True,
        quiet: bool = False,
    ) -> None:
        self.out, self.err = out or sys.stdout, err or sys.stderr
        self.form, self.stream, self.quiet = form, stream, quiet
        self.ink = Ink(wants_colour(self.err))
        self.live = self.err.isatty()
        self._safe = self.out.isatty()
        self._streamed = ""  # the words of the open attempt that were shown
        self._middle = False  # stdout stands in the middle of a line
        self._thought = False  # stderr stands in the middle of a thought
        self._has_tools = False
        self._calls: dict[str, Call] = {}  # of the open step

    # --- writing -------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Write words to stdout, at once."""
        if not text:
            return
        self._end_thought()
        self.out.write(shown(text) if self._safe else text)
        self.out.flush()
        self._middle = not text.endswith("\n")

    def end_line(self) -> None:
        """End the line of words, if one is open."""
        if self._middle:
            self.say("\n")

    def tell(self, text: str) -> None:
        """Write a line to stderr, below the words so far."""
        self.end_line()
        self._end_thought()
        self.err.write(text + "\n")
        self.err.flush()

    def progress(self, text: str) -> None:
        """As `tell`, unless the screen is quiet."""
        if not self.quiet:
            self.tell(text)

    def say_cancelling(self) -> None:
        """Say that a cancel is under way, below the ^C that the terminal wrote."""
        self.progress(("\n" if self.live else "") + self.ink.dim("Cancelling; what runs has a few seconds to end."))

    def ask(self, question: str) -> None:
        """Write a question to stderr and stay behind it."""
        self.end_line()
        self._end_thought()
        self.err.write(question)
        self.err.flush()

    def document(self, value: Json) -> None:
        """Write one JSON document to stdout."""
        self.out.write(json.dumps(value, indent=2, ensure_ascii=not _is_utf8(self.out)) + "\n")
        self.out.flush()

    def line(self, value: Json) -> None:
        """Write one line of JSON to stdout."""
        self.out.write(json.dumps(value, separators=(",", ":")) + "\n")
        self.out.flush()

    def _end_thought(self) -> None:
        if self._thought:
            self.err.write("\n")
            self._thought = False

    @property
    def width(self) -> int:
        """How many columns a line of progress may take."""
        return shutil.get_terminal_size((100, 24)).columns if self.live else 200

    # --- showing a session ---------------------------------------------------------------------------------

    def show(self, item: Event | Delta) -> None:
        """Show what happened. Items come in order."""
        if self.form == "jsonl":
            self.line(plain(item))
        if isinstance(item, Delta):
            self._show_delta(item)
            return
        data = item.data
        if isinstance(data, ModelRequest):
            self._show_request(data, item.step or 0)
        elif isinstance(data, AssistantMessage):
            self._show_reply(data)
        elif isinstance(data, ModelFailed):
            self._show_failure(data)
        elif isinstance(data, ToolCall):
            self._show_call(data)
        elif isinstance(data, ToolResult):
            self._show_result(data)
        elif isinstance(data, TurnEnd):
            self._show_end(data)

    def _show_delta(self, delta: Delta) -> None:
        if delta.kind == "text" and self.form == "text" and self.stream:
            text = delta.text
            if delta.snapshot:  # the text so far, of which a part may stand there already
                text = text.removeprefix(self._streamed)
            self._streamed += text
            self.say(text)
        elif delta.kind == "reasoning" and self.live and not self.quiet and self.form == "text" and delta.text:
            self.end_line()
            self.err.write(self.ink.dim(shown(delta.text)))
            self.err.flush()
            self._thought = True
        elif delta.kind == "progress":
            who = f"{self._label(delta.call)} " if len(self._calls) > 1 else ""
            self.progress(self.ink.dim(f"  {who}… {one_line(delta.text, self.width - 6 - len(who))}"))

    def _show_request(self, request: ModelRequest, step: int) -> None:
        self._streamed = ""
        if request.header is not None:
            self._has_tools = bool(request.header.tools)
        if request.attempt == 1 and (self._has_tools or step > 1):
            self.progress(self.ink.dim(f"step {step}"))

    def _show_reply(self, reply: AssistantMessage) -> None:
        text, streamed = reply.message.text, self._streamed
        self._streamed = ""
        if self.form == "text":
            if not text.startswith(streamed):  # a hook changed the reply after its words had passed
                self.end_line()
                streamed = ""
            self.say(text[len(streamed) :])
            self.end_line()
        self._calls = {call.id: call for call in reply.message.calls}

    def _show_failure(self, failed: ModelFailed) -> None:
        if failed.action == "retry":
            void = " The words above are void." if self._streamed else ""
            wait = f" Again in {failed.after_seconds:g} s." if failed.after_seconds else " Again."
            self.progress(self.ink.asks(f"  attempt {failed.attempt}: {one_line(failed.error, 300)}{void}{wait}"))
        self._streamed = ""

    def _show_call(self, data: ToolCall) -> None:
        self.progress(f"  {signature(self._label(data.call_id), data.arguments, self.width - 2, self.ink)}")

    def _show_result(self, data: ToolResult) -> None:
        who = f"{self._label(data.call_id)} " if len(self._calls) > 1 else ""
        self.progress(f"  {who}-> {outcome(data, self.width - 6 - len(who), self.ink)}")

    def _label(self, call_id: str) -> str:
        """What tells a call from its siblings: its name, with a number where the step calls a tool several times."""
        call = self._calls.get(call_id)
        if call is None:
            return "call"
        same = [each for each, sibling in self._calls.items() if sibling.name == call.name]
        return f"{call.name}#{same.index(call_id) + 1}" if len(same) > 1 else call.name

    def _show_end(self, end: TurnEnd) -> None:
        if end.reason == "completed":
            if end.detail:
                self.progress(self.ink.asks(_COMPLETED.get(end.detail, end.detail)))
        elif end.reason != "waiting":  # the call that waits has said so
            paint = self.ink.asks if end.reason in ("limit", "aborted") else self.ink.bad
            self.tell(paint(shown(_ENDINGS[end.reason].format(detail=end.detail))))


_ENDINGS = {
    "limit": "Stopped: the limit {detail} is used up.",
    "blocked": "Blocked: {detail}",
    "failed": "Failed: {detail}",
    "aborted": "Cancelled ({detail}).",
    "interrupted": "Interrupted: {detail}",
}

_COMPLETED = {
    "length": "The answer was cut off at its length limit.",
    "refused": "The model refused.",
    "empty answer": "The model answered nothing.",
}


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def plain(item: Event | Delta) -> Json:
    """An event or delta as one JSON object; a delta has the type `delta`."""
    from treadle.codec import event_to_plain

    if isinstance(item, Event):
        return event_to_plain(item)
    out: dict[str, Json] = {"type": "delta", "kind": item.kind, "text": item.text, "turn": item.turn, "step": item.step}
    if item.attempt:
        out["attempt"] = item.attempt
    if item.call:
        out["call"] = item.call
    if item.snapshot:
        out["snapshot"] = True
    return out


def signature(name: str, arguments: str, width: int, ink: Ink) -> str:
    """A call as Python would write it: `add(a=17, b=25)`."""
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        given = None
    if isinstance(given, dict):
        inner = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items())
    else:
        inner = arguments
    return f"{ink.name(shown(name))}({one_line(inner, max(20, width - len(name) - 2))})"


def outcome(result: ToolResult, width: int, ink: Ink) -> str:
    """What a call came to, on one line: its text, behind its status unless that is ok."""
    text = one_line(words(result.parts), max(20, width))
    if result.status == "ok":
        return text
    if result.status == "deferred":
        return ink.asks("waits for a decision")
    paint = ink.asks if result.status in ("cancelled", "not_started") else ink.bad
    return f"{paint(result.status.replace('_', ' '))}: {text}"


def words(parts: tuple[Part, ...]) -> str:
    """The text of parts; what is not text by its kind."""
    return "".join(part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in parts)
