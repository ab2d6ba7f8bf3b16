"""The workspace as the house tests see it."""

import pytest
import run as command


def pytest_generate_tests(metafunc):
    """A test that takes a `member` runs once for each distribution of the workspace."""
    if "member" in metafunc.fixturenames:
        metafunc.parametrize("member", command.members(), ids=lambda member: member.name)


@pytest.fixture(scope="session")
def root():
    return command.ROOT


@pytest.fixture(scope="session")
def run():
    """The test command's own module."""
    return command


@pytest.fixture(scope="session")
def members():
    return command.members()
