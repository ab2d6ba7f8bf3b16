"""The same work as the floor's, done by treadle: every guarantee on, model and tools as cheap as the floor's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from treadle import Agent, Limits, Stack
from treadle.plugin import (
    AskedCall,
    CallContext,
    CallDelta,
    Finish,
    Json,
    Message,
    Piece,
    Request,
    TextDelta,
    Tool,
    ToolAnswer,
    TurnContext,
    Usage,
    View,
    hookimpl,
)

ARGUMENTS = {"add": '{"a": 1, "b": 2}', "nap": '{"seconds": 0.01}'}
USAGE = Usage(input=10, output=5)


class Scripted:
    """A model that answers as the floor's script does."""

    ref, family, window_tokens = "bench:scripted", "bench", None

    def __init__(self, steps: int | None = None, calls: int = 1, tool: str = "add") -> None:
        self.steps, self.calls, self.tool = steps, calls, tool
        self.asked = 0

    def stream(self, request: Request) -> Stream:
        self.asked += 1
        after_tool = request.messages[-1].role == "tool"
        more = not after_tool if self.steps is None else self.asked % self.steps != 0
        if not more:
            return Stream([TextDelta("The sum is 3."), Finish(finish="end", usage=USAGE)])
        pieces: list[Piece] = [
            CallDelta(key=each, name=self.tool, arguments=ARGUMENTS[self.tool], provider_id=f"call-{self.asked}-{each}")
            for each in range(self.calls)
        ]
        return Stream([*pieces, Finish(finish="calls", usage=USAGE)])


class Talking(Scripted):
    """A model that answers with so many deltas of four characters."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def stream(self, request: Request) -> Stream:
        return Stream([*[TextDelta("word")] * self.count, Finish(finish="end", usage=USAGE)])


class Stream:
    """Pieces that are there already, opened and read as any stream is."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces

    async def __aenter__(self) -> AsyncIterator[Piece]:
        return self._read()

    async def __aexit__(self, *exc: object) -> None:
        return None

    async def _read(self) -> AsyncIterator[Piece]:
        for piece in self.pieces:
            yield piece


async def add(a: int, b: int) -> str:
    return str(a + b)


async def nap(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "rested"


def _schema(**types: str) -> Json:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": list(types),
        "additionalProperties": False,
    }


TOOLS = [
    Tool(name="add", description="Add two integers.", parameters=_schema(a="integer", b="integer"), call=add),
    Tool(name="nap", description="Rest.", parameters=_schema(seconds="number"), call=nap),
]


class Watcher:
    """A plugin with the floor's four hooks, which do nothing."""

    def __init__(self, number: int) -> None:
        self.name = f"watcher-{number}"

    @hookimpl
    async def before_step(self, batch: tuple[Message, ...], context: TurnContext[Json]) -> None:
        return None

    @hookimpl
    async def transform_context(self, view: View, context: TurnContext[Json]) -> None:
        return None

    @hookimpl
    async def before_tool(self, call: AskedCall, context: CallContext[Json]) -> None:
        return None

    @hookimpl
    async def after_tool(self, result: ToolAnswer, call: AskedCall, context: CallContext[Json]) -> None:
        return None


def _agent(model: Scripted) -> Agent:
    limits = Limits(max_steps=1_000_000, max_parallel=1_000)
    return Agent(name="clerk", instructions="Use the tools.", model=model, tools=TOOLS, limits=limits)


# --- the tasks -------------------------------------------------------------------------------------------------


def turns(
    steps: int | None = None, calls: int = 1, tool: str = "add", plugins: int = 0
) -> tuple[Callable[[], Awaitable[None]], Callable[[], int]]:
    """A coroutine function that takes one turn, and a function that says how often the model was asked."""
    model = Scripted(steps, calls, tool)
    agent, stack = _agent(model), Stack([Watcher(each) for each in range(plugins)])

    async def run() -> None:
        (await stack.run(agent, "What is 1 plus 2? Use the tool.")).check()

    return run, lambda: model.asked


async def many(count: int) -> int:
    """Turns of two steps at once, over one open stack; returns how often the model was asked."""
    model = Scripted()
    agent = _agent(model)
    async with Stack() as stack, anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(stack.run, agent, "What is 1 plus 2? Use the tool.")
    return model.asked


def deltas(count: int) -> Callable[[], Awaitable[int]]:
    """A coroutine function that streams a reply to its caller and returns how many characters arrived."""
    agent, stack = _agent(Talking(count)), Stack()

    async def run() -> int:
        seen = 0
        async with stack.stream(agent, "Talk.") as stream:
            async for text in stream.text():
                seen += len(text)
        return seen

    return run


def _on_disk(path: str) -> Any:
    from treadle_sqlite import Sqlite

    return Stack([Sqlite()], store=f"sqlite:///{Path(path).absolute()}")


async def session(path: str, count: int) -> AsyncIterator[None]:
    """Turns of two steps into one session on disk; yields after each turn."""
    async with _on_disk(path) as stack, stack.open(_agent(Scripted()), "bench") as driver:
        for number in range(count):
            (await driver.prompt(f"What is 1 plus 2? Use the tool. ({number})")).check()
            yield


async def resume(path: str) -> int:
    """How many messages a new process finds."""
    async with _on_disk(path) as stack, stack.open(_agent(Scripted()), "bench") as driver:
        return len(driver.view)
