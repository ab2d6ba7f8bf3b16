"""Whole turns on a real stack, with models that play a script."""

from __future__ import annotations

from typing import Any

import pytest

from treadle import Agent, Limits, Stack, Tool, hookimpl
from treadle.plugin import Model, ProviderError
from treadle_retry import Retry, RetrySettings
from treadle_script import ScriptModel, call

FAST = RetrySettings(first_seconds=0)


class Models:
    """Opens models that play a script, by their references."""

    def __init__(self, **models: ScriptModel) -> None:
        self.models = {f"play:{name}": model for name, model in models.items()}

    @hookimpl
    def open_model(self, ref: str) -> Model | None:
        return self.models.get(ref)


def broken(kind: Any = "overloaded", **more: Any) -> ProviderError:
    return ProviderError(kind, "busy", **more)


def fallback(*refs: str, **settings: Any) -> Retry:
    return Retry(RetrySettings(first_seconds=0, fallbacks={"play:first": refs}, **settings))


async def events_of(driver: Any, *kinds: str) -> list[Any]:
    return [event for event in await driver.read() if event.type.startswith(kinds)]


async def test_a_call_that_fails_in_passing_is_tried_again_and_each_attempt_is_logged() -> None:
    model = ScriptModel([broken(), broken("interrupted"), "fine"])
    async with Stack([Retry(FAST)]).open(Agent(model=model)) as driver:
        result = await driver.prompt("hi")
        failed = [(e.data.attempt, e.data.kind, e.data.action) for e in await events_of(driver, "model/failed")]
    assert result.text == "fine"
    assert failed == [(1, "overloaded", "retry"), (2, "interrupted", "retry")]


@pytest.mark.parametrize("kind", ["quota", "bad_request", "auth"])
async def test_what_stays_wrong_ends_the_turn_at_the_first_failure(kind: str) -> None:
    model = ScriptModel([broken(kind), "never"])
    result = await Stack([Retry(FAST)]).run(Agent(model=model), "hi")
    assert (result.reason, len(model.asked)) == ("failed", 1)


async def test_the_wait_that_the_provider_asks_for_is_logged() -> None:
    model = ScriptModel([broken("rate_limit", retry_after_seconds=0.01), "fine"])
    async with Stack([Retry(RetrySettings(jitter=0))]).open(Agent(model=model)) as driver:
        await driver.prompt("hi")
        (failed,) = await events_of(driver, "model/failed")
    assert failed.data.after_seconds == 0.01


async def test_failures_are_counted_anew_in_each_step() -> None:
    model = ScriptModel([broken("tool_use_failed"), call("add"), broken("tool_use_failed"), "fine"])
    add = Tool(name="add", call=lambda: "3")
    result = await Stack([Retry(FAST)]).run(Agent(model=model, tools=[add]), "hi")
    assert result.text == "fine"


async def test_a_second_slip_of_the_model_in_one_step_ends_the_turn() -> None:
    model = ScriptModel([broken("tool_use_failed"), broken("tool_use_failed"), "never"])
    result = await Stack([Retry(FAST)]).run(Agent(model=model), "hi")
    assert (result.reason, len(model.asked)) == ("failed", 2)


async def test_the_agents_limit_of_attempts_counts() -> None:
    model = ScriptModel([broken()], last=True)
    result = await Stack([Retry(FAST)]).run(Agent(model=model, limits=Limits(max_attempts=3)), "hi")
    assert (result.reason, len(model.asked)) == ("failed", 3)


async def test_another_model_answers_when_the_first_stays_away_and_the_log_says_so() -> None:
    first, second = ScriptModel([broken()], last=True), ScriptModel(["from the second"])
    stack = Stack([Models(first=first, second=second), fallback("play:second")])
    async with stack.open(Agent(model="play:first")) as driver:
        result = await driver.prompt("hi")
        notes = [event.data.value for event in await events_of(driver, "retry/")]
    assert (result.text, len(first.asked), len(second.asked)) == ("from the second", 2, 1)
    assert notes == [{"from": "play:first", "to": "play:second", "kind": "overloaded"}]


async def test_another_model_answers_to_the_end_of_the_turn_and_the_next_begins_with_the_first() -> None:
    first = ScriptModel([broken("quota"), "from the first"])
    second = ScriptModel([call("add"), "from the second"])
    add = Tool(name="add", call=lambda: "3")
    stack = Stack([Models(first=first, second=second), fallback("play:second")])
    async with stack.open(Agent(model="play:first", tools=[add])) as driver:
        assert (await driver.prompt("hi")).text == "from the second"
        assert len(first.asked) == 1
        assert (await driver.prompt("again")).text == "from the first"


async def test_models_are_asked_in_their_order_until_none_is_left() -> None:
    first, second, third = (ScriptModel([broken("quota")], last=True) for _ in range(3))
    stack = Stack([Models(first=first, second=second, third=third), fallback("play:second", "play:third")])
    async with stack.open(Agent(model="play:first")) as driver:
        result = await driver.prompt("hi")
        notes = [(event.data.value["from"], event.data.value["to"]) for event in await events_of(driver, "retry/")]
    assert result.reason == "failed"
    assert notes == [("play:first", "play:second"), ("play:second", "play:third")]


async def test_another_model_is_asked_the_same_without_the_first_models_own_parameters() -> None:
    first, second = ScriptModel([broken("quota")]), ScriptModel(["fine"])
    stack = Stack([Models(first=first, second=second), fallback("play:second")])
    params = {"max_tokens": 5, "reasoning": {"effort": "low"}}
    await stack.run(Agent(model="play:first", instructions="Be brief.", params=params), "hi")
    (asked,) = second.asked
    assert [message.text for message in asked.messages] == ["hi"]
    assert asked.request.instructions[0].text == "Be brief."
    assert dict(asked.request.params) == {"max_tokens": 5}


async def test_words_of_another_model_reach_those_who_watch() -> None:
    first, second = ScriptModel([broken("quota")]), ScriptModel(["from the second"])
    stack = Stack([Models(first=first, second=second), fallback("play:second")])
    seen: list[str] = []
    async with stack.stream(Agent(model="play:first"), "hi") as stream:
        async for text in stream.text():
            seen.append(text)
    assert "".join(seen) == "from the second"


async def test_a_stream_of_another_model_that_breaks_off_is_a_failure_like_any() -> None:
    first, second = ScriptModel([broken("quota")]), ScriptModel([[], "fine"])
    stack = Stack([Models(first=first, second=second), fallback("play:second")])
    async with stack.open(Agent(model="play:first")) as driver:
        result = await driver.prompt("hi")
        kinds = [event.data.kind for event in await events_of(driver, "model/failed")]
    assert (result.text, kinds) == ("fine", ["quota", "interrupted"])


async def test_a_fallback_for_every_model_is_written_with_a_star() -> None:
    first, second = ScriptModel([broken("quota")]), ScriptModel(["fine"])
    retry = Retry(RetrySettings(fallbacks={"*": ("play:second",)}))
    result = await Stack([Models(first=first, second=second), retry]).run(Agent(model="play:first"), "hi")
    assert result.text == "fine"


def test_the_plugin_is_named_like_its_entry_point_and_acts_only_where_it_is_named() -> None:
    assert Stack([Retry()]).plugins == ("retry",) and Retry.ambient is True
