"""A folder of files passes the kit of all stores, at both durabilities."""

from contextlib import asynccontextmanager

import pytest

from treadle.testing import StoreKit
from treadle_jsonl import Jsonl


class Shared(StoreKit):
    durability = "normal"

    def plugin(self):
        return Jsonl(Jsonl.Settings(durability=self.durability, poll_seconds=0.005))

    @pytest.fixture
    async def store(self, tmp_path):
        store = self.plugin().open_store(f"jsonl:{tmp_path}/kit")
        self.usurpers = []
        yield store
        for each in (store, *self.usurpers):
            await each.close()

    @asynccontextmanager
    async def another(self, store):
        second = self.plugin().open_store(store.ref)
        try:
            yield second
        finally:
            await second.close()

    async def take_over(self, store, session_id):
        # A lock does not run out: it goes when its process ends, or when somebody removes its file.
        store.places.lock(session_id).unlink()
        self.usurpers.append(self.plugin().open_store(store.ref))
        return await self.usurpers[-1].open(session_id, write=True)


class TestNormal(Shared):
    pass


class TestFull(Shared):
    durability = "full"
