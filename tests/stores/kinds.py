"""The kinds of stores, and places for them. A kind with a server stands in the services lane."""

import pytest

KINDS = ("memory", "jsonl", "sqlite")
ALL_KINDS = (*KINDS, pytest.param("postgres", marks=pytest.mark.services))
