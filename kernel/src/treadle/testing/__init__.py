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
    from treadle.testing.stores import StoreKit

__all__ = ["Effect", "Stepper", "StoreKit", "faults_of", "normalised", "prefix_faults", "summary"]


def __getattr__(name: str) -> type:
    """Load a kit, and pytest with it, when it is asked for: the log checker needs neither."""
    if name != "StoreKit":
        raise AttributeError(name)
    import pytest

    # A failing assert in a kit shows its values. Too late, and a warning, if the module was imported by its own name.
    if "treadle.testing.stores" not in sys.modules:
        pytest.register_assert_rewrite("treadle.testing.stores")
    from treadle.testing.stores import StoreKit

    return StoreKit
