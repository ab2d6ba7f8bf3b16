from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.plugin import ProviderError
from treadle_retry import Progress, RetrySettings, Verdict, decide

EXACT = RetrySettings(first_seconds=1, max_seconds=60, budget_seconds=1000, jitter=0)
KINDS = [
    "auth", "not_found", "context_overflow", "bad_request", "rate_limit", "quota", "overloaded", "server",
    "tool_use_failed", "interrupted", "timeout", "cancelled",
]  # fmt: skip


def after(failures: int, **more: Any) -> Progress:
    return Progress(failures=failures, **more)


def broken(kind: Any = "overloaded", hint: float | None = None) -> ProviderError:
    return ProviderError(kind, "busy", retry_after_seconds=hint)


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "server", "interrupted", "timeout"])
def test_what_passes_by_itself_is_tried_again(kind: str) -> None:
    assert decide(broken(kind), after(1), EXACT, 0, 0) == Verdict(after_seconds=1.0)


@pytest.mark.parametrize("kind", ["auth", "not_found", "context_overflow", "bad_request", "quota", "cancelled"])
@pytest.mark.parametrize("hint", [None, 1.0])
def test_what_stays_wrong_is_not_tried_again_whatever_the_hint(kind: str, hint: float | None) -> None:
    assert decide(broken(kind, hint), after(1), EXACT, 0, 0) is None


def test_a_call_that_the_model_got_wrong_is_tried_again_once() -> None:
    assert decide(broken("tool_use_failed"), after(1, slips=1), EXACT, 0, 0) is not None
    assert decide(broken("tool_use_failed"), after(2, slips=2), EXACT, 0, 0) is None


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (5000, 60)])
def test_the_wait_doubles_up_to_the_longest(failures: int, seconds: float) -> None:
    assert decide(broken(), after(failures), EXACT, 0, 0) == Verdict(after_seconds=seconds)


def test_a_hint_counts_more_than_the_doubling() -> None:
    assert decide(broken(hint=34.4), after(1), EXACT, 0, 0) == Verdict(after_seconds=34.4)
    assert decide(broken(hint=0.0), after(5), EXACT, 0, 0) == Verdict(after_seconds=0.0)


def test_a_hint_beyond_the_longest_wait_is_not_waited_for() -> None:
    assert decide(broken(hint=61.0), after(1), EXACT, 0, 0) is None


def test_waits_beyond_the_budget_end_the_trying() -> None:
    settings = RetrySettings(first_seconds=1, jitter=0, budget_seconds=10)
    assert decide(broken(), after(3, waited_seconds=6.0), settings, 0, 0) == Verdict(after_seconds=4.0)
    assert decide(broken(), after(3, waited_seconds=6.1), settings, 0, 0) is None


def test_another_model_is_asked_after_so_many_failures_and_without_a_wait() -> None:
    assert decide(broken(hint=5.0), after(1), EXACT, 1, 0) == Verdict(after_seconds=5.0)
    assert decide(broken(hint=5.0), after(2), EXACT, 1, 0) == Verdict(after_seconds=0.0, moves=True)


def test_another_model_is_asked_at_once_if_the_quota_is_spent_or_the_wait_too_long() -> None:
    assert decide(broken("quota"), after(1), EXACT, 1, 0) == Verdict(after_seconds=0.0, moves=True)
    assert decide(broken(hint=600.0), after(1), EXACT, 1, 0) == Verdict(after_seconds=0.0, moves=True)


@pytest.mark.parametrize("kind", ["auth", "not_found", "context_overflow", "bad_request", "cancelled"])
def test_another_model_does_not_hide_what_is_wrong_here(kind: str) -> None:
    assert decide(broken(kind), after(9), EXACT, 1, 0) is None


@given(
    kind=st.sampled_from(KINDS),
    hint=st.none() | st.floats(0, 1e6),
    failures=st.integers(1, 10_000),
    waited=st.floats(0, 1e4),
    first=st.floats(0, 100),
    longest=st.floats(0, 1000),
    jitter=st.floats(0, 1),
    others=st.integers(0, 2),
    chance=st.floats(0, 1),
)
def test_no_wait_is_shorter_than_its_hint_or_longer_than_allowed(
    kind: Any, hint: Any, failures: int, waited: float, first: float, longest: float, jitter: float, others: int,
    chance: float,
) -> None:  # fmt: skip
    settings = RetrySettings(first_seconds=first, max_seconds=longest, jitter=jitter)
    progress = after(failures, slips=int(kind == "tool_use_failed"), waited_seconds=waited)
    verdict = decide(broken(kind, hint), progress, settings, others, chance)
    if verdict is None or verdict.moves:
        return
    seconds = verdict.after_seconds
    assert math.isfinite(seconds) and waited + seconds <= settings.budget_seconds
    if hint is None:
        assert 0 <= seconds <= longest
    else:
        assert hint <= seconds <= hint + first


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_seconds": -1}, {"max_seconds": math.nan}, {"budget_seconds": -0.1}, {"jitter": 1.5},
        {"fallback_failures": 0}, {"fallbacks": {"a:b": [1]}}, {"fallbacks": {"a:b": [""]}},
    ],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"a:b" if "fallbacks" in wrong else next(iter(wrong))):
        RetrySettings(**wrong)


def test_fallbacks_of_a_settings_file_are_lists_or_one_text() -> None:
    settings = RetrySettings(fallbacks={"a:b": ["c:d", "e:f"], "*": "g:h"})  # type: ignore[dict-item]
    assert settings.fallbacks == {"a:b": ("c:d", "e:f"), "*": ("g:h",)}
