"""Every kind of store that needs no server, side by side."""

from collections.abc import AsyncIterator, Callable

import pytest
from stores.kinds import KINDS

from treadle.store import MemoryStore, Store
from treadle_jsonl import Jsonl
from treadle_sqlite import Sqlite


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def make(tmp_path) -> AsyncIterator[Callable[[str], Store]]:
    """Makes empty stores of a kind; closes them."""
    made: list[Store] = []

    def store(kind: str) -> Store:
        place = tmp_path / str(len(made))
        if kind == "memory":
            made.append(MemoryStore())
        elif kind == "jsonl":
            made.append(Jsonl(Jsonl.Settings(durability="normal")).open_store(f"jsonl:{place}"))
        else:
            made.append(Sqlite().open_store(f"sqlite:///{place}.db"))
        return made[-1]

    yield store
    for each in made:
        await each.close()


@pytest.fixture(params=KINDS)
def store(request, make) -> Store:
    """An empty store of each kind."""
    return make(request.param)
