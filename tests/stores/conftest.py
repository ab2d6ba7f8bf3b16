"""Every kind of store side by side."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from stores.kinds import ALL_KINDS

from treadle.store import MemoryStore, Store
from treadle_jsonl import Jsonl
from treadle_postgres import Postgres
from treadle_postgres.testing import installed, running
from treadle_sqlite import Sqlite

_numbers = itertools.count(1)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URI of a running server, the newest that is installed."""
    versions = installed()
    if not versions:
        pytest.skip("There is no PostgreSQL on this machine. Install one: apt-get install postgresql")
    with running(versions[max(versions, key=int)]) as uri:
        yield uri


@pytest.fixture
async def make(tmp_path, request) -> AsyncIterator[Callable[..., Store]]:
    """Makes stores of a kind, each call an empty one, unless it names the place of another; closes them."""
    made: list[Store] = []

    def store(kind: str, place: object = None) -> Store:
        place = place or next(_numbers)
        if kind == "memory":
            opened: Store = MemoryStore()
        elif kind == "jsonl":
            opened = Jsonl(Jsonl.Settings(durability="normal")).open_store(f"jsonl:{tmp_path}/{place}")
        elif kind == "sqlite":
            opened = Sqlite(Sqlite.Settings(busy_seconds=2)).open_store(f"sqlite:///{tmp_path}/{place}.db")
        else:
            uri = request.getfixturevalue("postgres")
            opened = Postgres(Postgres.Settings(schema=f"place_{place}")).open_store(uri)
        made.append(opened)
        return opened

    yield store
    for each in made:
        await each.close()


@pytest.fixture(params=ALL_KINDS)
def kind(request) -> str:
    """Each kind of store."""
    return str(request.param)


@pytest.fixture
def store(kind, make) -> Store:
    """An empty store of each kind."""
    return make(kind)


@pytest.fixture
def pair(kind, make) -> tuple[Store, Store]:
    """Two stores over the same place, as two processes have; one in memory is shared by nobody, so it stands twice."""
    place = next(_numbers)
    one = make(kind, place)
    return one, one if kind == "memory" else make(kind, place)
