"""Composition and the front door: plugins become a stack, a stack runs agents.

A stack is an object that its user owns. It finds what references name, opens and closes its plugins, and hands out
drivers. Nothing here knows a plugin by name.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup

from .agent import Agent, Limits
from .driver import Driver
from .errors import CompositionError, UsageError
from .events import Event, TurnEnd
from .grammar import fold
from .hooks import Delta
from .host import Host
from .messages import Content, Json, new_id
from .model import Model
from .results import Receipt, Result
from .session import open_session
from .store import ALL, MemoryStore, Posted, SessionFilter, SessionInfo, Store
from .watch import Watch

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

VERSION = "0.1.0"


class Stack:
    """Plugins composed in order, and the way in.

    `plugins` mixes instances and names of installed plugins; the list's order is the hooks' order. `store` is where a
    bare session name lives. `clock` stamps events: seconds since 1970. Immutable once made; it may be opened again
    after it was closed.

    Raises `CompositionError` with every fault at once.
    """

    def __init__(
        self,
        plugins: Sequence[object] = (),
        *,
        store: str | Store = "memory:",
        clock: Callable[[], float] = time.time,
    ) -> None:
        named, versions = _composed(plugins)
        self._init(named, versions, store, clock)

    def _init(
        self,
        named: list[tuple[str, object]],
        versions: dict[str, str],
        store: str | Store,
        clock: Callable[[], float] = time.time,
    ) -> None:
        specs = [getattr(plugin, "hookspecs", None) for _, plugin in named]
        self.host = Host(named, [each for each in specs if each is not None])
        self.clock = clock
        self.manifest = tuple((name, versions.get(name, "")) for name, _ in named)
        self.broken: tuple[str, ...] = ()
        """What discovery could not load, each as a sentence; empty for a stack written in code."""
        self.store = store
        self._models: dict[str, Model] = {}
        self._stores: dict[str, Store] = {}
        self._exits: AsyncExitStack | None = None
        self._group: TaskGroup | None = None
        self._portal: BlockingPortal | None = None
        self._portal_exits: list[Any] = []
        self._attached: dict[tuple[str, str], Driver] = {}
        self._opening = False
        self._opened = anyio.Event()
        self._thread = 0
        self._attaching = anyio.Lock()
        self._holders = 0
        self._freed = anyio.Event()

    @classmethod
    def discover(
        cls,
        *,
        plugins: Sequence[str] | None = None,
        also: Sequence[str] = (),
        without: Sequence[str] = (),
        stack: str | None = None,
        store: str | Store | None = None,
        config: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Stack:
        """Compose what is installed.

        Plugins that only answer when asked join by themselves; those that act by themselves (`ambient`) must be named:
        by a `stack`, by `also`, by the file's `[plugins.NAME]`, or by `TREADLE_PLUGINS`, which replaces the whole set
        (empty: none). `without` removes. `config` is a `treadle.toml`; None looks for none.
        """
        from . import discovery

        env = os.environ if environ is None else environ
        table = discovery.read_config(config) if config is not None else {}
        spec = None
        if stack := stack or table.get("stack"):
            spec = discovery.find_stack(stack)
        known = discovery.installed()
        file_settings: Mapping[str, Mapping[str, Json]] = table.get("plugins", {})
        wanted: list[str] = list(plugins) if plugins is not None else []
        if plugins is None and (listed := env.get("TREADLE_PLUGINS")) is not None:
            wanted, plugins = [name.strip() for name in listed.split(",") if name.strip()], ()
        named = [*(spec.plugins if spec and plugins is None else ()), *wanted, *also]
        if plugins is None:
            named.extend(name for name in file_settings if name not in named)
        named = [name for name in dict.fromkeys(named) if name not in without]
        settings = {"config": file_settings, "defaults": spec.settings if spec else {}, "environ": env, "known": known}
        loaded, broken = discovery.resolve(named, **settings)  # type: ignore[arg-type]
        if plugins is None and spec is None:
            rest = [each.name for each in known if each.name not in named and each.name not in without]
            found, broken = discovery.resolve(rest, required=False, **settings)  # type: ignore[arg-type]
            loaded.extend(each for each in found if not getattr(each.plugin, "ambient", False))
        return cls._of(loaded, broken, store or table.get("store") or (spec.store if spec else "memory:"))

    @classmethod
    def _of(cls, loaded: Sequence[Any], broken: Sequence[Any], store: str | Store) -> Stack:
        names = {each.name for each in loaded}
        lacking = [
            f'plugin "{each.name}" ({each.origin}) needs the plugin "{need}", which is not in the stack'
            for each in loaded
            for need in each.requires
            if need not in names
        ]
        if lacking:
            raise CompositionError(lacking)
        made = cls.__new__(cls)
        versions = {each.name: each.version for each in loaded}
        made._init([(each.name, each.plugin) for each in loaded], versions, store)
        made.broken = tuple(str(each) for each in broken)
        return made

    # --- opening and closing -------------------------------------------------------------------------------

    @property
    def plugins(self) -> Sequence[str]:
        """Names of the plugins, in order."""
        return self.host.names

    @property
    def is_open(self) -> bool:
        """Whether the plugins' resources are open."""
        return self._exits is not None

    async def __aenter__(self) -> Stack:
        if self._exits is not None or self._opening:
            raise UsageError("This stack is open already, or opens just now. Use it, or make another.")
        self._opening = True
        try:
            async with AsyncExitStack() as exits:
                self._group = await exits.enter_async_context(_Group())
                exits.push_async_callback(self._close_stores)
                await self.host.enter(self, exits)
                exits.push_async_callback(self._close_attached)
                self._exits = exits.pop_all()
            self._thread = get_ident()
        finally:
            self._opening = False
            self._opened.set()
            self._opened = anyio.Event()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        exits = self._exits
        try:
            while exits is not None and self._holders:
                await self._freed.wait()
        finally:
            self._exits = None
            if exits is not None:
                await exits.__aexit__(kind, error, trace)
            self._group = None

    def hold(self) -> None:
        """A turn uses this stack: it does not close before `let_go`."""
        self._holders += 1

    def let_go(self) -> None:
        """A turn no longer uses this stack."""
        self._holders -= 1
        if not self._holders:
            self._freed.set()
            self._freed = anyio.Event()

    async def _close_attached(self) -> None:
        for driver in [*self._attached.values()]:
            await driver.close("the stack was closed")

    async def _close_stores(self) -> None:
        stores, self._stores = self._stores, {}
        self._models.clear()
        with CancelScope(shield=True):
            for store in stores.values():
                await store.close()

    def __enter__(self) -> Stack:
        from anyio.from_thread import start_blocking_portal

        manager = start_blocking_portal()
        portal = manager.__enter__()
        inner = portal.wrap_async_context_manager(self)
        try:
            inner.__enter__()
        except BaseException as error:
            manager.__exit__(type(error), error, error.__traceback__)
            raise
        self._portal, self._portal_exits = portal, [inner, manager]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        exits, self._portal_exits, self._portal = self._portal_exits, [], None
        for each in exits:
            each.__exit__(kind, error, trace)

    # --- references ----------------------------------------------------------------------------------------

    def open_model(self, ref: str) -> Model:
        """The model of a reference; one object per reference while the stack is open."""
        model = self._models.get(ref)
        if model is None:
            model = self._models[ref] = self.host.open_model(ref)
        return model

    def open_store(self, ref: str) -> Store:
        """The store of a reference; one object per reference while the stack is open. `memory:` is the kernel's own."""
        store = self._stores.get(ref)
        if store is None:
            store = self._stores[ref] = MemoryStore(ref) if ref.startswith("memory:") else self.host.open_store(ref)
        return store

    async def fire(self, hook: str, **arguments: object) -> Sequence[Any]:
        """Call a hook that a plugin of this stack publishes, and gather the answers that are not None."""
        return await self.host.fire(hook, **arguments)

    def _store(self, ref: str | Store | None) -> Store:
        chosen = self.store if ref is None else ref
        return self.open_store(chosen) if isinstance(chosen, str) else chosen

    def _located(self, session: str | None) -> tuple[Store, str]:
        """Where a session lives: None is a new one in memory, a bare name is in the default store, else `REF#ID`."""
        if session is None:
            return MemoryStore(), new_id()
        if "#" in session:
            ref, _, name = session.rpartition("#")
            return self._store(ref), _named(unquote(name), session)
        if ":" in session:
            raise UsageError(f'Session "{session}" names a store and no session. Write "{session}#NAME".')
        return self._store(None), _named(session, session)

    # --- running -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self, agent: Agent, session: str | None = None, **settings: Any) -> AsyncIterator[Driver]:
        """A driver of a session, owned by the `async with`: leaving it closes it.

        `settings` as for `run`: user, deps, metadata, output, limits. Raises `SessionBusy` if another holds the
        session, `UnknownReference` for a model or store that no plugin opens.
        """
        while self._opening:
            await self._opened.wait()
        if not self.is_open:
            async with self, self.open_at(*self._located(session), agent, **settings) as driver:
                yield driver
            return
        if self._thread != get_ident():
            raise UsageError("This stack is open in another thread's event loop. Use it there, or make another.")
        self.hold()  # whoever opened it for one run leaves it open for this one too
        try:
            async with self.open_at(*self._located(session), agent, **settings) as driver:
                yield driver
        finally:
            self.let_go()

    @asynccontextmanager
    async def open_at(self, store: Store, session_id: str, agent: Agent, **settings: Any) -> AsyncIterator[Driver]:
        """As `open`, of a session in a store that is at hand, on a stack that is open."""
        async with _Group() as group:
            driver = await self._driver(agent, store, session_id, group, settings)
            try:
                yield driver
            finally:
                await driver.close()

    async def attach(self, agent: Agent, session: str, **settings: Any) -> Driver:
        """This stack's one live driver of a session, shared by all who attach; closed when idle or with the stack.

        It stays open while it runs, while somebody watches, and until it was used once. On `Closed`, attach again.
        """
        if self._group is None or not self.is_open:
            raise UsageError("attach() needs an open stack. Enter it first: async with stack: ...")
        store, session_id = self._located(session)
        key = (store.ref, session_id)
        async with self._attaching:  # two who come at once get the same
            driver = self._attached.get(key)
            if driver is None or driver.status == "closed":
                driver = await self._driver(agent, store, session_id, self._group, settings)
                self._attached[key] = driver
                driver.on_closed = lambda closed: self._detach(key, closed)
                driver.on_idle = self._close_idle
            return driver

    def _detach(self, key: tuple[str, str], driver: Driver) -> None:
        if self._attached.get(key) is driver:
            del self._attached[key]

    def _close_idle(self, driver: Driver) -> None:
        if self._group is not None and self.is_open and not driver.watching:
            self._group.start_soon(driver.close_if_idle)

    async def _driver(
        self, agent: Agent, store: Store, session_id: str, group: TaskGroup, settings: Mapping[str, Any]
    ) -> Driver:
        settings = dict(settings)
        if isinstance(agent.model, str):
            self.open_model(agent.model)
        output = settings.pop("output", None)
        if output is not None:
            from .functions import wanted_output

            wanted = settings["output"] = wanted_output(output)
            if any(tool.name == wanted.tool.name for tool in agent.tools):
                raise UsageError(f'With output= the name "{wanted.tool.name}" is taken. Rename that tool of the agent.')
        limits: Limits = settings.get("limits") or agent.limits
        log = await store.open(session_id, write=True)
        try:
            live = await open_session(
                log,
                session=session_id,
                kernel=VERSION,
                plugins=self.manifest,
                store_seconds=limits.store_seconds,
                suspends=store.capabilities.suspends,
                clock=self.clock,
            )
            driver = Driver(self, agent, live, group, store=store, kernel=VERSION, **settings)
        except BaseException:
            with CancelScope(shield=True):
                await log.close()
            raise
        group.start_soon(driver.take_posts)
        return driver

    async def run(
        self,
        agent: Agent,
        content: Content,
        *,
        session: str | None = None,
        user: str | None = None,
        deps: Any = None,
        metadata: Mapping[str, Json] | None = None,
        output: Any = None,
        limits: Limits | None = None,
    ) -> Result:
        """Say something to an agent and wait for the turn's result.

        Without `session` the conversation is in memory and gone afterwards. `user` is the scope of memory and budgets,
        `deps` reaches tools and hooks untouched, `output` is the type of a structured answer. Cancelling this cancels
        the turn. A failed or limited turn is a `reason` of the result; `result.check()` raises.
        """
        settings = {"user": user, "deps": deps, "metadata": metadata, "output": output, "limits": limits}
        async with self.open(agent, session, **settings) as driver:
            return await driver.prompt(content)

    def run_sync(self, agent: Agent, content: Content, **settings: Any) -> Result:
        """`run`, blocking. Works inside a running event loop too; Ctrl-C cancels the turn."""
        if self._portal is not None:
            return self._portal.call(partial(self.run, agent, content, **settings))
        if self.is_open:
            raise UsageError("This stack is open in an event loop. Use `await stack.run(...)` there.")
        from anyio.from_thread import start_blocking_portal

        with start_blocking_portal() as portal:
            return portal.call(partial(self.run, agent, content, **settings))

    @asynccontextmanager
    async def stream(
        self, agent: Agent, content: Content, *, session: str | None = None, **settings: Any
    ) -> AsyncIterator[Stream]:
        """As `run`, live: a `Stream` of one turn. Leaving it early cancels the turn."""
        async with self.open(agent, session, **settings) as driver:
            watch = driver.watch()
            yield Stream(driver, watch, await driver.follow_up(content))

    def sessions(self, ref: str | Store | None = None) -> Sessions:
        """A store's sessions, without a lease; None is the default store."""
        return Sessions(self, ref)


