"""Recorded loops as whole turns of a real stack: what the kernel sends back is what the provider once took."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import table_anthropic
import table_gemini
import table_responses

from treadle import Agent, Stack, Tool
from treadle.plugin import ProviderError, hookimpl
from treadle.plugin import Retry as Again
from treadle_http import Http, HttpSettings
from treadle_http.profiles import PROFILES


def stack(provider: str, url: str, *more: Any) -> Stack:
    profile = attrs.evolve(PROFILES[provider], base_url=url, base_env=(), key_env=(), key_required=False)
    return Stack([Http(HttpSettings(providers=(profile,))), *more])


def weather(asked: list[Any], result: str) -> Tool:
    def look(**given: Any) -> str:
        asked.append(given)
        return result

    return Tool(name="weather", description="Weather", parameters={"type": "object"}, call=look)


LOOPS = [
    ("anthropic", "anthropic-messages/anthropic-thinking-tool-loop-stream", "messages", table_anthropic.comparable),
    ("anthropic", "anthropic-messages/anthropic-tool-loop", "messages", table_anthropic.comparable),
    ("openai-responses", "openai-responses/openai-tool-loop-stream", "input", table_responses.comparable),
    ("gemini", "gemini/gemini-tool-loop-stream", "contents", table_gemini.comparable),
]


@pytest.mark.parametrize(("provider", "name", "field", "comparable"), LOOPS)
async def test_a_recorded_loop_is_a_turn_whose_second_request_was_accepted(
    provider: str, name: str, field: str, comparable: Any, replay: Any
) -> None:
    asked: list[Any] = []
    agent = Agent(model=f"{provider}:m", tools=[weather(asked, "40 C")])
    place = "Florence, Italy" if "thinking" in name else "Florence,Italy"
    result = await stack(provider, f"{replay.url}/r/{name}").run(agent, f"What's the weather in {place}?")
    assert (result.reason, len(asked), "40" in result.text) == ("completed", 1, True)
    wanted = replay.by_id[name]["exchanges"][1]["request"]["json"][field]
    sent = replay.requests[1]["json"][field]
    system = [item for item in wanted if item.get("role") == "system"]
    assert [comparable(item) for item in sent] == [comparable(item) for item in wanted if item not in system]


async def test_an_answer_that_breaks_off_is_tried_again_and_nothing_of_it_stays(replay: Any) -> None:
    class Once:
        def __init__(self) -> None:
            self.errors: list[ProviderError] = []

        @hookimpl
        def on_model_error(self, error: ProviderError) -> Again:
            self.errors.append(error)
            return Again()

    once = Once()
    stream = "anthropic-messages/anthropic-noarg-tool-multiturn-stream;only=0;cut=700"
    agent = Agent(model="anthropic:m")
    async with stack("anthropic", f"{replay.url}/r/{stream}", once).open(agent) as driver:
        result = await driver.prompt("hi")
        kinds = [event.data.kind for event in await driver.read() if event.type == "model/failed"]
    assert kinds == ["interrupted"] and len(once.errors) == 1
    assert result.text.startswith("According to the tool, **Ruby** is the best language to learn!")
    assert [message.role for message in result.messages if message.role != "user"] == ["assistant"]
