"""Conformance kits: subclass one and your plugin is tested as ours are. Needs treadle[testing]."""

import pytest

# Before the kits are imported, so that a failing assert in one shows its values, as it does in a test file.
pytest.register_assert_rewrite("treadle.testing.stores")

from .stores import StoreKit  # noqa: E402 - see above

__all__ = ["StoreKit"]
