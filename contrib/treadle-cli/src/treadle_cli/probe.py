"""Loads plugins in a process of its own, for `treadle doctor`, and says how that went as one line of JSON.

    python -m treadle_cli.probe plugin '{"name": ..., "value": ..., "distribution": ..., "version": ..., "config": ...}'
    python -m treadle_cli.probe stack '{"stack": ..., "config": ...}'

What the plugin itself prints is kept apart: the answer goes to what was stdout when the process began.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from treadle.plugin import Json


def main() -> None:
    """Answer one question."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a plugin that prints while it is imported must not spoil the answer
    asked: Mapping[str, Json] = json.loads(sys.argv[2])
    try:
        said = probe_plugin(asked) if sys.argv[1] == "plugin" else probe_stack(asked)
    except BaseException as error:  # whatever a plugin does, SystemExit included
        said = {"faults": [f"{type(error).__name__}: {error}"]}
    json.dump(said, answer)
    answer.close()


def probe_plugin(asked: Mapping[str, Json]) -> dict[str, Json]:
    """Import one plugin, make it with its settings, and compose it alone."""
    from treadle import Stack
    from treadle.discovery import Found, make
    from treadle.settings import Source

    names = ("name", "value", "distribution", "version")
    found = Found(**{name: asked[name] for name in names})
    loaded = make(found, [Source("file", asked["settings"])], os.environ)
    if loaded.requires:  # composing it alone would only say what it needs
        return {"faults": [], "requires": list(loaded.requires)}
    Stack([loaded.plugin])
    return {"faults": [], "requires": []}


def probe_stack(asked: Mapping[str, Json]) -> dict[str, Json]:
    """Compose what a command would, and say in which order hooks are called."""
    from treadle import Stack

    config = Path(asked["config"]) if asked["config"] else None
    stack = Stack.discover(stack=asked["stack"], config=config)
    order = {hook: [row.plugin for row in rows] for hook, rows in stack.host.rows.items() if rows}
    return {"faults": list(stack.broken), "plugins": list(stack.plugins), "order": order}


if __name__ == "__main__":
    main()
