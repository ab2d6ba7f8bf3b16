"""PostgreSQL passes the kit of all stores."""

from contextlib import asynccontextmanager

import pytest

from treadle.testing import StoreKit
from treadle_postgres import Postgres

pytestmark = pytest.mark.services


class TestPostgres(StoreKit):
    @pytest.fixture
    async def store(self, server, schema):
        self.plugin = Postgres(Postgres.Settings(schema=schema))
        self.uri = server
        store = self.plugin.open_store(server)
        self.usurpers = []
        yield store
        for each in (store, *self.usurpers):
            await each.close()

    @asynccontextmanager
    async def another(self, store):
        second = self.plugin.open_store(self.uri)
        try:
            yield second
        finally:
            await second.close()

    async def take_over(self, store, session_id):
        async with store.transaction() as (connection, _):
            run_out = f"update {store.settings.schema}.sessions set lease_ends = '-infinity' where id = %s"
            await connection.execute(run_out, (session_id,))
        self.usurpers.append(self.plugin.open_store(self.uri))
        return await self.usurpers[-1].open(session_id, write=True)
