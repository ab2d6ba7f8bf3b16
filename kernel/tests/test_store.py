"""The store in memory passes the kit that every store passes."""

import pytest

from treadle.store import MemoryStore
from treadle.testing import StoreKit


class TestMemoryStore(StoreKit):
    @pytest.fixture
    async def store(self):
        store = MemoryStore()
        yield store
        await store.close()
