"""Sessions in one SQLite file: the plugin. The store itself is imported when a reference first asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

import anyio

from treadle.plugin import OpenStack, Store, hookimpl

from .settings import SqliteSettings, file_of

if TYPE_CHECKING:
    from .store import SqliteStore


class Sqlite:
    """Opens stores such as `sqlite:///app.db` (relative) and `sqlite:////srv/app.db` (absolute)."""

    Settings = SqliteSettings

    def __init__(self, settings: SqliteSettings | None = None) -> None:
        self.settings = settings or SqliteSettings()
        self._stores: WeakSet[SqliteStore] = WeakSet()

    @hookimpl
    def open_store(self, ref: str) -> Store | None:
        """Claim `sqlite:` references. Touches no file: it is made by the first write.

        Raises `UsageError` if the reference names no file (in memory, a host, a query).
        """
        path = file_of(ref)
        if path is None:
            return None
        from .store import SqliteStore

        store = SqliteStore(path, ref=ref, settings=self.settings)
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


__all__ = ["Sqlite"]
