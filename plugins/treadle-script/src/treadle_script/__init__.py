"""A provider that plays a written script or a recorded session: for tests, docs, demos and replay.

It knows nothing of the conversation: each request takes the script's next reply, whatever was asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias, Union

import attrs
from anyio.lowlevel import checkpoint

from treadle.plugin import (
    AssistantMessage,
    Call,
    CallDelta,
    Event,
    Finish,
    Json,
    Message,
    Model,
    ModelFailed,
    Part,
    Piece,
    ProviderError,
    Reasoning,
    ReasoningDelta,
    Reply,
    Request,
    Text,
    TextDelta,
    Usage,
    UsageError,
    Whole,
    hookimpl,
)

Line: TypeAlias = Union[
    str, Call, Reply, BaseException, Sequence[Piece], Callable[[Request], "Line | Awaitable[Line]"], None
]
"""One reply of a script: words, a call, a whole reply, a fault to raise, pieces to play as they are (an exception among
them is raised at its place), a function of the request, or None for an empty answer."""

_SOME = Usage(input=10, output=5)


def call(name: str, /, _id: str = "", **arguments: Json) -> Call:
    """A tool call with these arguments; `_id` is the provider's id."""
    return Call(id="", name=name, arguments=json.dumps(arguments), provider_id=_id)


def calls(*made: Call, text: str = "") -> Reply:
    """A reply with several calls, and words before them."""
    parts: tuple[Part, ...] = (Text(text), *made) if text else made
    return Reply(parts=parts, finish="calls", usage=_SOME)


@attrs.frozen
class _Recorded:
    """A request as it was asked, with its messages as they stood then."""

    request: Request
    messages: tuple[Message, ...]


class ScriptModel:
    """A model that plays its lines, one a request. `requests` keeps what was asked.

    `last` repeats the last line for ever instead of failing when the script is over. Raises `ProviderError`
    (bad_request) when it is over. Text is streamed word by word; each piece is a point where a cancel takes hold.
    """

    def __init__(
        self,
        lines: Iterable[Line] = (),
        *,
        ref: str = "script:inline",
        family: str = "script",
        window_tokens: int | None = None,
        last: bool = False,
    ) -> None:
        self._lines = list(lines)
        self._ref, self._family, self._window, self._last = ref, family, window_tokens, last
        self._at = 0
        self.asked: list[_Recorded] = []

    @property
    def ref(self) -> str:
        return self._ref

    @property
    def family(self) -> str:
        return self._family

    @property
    def window_tokens(self) -> int | None:
        return self._window

    @property
    def requests(self) -> tuple[tuple[Message, ...], ...]:
        """The messages of each request so far."""
        return tuple(each.messages for each in self.asked)

    @property
    def left(self) -> int:
        """How many lines were not played yet."""
        return len(self._lines) - self._at

    def add(self, *lines: Line) -> None:
        """Write more lines at the end."""
        self._lines.extend(lines)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Piece]]:
        self.asked.append(_Recorded(request, tuple(request.messages)))
        yield _played(await self._next(request))

    async def _next(self, request: Request) -> list[Piece | BaseException]:
        if self._at >= len(self._lines) and not (self._last and self._lines):
            raise ProviderError("bad_request", f"the script {self._ref} has no line {self._at + 1}.")
        line = self._lines[min(self._at, len(self._lines) - 1)]
        self._at += 1
        while callable(line):
            answer = line(request)
            line = await answer if isinstance(answer, Awaitable) else answer
        return _pieces(line)

    @classmethod
    def replay(cls, events: Iterable[Event]) -> ScriptModel:
        """A model that answers as the one in a recorded session did, failed attempts included."""
        lines: list[Line] = []
        for event in events:
            if isinstance(event.data, AssistantMessage):
                said = event.data
                lines.append(Reply(parts=said.message.parts, finish=said.finish, usage=said.usage))
            elif isinstance(event.data, ModelFailed) and event.data.action == "retry":
                lines.append(ProviderError("server", event.data.error))
        return cls(lines, ref="script:replay")


async def _played(pieces: list[Piece | BaseException]) -> AsyncIterator[Piece]:
    for piece in pieces:
        await checkpoint()
        if isinstance(piece, BaseException):
            raise piece
        yield piece


def _pieces(line: object) -> list[Piece | BaseException]:
    if line is None:
        return [Finish(finish="end", usage=_SOME)]
    if isinstance(line, BaseException):
        return [line]
    if isinstance(line, str):
        words: list[Piece | BaseException] = [TextDelta(word) for word in re.findall(r"\s*\S+\s*$|\s*\S+", line)]
        return [*words, Finish(finish="end", usage=_SOME)]
    if isinstance(line, Call):
        return _pieces(Reply(parts=(line,), finish="calls", usage=_SOME))
    if isinstance(line, Reply):
        parts = [piece for at, part in enumerate(line.parts) for piece in _of_part(part, at)]
        return [*parts, Finish(finish=line.finish, usage=line.usage, raw=line.raw)]
    if isinstance(line, Sequence):
        return list(line)
    raise UsageError(f"A script's line is text, a call, a reply, a fault, pieces or a function; not {line!r}.")


def _of_part(part: Part, at: int) -> list[Piece]:
    if isinstance(part, Call) and part.payload is None:
        return [CallDelta(key=at, name=part.name, arguments=part.arguments, provider_id=part.provider_id)]
    if isinstance(part, Text) and part.payload is None and part.text:
        return [TextDelta(part.text, at)]
    if isinstance(part, Reasoning) and part.payload is None:
        return [ReasoningDelta(part.text, at)]
    return [Whole(part)]


@attrs.frozen(kw_only=True)
class ScriptSettings:
    """`folder` is where `script:NAME` looks for `NAME` or `NAME.json`; empty is the current folder."""

    folder: str = ""


class Script:
    """The plugin: opens `script:FILE`."""

    Settings = ScriptSettings

    def __init__(self, settings: ScriptSettings | None = None) -> None:
        self.settings = settings or ScriptSettings()

    @hookimpl
    def open_model(self, ref: str) -> Model | None:
        if not ref.startswith("script:"):
            return None
        name = ref.removeprefix("script:")
        folder = Path(self.settings.folder)
        for path in (folder / name, folder / f"{name}.json"):
            if path.is_file():
                return ScriptModel(read_script(path), ref=ref)
        raise UsageError(f'There is no script "{name}" in {folder.resolve()}. Write a JSON list of replies there.')


def read_script(path: Path) -> list[Line]:
    """The lines of a script file. Raises `UsageError` naming the file and the line that is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(data, list):
        raise UsageError(f"{path} holds no list of replies.")
    return [_read_line(entry, f"{path}, reply {at}") for at, entry in enumerate(data, 1)]


def _read_line(entry: Json, where: str) -> Line:
    if isinstance(entry, str):
        return entry
    if not isinstance(entry, dict) or not set(entry) <= {"text", "calls", "error", "message"}:
        raise UsageError(f"{where}: give a text, or an object of text and calls, or of error and message.")
    if "error" in entry:
        return ProviderError(entry["error"], entry.get("message", "as the script says"))
    made = [call(each["name"], **each.get("arguments", {})) for each in entry.get("calls", [])]
    if not made:
        return str(entry.get("text", ""))
    return calls(*made, text=entry.get("text", ""))
