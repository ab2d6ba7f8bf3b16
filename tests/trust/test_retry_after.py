"""A provider that asks to be left alone: from the HTTP header to the second attempt, on a fake clock."""

import time
from email.utils import formatdate

import pytest
import trio
from trio.testing import MockClock

from treadle import Agent, Stack
from treadle_http.errors import error_of
from treadle_retry import Retry
from treadle_script import ScriptModel


def asked_after(headers, status):
    """When the second attempt came, in seconds of the fake clock behind the first."""
    times = []

    def refuses(request):
        times.append(trio.current_time())
        return error_of(status, headers, b"{}")

    def answers(request):
        times.append(trio.current_time())
        return "fine"

    async def main():
        agent = Agent(model=ScriptModel([refuses, answers]))
        assert (await Stack([Retry()]).run(agent, "hi")).text == "fine"

    trio.run(main, clock=MockClock(autojump_threshold=0))
    return times[1] - times[0]


@pytest.mark.parametrize("status", [429, 529])
def test_tc_053_the_second_attempt_comes_no_earlier_than_the_header_says(status):
    assert 20 <= asked_after({"retry-after": "20"}, status) < 22


@pytest.mark.parametrize("status", [429, 529])
def test_tc_053_a_date_counts_as_seconds_do(status):
    # A date has whole seconds, and the real clock went on since it was written.
    assert 18 <= asked_after({"retry-after": formatdate(time.time() + 20, usegmt=True)}, status) < 22


@pytest.mark.parametrize("status", [429, 529])
def test_tc_053_without_a_header_the_wait_grows_from_a_second(status):
    assert 0 < asked_after({}, status) <= 1.5
