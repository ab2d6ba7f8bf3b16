"""Sessions in PostgreSQL: the plugin. The store, and psycopg with it, are imported when a reference first asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

import anyio

from treadle.plugin import OpenStack, Store, hookimpl

from .settings import PostgresSettings, is_ours

if TYPE_CHECKING:
    from .store import PostgresStore


class Postgres:
    """Opens stores such as `postgresql://clerk@db.example/app`: libpq's connection URIs."""

    Settings = PostgresSettings

    def __init__(self, settings: PostgresSettings | None = None) -> None:
        self.settings = settings or PostgresSettings()
        self._stores: WeakSet[PostgresStore] = WeakSet()

    @hookimpl
    def open_store(self, ref: str) -> Store | None:
        """Claim `postgresql:` and `postgres:` references. Connects to nothing: the first use does.

        Raises `UsageError` if the reference is not a connection URI.
        """
        if not is_ours(ref):
            return None
        from .store import PostgresStore

        store = PostgresStore(ref, settings=self.settings)
        self._stores.add(store)
        return store

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, stack: OpenStack) -> AsyncIterator[None]:
        """Renew the leases of open writers for as long as the stack is open. The stack closes the stores."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._renew_leases)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _renew_leases(self) -> None:
        # A third of the time to live: two renewals may fail before anybody can take a lease over.
        while True:
            await anyio.sleep(self.settings.lease_seconds / 3)
            for store in list(self._stores):
                await store.renew_leases()


__all__ = ["Postgres"]
