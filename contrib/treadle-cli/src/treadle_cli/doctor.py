"""`treadle doctor`: what is broken, and what to do. It loads no plugin itself, so it works when all are broken."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import attrs

from treadle.discovery import nearest_config, read_config
from treadle.plugin import Json, TreadleError

from .inventory import COMMANDS, PLUGINS, STACKS, Declared, conflicts, declared
from .screen import Screen

PROBE_SECONDS = 60
"""How long a plugin may take to load before it counts as broken."""

SIDE_BY_SIDE = 4
"""How many plugins load at once."""

OWN_VARIABLES = frozenset({"TREADLE_PLUGINS", "TREADLE_MODEL", "TREADLE_HOME"})


@attrs.frozen(kw_only=True)
class Report:
    """What was found. `faults` break something; `notes` may be meant so."""

    versions: Mapping[str, str]
    config: str
    plugins: tuple[Mapping[str, Json], ...]
    order: Mapping[str, tuple[str, ...]]
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def examine(screen: Screen, *, config: Path | None, stack: str | None) -> int:
    """Look, print, and return the exit code: 1 if something is broken."""
    report = look(config=config, stack=stack)
    if screen.form == "json":
        screen.document(attrs.asdict(report))
    else:
        screen.out.write("\n".join(lines(report, screen)) + "\n")
    return 1 if report.faults else 0


def look(*, config: Path | None, stack: str | None) -> Report:
    """Look at everything that is installed. Each plugin is loaded in a process of its own."""
    path = config or nearest_config(Path.cwd())
    faults = [fault for group in (PLUGINS, STACKS, COMMANDS) for fault in conflicts(group)]
    table: Mapping[str, Json] = {}
    try:
        table = read_config(path) if path is not None else {}
    except TreadleError as error:
        faults.append(f"{error}")
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:  # each waits for a process of its own
        whole = pool.submit(_probe, "stack", {"stack": stack, "config": str(path) if path is not None else None})
        rows = list(pool.map(lambda each: _examined(each, table.get("plugins", {}).get(each.name, {})), declared()))
    faults += [f'plugin "{row["name"]}" ({row["origin"]}): {fault}' for row in rows for fault in row["faults"]]
    faults += _unknown(table)
    # What is broken by itself was said above, with its own name; this says only what goes wrong together.
    if not faults:
        faults += whole.result()["faults"]
    return Report(
        versions={"treadle": version("treadle"), "python": platform.python_version()},
        config=str(path or ""),
        plugins=tuple(rows),
        order={hook: tuple(names) for hook, names in whole.result().get("order", {}).items() if len(names) > 1},
        faults=tuple(faults),
        notes=tuple(_unused_variables()),
    )


def _examined(each: Declared, settings: Mapping[str, Json]) -> dict[str, Json]:
    answer = _probe("plugin", {**attrs.asdict(each), "settings": settings})
    return {"name": each.name, "version": each.version, "origin": each.origin, "faults": answer["faults"]}


def _probe(what: str, asked: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a process of its own says; its end without a word is a fault too."""
    command = [sys.executable, "-m", "treadle_cli.probe", what, json.dumps(asked)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL, errors="replace"
        )
        answer: Mapping[str, Json] = json.loads(done.stdout)
        return answer
    except subprocess.TimeoutExpired:
        return {"faults": [f"it did not load within {PROBE_SECONDS} s"]}
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"faults": [f"its process ended with code {done.returncode}: {last}"]}


def _unknown(table: Mapping[str, Json]) -> Iterator[str]:
    """Settings in the file for plugins that are not there."""
    names = {each.name for each in declared()}
    for name in table.get("plugins", {}):
        if name not in names:
            yield f'the file has settings for the plugin "{name}", which is not installed: pip install treadle-{name}'


def _unused_variables() -> Iterator[str]:
    """Variables that look like settings and belong to no plugin, so that a misspelt one is seen."""
    prefixes = tuple(f"TREADLE_{each.name.upper().replace('-', '_')}_" for each in declared())
    for name in sorted(os.environ):
        if name.startswith("TREADLE_") and name not in OWN_VARIABLES and not name.startswith(prefixes):
            yield f"the variable {name} sets nothing: no installed plugin has that name"


def lines(report: Report, screen: Screen) -> Iterator[str]:
    """The report as people read it."""
    from .ink import Ink, wants_colour

    ink = Ink(wants_colour(screen.out))
    yield "  ".join(f"{name} {number}" for name, number in report.versions.items())
    yield f"settings file: {report.config or 'none'}"
    for row in report.plugins:
        state = ink.bad("broken") if row["faults"] else ink.good("ok")
        yield f"{state}  {row['name']}  ({row['origin']})"
    if report.order:
        yield "order of plugins that share a hook:"
        for hook, names in report.order.items():
            yield f"  {hook}: {', then '.join(names)}"
    for note in report.notes:
        yield f"{ink.asks('note')}: {note}"
    for fault in report.faults:
        yield f"{ink.bad('fault')}: {fault}"
    count = len(report.faults)
    yield ink.good("Nothing is broken.") if not count else ink.bad(f"{count} fault{'s' if count > 1 else ''}.")