class Stream:
    """One turn as it happens."""

    def __init__(self, driver: Driver, watch: Watch, receipt: Receipt) -> None:
        self.driver, self._watch, self._receipt = driver, watch, receipt
        self._over = False

    def events(self) -> _Items:
        """Events and deltas to the end of the turn that the message entered."""
        return _Items(self)

    def text(self) -> _Words:
        """The replies' words as they come."""
        return _Words(self)

    async def next_item(self) -> Event | Delta:
        """The next event or delta; `StopAsyncIteration` behind the end of the turn, or if the message entered none."""
        if self._over:
            raise StopAsyncIteration
        item = await anext(self._watch)
        if isinstance(item, Event) and isinstance(item.data, TurnEnd):
            if self._receipt.turn is None:
                await self._receipt.fate()
            self._over = self._receipt.turn is None or self._receipt.turn == item.turn
        return item

    async def result(self) -> Result:
        """Wait for the turn's result."""
        return await self._receipt.result()

    async def steer(self, content: Content) -> Receipt:
        """Put a message for the nearest step."""
        return await self.driver.steer(content)

    def cancel(self, cause: str = "cancelled") -> bool:
        """Cancel the turn."""
        return self.driver.cancel(cause=cause)


class _Items:
    """Iterates over a stream's items. A class, not a generator: it may be dropped or closed anywhere, by anyone."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __aiter__(self) -> _Items:
        return self

    async def __anext__(self) -> Event | Delta:
        return await self._stream.next_item()

    async def aclose(self) -> None:
        """Nothing to do; leaving the stream ends the turn."""


class _Words:
    """Iterates over the words of a stream's replies, as `_Items`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __aiter__(self) -> _Words:
        return self

    async def __anext__(self) -> str:
        while True:
            item = await self._stream.next_item()
            if isinstance(item, Delta) and item.kind == "text":
                return item.text

    async def aclose(self) -> None:
        """Nothing to do; leaving the stream ends the turn."""


