"""SQLite passes the kit of all stores, at both durabilities."""

from contextlib import asynccontextmanager

import pytest

from treadle.testing import StoreKit
from treadle_sqlite import Sqlite


class Shared(StoreKit):
    durability = "normal"

    def plugin(self):
        return Sqlite(Sqlite.Settings(durability=self.durability, poll_seconds=0.005))

    @pytest.fixture
    async def store(self, tmp_path):
        store = self.plugin().open_store(f"sqlite:///{tmp_path}/kit.db")
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
        async with store.transaction() as (connection, _):
            run_out = "update sessions set lease_ends = 1 where id = ?"
            connection.execute(run_out, (session_id,))
        self.usurpers.append(self.plugin().open_store(store.ref))
        return await self.usurpers[-1].open(session_id, write=True)


class TestNormal(Shared):
    pass


class TestFull(Shared):
    durability = "full"
