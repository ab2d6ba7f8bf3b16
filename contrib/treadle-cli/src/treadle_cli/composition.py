"""What the options say, made into a stack, an agent and a session. Nothing runs here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import attrs

from treadle import Agent, Limits, Stack
from treadle.discovery import find_stack, nearest_config, read_config
from treadle.plugin import Json, SessionFilter, UsageError, new_id

from .loading import load_tools
from .places import SQLITE, default_store, file_of

MODEL = "local:smollm2"
"""The model when nobody names one: it needs no key and no network."""


@attrs.frozen(kw_only=True)
class Composing:
    """Options that say which plugins act and where sessions live."""

    plugins: tuple[str, ...] = ()
    config: Path | None = None
    stack: str | None = None
    store: str | None = None
    db: str | None = None
    no_log: bool = False

    def __attrs_post_init__(self) -> None:
        given = [name for name, value in (("--store", self.store), ("--db", self.db)) if value is not None]
        if self.no_log:
            given.append("--no-log")
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} say different things of where the session lives. Give one.")
        if self.db == "" or self.store == "":
            raise UsageError(f"{given[0]} is empty. Name a file or a store.")

    @property
    def asked_store(self) -> str | None:
        """The store that the options name."""
        return f"{SQLITE}{self.db}" if self.db else self.store


@attrs.frozen(kw_only=True)
class Acting:
    """Options that say who acts, and in which session."""

    model: str | None = None
    system: str = ""
    tools: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    session: str | None = None
    go_on: bool = False
    user: str | None = None
    max_steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None


@attrs.frozen(kw_only=True)
class Composed:
    """A stack, and where its sessions live. `notes` are for the person at the terminal."""

    stack: Stack
    table: Mapping[str, Json]
    store: str
    named: bool
    kept: bool
    notes: tuple[str, ...]


def compose(choices: Composing, environ: Mapping[str, str] | None = None) -> Composed:
    """Find the plugins and the store. Raises what `Stack.discover` raises."""
    env = os.environ if environ is None else environ
    config = choices.config or nearest_config(Path.cwd())
    table = read_config(config) if config is not None else {}
    asked = choices.asked_store or table.get("store")
    spec = choices.stack or table.get("stack")
    if asked is None and spec:
        asked = find_stack(spec).store
    stack = Stack.discover(
        also=[name for name in choices.plugins if not name.startswith("no:")],
        without=[name.removeprefix("no:") for name in choices.plugins if name.startswith("no:")],
        stack=choices.stack,
        config=config,
        environ=env,
    )
    notes = [f"{each}. Run `treadle doctor` for more." for each in stack.broken]
    store, kept = asked or "", not choices.no_log
    if not kept or not store:
        store = default_store(env) if kept and "sqlite" in stack.plugins else "memory:"
    if kept and asked is None and store == "memory:":
        notes.append("Nothing is kept: no store is installed. To keep sessions: pip install treadle-sqlite")
    return Composed(
        stack=stack,
        table=table,
        store=store,
        named=asked is not None,
        kept=kept and store != "memory:",
        notes=tuple(notes),
    )


def make_folder(composed: Composed) -> None:
    """Make the folder of the default store, for this user alone. Folders of other stores are their owners' business."""
    path = file_of(composed.store)
    if path is not None and not composed.named:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_agent(acting: Acting, composed: Composed, environ: Mapping[str, str] | None = None) -> Agent:
    """The agent that the options describe."""
    env = os.environ if environ is None else environ
    model = acting.model or composed.table.get("model") or env.get("TREADLE_MODEL") or MODEL
    bounds = {"max_steps": acting.max_steps, "tokens": acting.tokens, "seconds": acting.seconds}
    return Agent(
        name="treadle",
        instructions=acting.system,
        model=model,
        tools=load_tools(acting.tools),
        params={key: read_value(text) for key, text in acting.params},
        limits=Limits(**{key: value for key, value in bounds.items() if value is not None}),  # type: ignore[arg-type]
    )


def read_value(text: str) -> Json:
    """A parameter's value: JSON where it is JSON, else the text itself."""
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text


async def find_session(acting: Acting, composed: Composed) -> str | None:
    """The reference of the session to open; None is one in memory. Reads the given store and no other.

    Raises `UsageError` if there is no session to continue.
    """
    if acting.go_on and acting.session is not None:
        raise UsageError("--continue and --session name different sessions. Give one.")
    if not composed.kept:
        if acting.go_on or acting.session is not None:
            raise UsageError("Without a store there is no session to go on with. Leave out --no-log, or name --store.")
        return None
    if acting.session is not None and "#" in acting.session:
        if composed.named and acting.session.rpartition("#")[0] != composed.store:
            raise UsageError(f"--session {acting.session} names a store of its own. Leave out --store and --db.")
        return acting.session
    if acting.session == "":
        raise UsageError("--session is empty. Give it a name.")
    name = acting.session or (await last_session(composed) if acting.go_on else new_id())
    return located(composed.store, name)


async def last_session(composed: Composed) -> str:
    """The id of the store's session that was used last."""
    found = await composed.stack.sessions(composed.store).list(SessionFilter(limit=1))
    if not found:
        raise UsageError(f"There is no session to continue in {composed.store}.{absence(composed.store)}")
    return found[0].id


def absence(store: str) -> str:
    """What to add to a message about an empty store: whether its file is there at all."""
    path = file_of(store)
    return f" There is no file {path}." if path is not None and not path.exists() else ""


def located(store: str, session_id: str) -> str:
    """`REF#ID`, with the id as the kernel reads it."""
    return f"{store}#{quote(session_id, safe='')}"
