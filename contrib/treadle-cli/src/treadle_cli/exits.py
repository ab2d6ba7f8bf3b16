"""Exit codes, and leaving the process with them."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

OK, FAILED, USAGE, WAITING, BUDGET = 0, 1, 2, 3, 4
"""Exit codes. After a signal it is 128 and the signal's number, as in a shell: 130 after Ctrl-C."""


def leave(code: int) -> NoReturn:
    """Exit now, even if a tool's body that was left behind still holds a thread; all logs are closed by then."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):
        code = code or FAILED
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    me = threading.current_thread()
    if any(thread is not me and not thread.daemon and thread.is_alive() for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)
