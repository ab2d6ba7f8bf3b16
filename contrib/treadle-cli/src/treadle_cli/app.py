"""The program: runs the commands and exits the process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from .commands import treadle
from .exits import FAILED, OK, leave


def run_and_exit(arguments: Sequence[str] | None) -> NoReturn:
    """Run and exit the process, with what was written flushed."""
    for stream in (sys.stdout, sys.stderr):
        # What a model writes may hold lone surrogates, and a terminal may not be able to show all of Unicode.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        treadle.main(args=None if arguments is None else list(arguments), prog_name="treadle")
    except SystemExit as exit:
        leave(exit.code if isinstance(exit.code, int) else FAILED if exit.code else OK)
    leave(OK)
