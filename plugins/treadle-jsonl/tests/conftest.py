"""Every async test of this plugin runs on both event loops, on real files."""

from contextlib import asynccontextmanager

import pytest

from treadle_jsonl import Jsonl


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    """Where the sessions of a test are kept."""
    return tmp_path / "sessions"


@pytest.fixture
def opened(folder):
    """Opens a store on the test's folder; each call is what another process would have."""

    @asynccontextmanager
    async def open_store(**settings):
        settings = {"poll_seconds": 0.005, **settings}
        store = Jsonl(Jsonl.Settings(**settings)).open_store(f"jsonl:{folder}")
        try:
            yield store
        finally:
            await store.close()

    return open_store
