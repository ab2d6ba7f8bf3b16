"""Every async test of this plugin runs on both event loops; those that need a server are marked `services`."""

import itertools
from contextlib import asynccontextmanager

import pytest

from treadle_postgres import Postgres
from treadle_postgres.testing import installed, running

VERSIONS = installed()
_numbers = itertools.count(1)


def pytest_generate_tests(metafunc):
    """A test with a server runs once for each major version that is installed."""
    if "server" in metafunc.fixturenames:
        metafunc.parametrize("server", [*VERSIONS] or ["none"], indirect=True, scope="session")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(scope="session")
def server(request):
    """The URI of a running server."""
    if request.param == "none":
        pytest.skip("There is no PostgreSQL on this machine. Install one: apt-get install postgresql")
    with running(VERSIONS[request.param]) as uri:
        yield uri


@pytest.fixture
def schema():
    """A schema that no other test uses."""
    return f"test_{next(_numbers)}"


@pytest.fixture
def opened(server, schema):
    """Opens a store; each call is what another process would have."""

    @asynccontextmanager
    async def open_store(**settings):
        store = Postgres(Postgres.Settings(schema=schema, **settings)).open_store(server)
        try:
            yield store
        finally:
            await store.close()

    return open_store
