"""The command `treadle`. Importing this module is light; a command loads what it needs when it runs.

Other distributions add commands through the entry-point group `treadle.commands`: `NAME = "module:click_command"`.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 ok, 1 failed, 2 usage, 3 waiting for approval, 4 budget exceeded, 130 Ctrl-C."""
    import sys

    try:
        from .app import run_and_exit

        run_and_exit(arguments)
    except KeyboardInterrupt:  # while a module was being imported, or at the very end
        sys.exit(130)
