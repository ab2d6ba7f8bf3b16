"""Whole turns against servers that nobody here wrote: a real small model on three wires, and a mock on all four.

The model is llama.cpp's server with the weights of the folder `local_model`; its environment is the running one. The
mock is the command `llmock` of the npm package `@copilotkit/aimock`, on the path or named by TREADLE_LLMOCK.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from wire_tables import shared_folder

from treadle import Agent, Limits, Retry, Stack, Text, Tool, hookimpl
from treadle_http import Http, HttpSettings
from treadle_http.profiles import PROFILES

pytestmark = pytest.mark.services

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(10)
        assert running.stdout is not None
        running.stdout.close()


def answers(port: int, running: subprocess.Popen[str]) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + 60
    while time.monotonic() < end and running.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)  # the process says nothing before it listens
    pytest.fail("the server did not start")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def stack(provider: str, url: str, *more: Any, **settings: Any) -> Stack:
    profile = attrs.evolve(PROFILES[provider], base_url=url, base_env=(), key_env=(), key_required=False)
    return Stack([Http(HttpSettings(providers=(profile,), **settings)), *more])


# --- a real model -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local_model() -> Iterator[str]:
    pytest.importorskip("xllamacpp")
    script = shared_folder() / "local_model" / "serve.py"
    if not script.is_file():
        pytest.skip("the launcher of the local model is not here; TREADLE_SHARED names its folder")
    with process(sys.executable, str(script)) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert line.startswith("LISTENING "), line
        yield line.split()[1]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("provider", "path"), [("llamacpp", "/v1"), ("llamacpp-responses", "/v1"), ("llamacpp-messages", "")]
)
async def test_a_real_model_calls_a_tool_and_answers_from_its_result(
    provider: str, path: str, stream: bool, local_model: str
) -> None:
    asked: list[dict[str, Any]] = []

    def add(a: int, b: int) -> str:
        asked.append({"a": a, "b": b})
        return str(a + b)

    tool = Tool(name="add", description="Add two integers", parameters=ADD, call=add)
    params = {"temperature": 0, "max_tokens": 80}
    agent = Agent(model=f"{provider}:local", tools=[tool], params=params, limits=Limits(max_steps=4))
    # llama.cpp may close an idle connection as the next request arrives; asking again is what treadle-retry is for.
    from treadle_retry import Retry as Retries  # here, since this member's other tests run without it

    served = stack(provider, local_model + path, Retries(), stream=stream)
    result = await served.run(agent, "What is 17 plus 25?")
    assert (result.reason, result.detail, asked) == ("completed", "", [{"a": 17, "b": 25}])
    assert "42" in result.text
    assert result.usage.input + result.usage.cache_read > 100 and result.usage.output > 10


# --- a mock of all four --------------------------------------------------------------------------------------

FIXTURES = {
    "fixtures": [
        {
            "match": {"userMessage": "weather", "hasToolResult": False},
            "response": {
                "content": "Let me look.",
                "toolCalls": [
                    {"name": "weather", "arguments": '{"city":"Berlin"}'},
                    {"name": "weather", "arguments": '{"city":"Paris"}'},
                ],
            },
        },
        {"match": {"userMessage": "weather", "hasToolResult": True}, "response": {"content": "Rain, then sun. ☀"}},
        {"match": {"userMessage": "refuse"}, "response": {"error": {"message": "No."}, "status": 400}},
    ]
}
MOCKED = [("openai", "/v1"), ("openai-responses", "/v1"), ("anthropic", ""), ("gemini", "")]


def mock(folder: Path, *more: str) -> Any:
    command = os.environ.get("TREADLE_LLMOCK") or shutil.which("llmock")
    if command is None:
        pytest.skip("llmock of @copilotkit/aimock is not on the path; TREADLE_LLMOCK may name it")
    file = folder / "fixtures.json"
    file.write_text(json.dumps(FIXTURES), encoding="utf-8")
    port = free_port()

    @contextmanager
    def running() -> Iterator[str]:
        given = ("--port", str(port), "--fixtures", str(file), "--log-level", "silent", "--chunk-size", "5", *more)
        with process(command, *given) as server:
            answers(port, server)
            yield f"http://127.0.0.1:{port}"

    return running()


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mock(tmp_path_factory.mktemp("aimock")) as url:
        yield url


def weather(asked: list[str]) -> Tool:
    def look(city: str) -> str:
        asked.append(city)
        return f"weather of {city}"

    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return Tool(name="weather", description="Weather of a city", parameters=schema, call=look)


class Again:
    """Tries every failure again."""

    @hookimpl
    def on_model_error(self) -> Retry:
        return Retry()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("provider", "path"), MOCKED)
async def test_a_loop_with_two_calls_against_a_mock_of_each_provider(
    provider: str, path: str, stream: bool, aimock: str
) -> None:
    asked: list[str] = []
    agent = Agent(model=f"{provider}:gpt-4o", tools=[weather(asked)])
    result = await stack(provider, aimock + path, stream=stream).run(agent, "How is the weather?")
    assert (result.reason, sorted(asked)) == ("completed", ["Berlin", "Paris"])
    assert result.text == "Rain, then sun. ☀"
    said = [message for message in result.messages if message.role == "assistant"]
    assert [len(message.calls) for message in said] == [2, 0]


@pytest.mark.parametrize(("provider", "path"), MOCKED)
async def test_a_refusal_of_a_mock_is_a_failed_turn_with_its_words(provider: str, path: str, aimock: str) -> None:
    result = await stack(provider, aimock + path).run(Agent(model=f"{provider}:gpt-4o"), "refuse this")
    assert result.reason == "failed" and "No." in result.detail


CHAOS = {
    "--chaos-drop": ("server",),
    "--chaos-malformed": ("server", "interrupted"),
    "--chaos-disconnect": ("interrupted",),
    "--chaos-ratelimit": ("rate_limit",),
}


@pytest.mark.parametrize("fault", CHAOS)
async def test_each_fault_of_a_mock_has_its_kind_on_every_wire(fault: str, tmp_path: Path) -> None:
    with mock(tmp_path, fault, "1") as url:
        for provider, path in MOCKED:
            agent = Agent(model=f"{provider}:gpt-4o", limits=Limits(max_attempts=2))
            async with stack(provider, url + path, Again()).open(agent) as driver:
                result = await driver.prompt("How is the weather?")
                failed = [event.data for event in await driver.read() if event.type == "model/failed"]
            assert result.reason == "failed"
            assert [(each.action, each.kind in CHAOS[fault]) for each in failed] == [("retry", True), ("stop", True)]


@pytest.mark.parametrize(("provider", "path"), MOCKED)
async def test_a_loop_gets_through_a_mock_that_fails_half_of_the_time(provider: str, path: str, tmp_path: Path) -> None:
    asked: list[str] = []
    faults = [piece for fault in CHAOS for piece in (fault, "0.15")]
    with mock(tmp_path, *faults) as url:
        agent = Agent(model=f"{provider}:gpt-4o", tools=[weather(asked)], limits=Limits(max_attempts=40))
        result = await stack(provider, url + path, Again()).run(agent, "How is the weather?")
    assert (result.reason, result.text, sorted(asked)) == ("completed", "Rain, then sun. ☀", ["Berlin", "Paris"])
    assert all(isinstance(part, Text) for part in result.messages[-1].parts)
