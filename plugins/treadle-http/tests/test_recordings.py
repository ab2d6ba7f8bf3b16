"""Every recorded exchange, played over a real socket, against what a person reads in the recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import table_anthropic
import table_chat
import table_gemini
import table_responses
from wire_tables import check_failed, check_said

from treadle.plugin import ProviderError

TABLES: dict[str, Any] = {
    "openai-chat": table_chat,
    "anthropic-messages": table_anthropic,
    "openai-responses": table_responses,
    "gemini": table_gemini,
}
ALL = [f"{wire}/{name}" for wire, table in TABLES.items() for name in table.EXPECTED]


async def play(replay: Any, at: Any, ask: Any, name: str, how: str) -> None:
    wire, _, short = name.partition("/")
    table, provider = TABLES[wire], replay.by_id[name]["provider"]
    model = at(f"{replay.url}/r/{name};chunk={how}/v1", table.PROVIDERS.get(provider, provider))
    for wanted in table.EXPECTED[short]:
        try:
            check_said(wanted, await ask(model))
        except ProviderError as error:
            check_failed(wanted, error)


def largest(recordings: Path, name: str) -> int:
    exchanges = json.loads((recordings / f"{name}.json").read_text(encoding="utf-8"))["exchanges"]
    return max(len(exchange["response"]["body_text"]) for exchange in exchanges)


@pytest.mark.parametrize("wire", TABLES)
def test_each_recording_is_expected_exchange_by_exchange(wire: str, recordings: Path) -> None:
    held = {
        path.stem: len(json.loads(path.read_text(encoding="utf-8"))["exchanges"])
        for path in (recordings / wire).glob("*.json")
    }
    assert held == {name: len(exchanges) for name, exchanges in TABLES[wire].EXPECTED.items()}


@pytest.mark.parametrize("name", ALL)
async def test_a_recording_plays_as_a_person_reads_it(name: str, replay: Any, at: Any, ask: Any) -> None:
    await play(replay, at, ask, name, "all")


@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("name", ALL)
async def test_a_recording_in_random_pieces_plays_the_same(
    name: str, replay: Any, at: Any, ask: Any, anyio_backend: str
) -> None:
    await play(replay, at, ask, name, "random")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wire", TABLES)
async def test_small_recordings_in_single_bytes_play_the_same(
    wire: str, replay: Any, at: Any, ask: Any, anyio_backend: str, recordings: Path
) -> None:
    for name in ALL:
        if name.startswith(wire) and largest(recordings, name) < 1000:
            await play(replay, at, ask, name, "1")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["1", "7", "event"])
@pytest.mark.parametrize("name", ALL)
async def test_a_recording_in_single_bytes_and_in_sevens_plays_the_same(
    name: str, how: str, replay: Any, at: Any, ask: Any
) -> None:
    await play(replay, at, ask, name, how)