class Sessions:
    """A store's sessions: listed, read, followed, forked and posted to without a lease."""

    def __init__(self, stack: Stack, ref: str | Store | None) -> None:
        self._stack, self._ref = stack, ref

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Store]:
        async with AsyncExitStack() as exits:
            if not self._stack.is_open:
                await exits.enter_async_context(self._stack)
            yield self._stack._store(self._ref)

    async def list(self, filter: SessionFilter = ALL) -> Sequence[SessionInfo]:
        """What is there, newest first."""
        async with self._opened() as store:
            return await store.list(filter)

    async def read(self, session: str, after_seq: int = 0) -> Sequence[Event]:
        """A session's events."""
        async with self._opened() as store:
            log = await store.open(session, write=False)
            try:
                return await log.read(after_seq)
            finally:
                await log.close()

    async def tail(self, session: str, after_seq: int = 0) -> AsyncIterator[Event]:
        """A session's synced events, and new ones as they come. Close it when done (`aclosing`)."""
        async with self._opened() as store:
            log = await store.open(session, write=False)
            try:
                async for event in log.tail(after_seq):
                    yield event
            finally:
                with CancelScope(shield=True):
                    await log.close()

    async def fork(self, session: str, at_seq: int | None = None, *, name: str | None = None) -> str:
        """A new session that shares this one's events up to `at_seq` (None: its last lawful place); returns its id.

        Refused inside a step, naming the nearest places outside.
        """
        events = await self.read(session)
        places = _fork_places(events)
        at = max(places) if at_seq is None else at_seq
        if at not in places:
            near = sorted(places, key=lambda place: abs(place - at))[:2]
            raise UsageError(f'Session "{session}" cannot be forked at seq {at}, inside a step. Nearest: {near}.')
        made = name or new_id()
        async with self._opened() as store:
            await store.fork(session, at, made)
            log = await store.open(made, write=True)
            try:
                await open_session(
                    log,
                    session=made,
                    kernel=VERSION,
                    plugins=self._stack.manifest,
                    store_seconds=30.0,
                    suspends=store.capabilities.suspends,
                    clock=self._stack.clock,
                )
            finally:
                await log.close()
        return made

    async def post(self, session: str, what: Posted) -> str:
        """Leave a message, decision or cancel for the session's writer."""
        async with self._opened() as store:
            return await store.post(session, what)

    async def archive(self, session: str, archived: bool = True) -> None:
        """Put a session away, or take it back."""
        async with self._opened() as store:
            await store.archive(session, archived)

    async def delete(self, session: str, *, with_forks: bool = False) -> None:
        """Delete a session; refused while forks refer to it, unless they go too."""
        async with self._opened() as store:
            await store.delete(session, with_forks=with_forks)


