"""The workspace as the house tests see it."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded(path):
    """A script of this repository as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


RUN = loaded(ROOT / "tests" / "run.py")


def pytest_generate_tests(metafunc):
    """A test that takes a `member` runs once for each distribution of the workspace."""
    if "member" in metafunc.fixturenames:
        metafunc.parametrize("member", RUN.members(), ids=lambda member: member.name)


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def run():
    """The test command's own module."""
    return RUN


@pytest.fixture(scope="session")
def members():
    return RUN.members()
