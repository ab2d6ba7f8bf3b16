"""Kits and checks for those who write plugins, and for treadle's own tests.

`faults_of` reads any log and says what is wrong with it; `summary` says what a log means and `normalised` what it says,
for comparing. A `Stepper` holds each effect of a turn until the test lets it go. Kits are classes to subclass, so that
your plugin is tested as ours are; they need treadle[testing] (pytest).
"""

import sys
from typing import TYPE_CHECKING

from treadle.testing.checker import faults_of, normalised, prefix_faults, summary
from treadle.testing.stepping import Effect, Stepper

if TYPE_CHECKING:
    from treadle.testing.histories import HistoryKit
    from treadle.testing.stores import StoreKit

__all__ = [
    "Effect", "HistoryKit", "Stepper", "StoreKit", "faults_of", "normalised", "prefix_faults", "summary",
]  # fmt: skip

_KITS = {"HistoryKit": "histories", "StoreKit": "stores"}


def __getattr__(name: str) -> type:
    """Load a kit, and pytest with it, when it is asked for: the log checker needs neither."""
    if name not in _KITS:
        raise AttributeError(name)
    from importlib import import_module

    import pytest

    modules = [f"treadle.testing.{module}" for module in _KITS.values()]
    # A failing assert in a kit shows its values. One kit brings another in, so all are named before the first.
    pytest.register_assert_rewrite(*[module for module in modules if module not in sys.modules])
    kit: type = getattr(import_module(f"treadle.testing.{_KITS[name]}"), name)
    return kit