def _fork_places(events: Sequence[Event]) -> set[int]:
    """The seqs after which no step is open."""
    places: set[int] = set()
    state = fold(())
    for event in events:
        state.apply(event)
        if state.phase.value in ("IDLE", "OPEN"):
            places.add(event.seq)
    return places


class _Group:
    """A task group whose body's own exception comes out as it is, not in a group; leaving it cancels its tasks.

    A `KeyboardInterrupt` comes out as itself too, whichever task the event loop raised it in.
    """

    def __init__(self) -> None:
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> TaskGroup:
        return await self._group.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._group.cancel_scope.cancel()
        own = isinstance(error, (Exception, KeyboardInterrupt))
        try:
            await self._group.__aexit__(*((None, None, None) if own else (kind, error, trace)))
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt) is None:
                raise
            raise KeyboardInterrupt from group
        return False


def _named(name: str, reference: str) -> str:
    if not name:
        raise UsageError(f'Session "{reference}" has an empty name. Write REF#NAME.')
    return name


def plugin_name(plugin: object) -> str:
    """A plugin's name: its own `name`, or its class's name in lower case with dashes."""
    given = getattr(plugin, "name", None)
    if isinstance(given, str) and given:
        return given
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(plugin).__name__).lower()


def _composed(plugins: Sequence[object]) -> tuple[list[tuple[str, object]], dict[str, str]]:
    """Names and plugins in order; names are resolved through installed metadata, instances never touch it."""
    versions: dict[str, str] = {}
    wanted = [each for each in plugins if isinstance(each, str)]
    by_name: dict[str, Any] = {}
    if wanted:
        from . import discovery

        loaded, _ = discovery.resolve(wanted, environ=os.environ)
        by_name = {each.name: each for each in loaded}
        versions = {each.name: each.version for each in loaded}
    named: list[tuple[str, object]] = []
    for each in plugins:
        if isinstance(each, str):
            named.append((each, by_name[each].plugin))
        elif isinstance(each, type):
            raise CompositionError([f"{each.__name__} is a class; pass an instance: {each.__name__}()"])
        else:
            named.append((plugin_name(each), each))
    names = {name for name, _ in named}
    lacking = [
        f'plugin "{name}" needs the plugin "{need}", which is not in the stack'
        for name, plugin in named
        for need in getattr(type(plugin), "requires", ())
        if need not in names
    ]
    if lacking:
        raise CompositionError(lacking)
    return named, versions
