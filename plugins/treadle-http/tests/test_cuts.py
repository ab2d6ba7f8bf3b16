"""Recorded streams, cut off: what is half never passes for whole, and what had arrived is kept.

The oracle reads the events before the cut on its own, with a few lines of JSON and nothing of the plugin.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import table_anthropic
import table_chat
import table_gemini
import table_responses

from treadle.plugin import Assembly, Call, ProviderError, Reply, Text
from treadle_http.sse import EventReader

TABLES: dict[str, Any] = {
    "openai-chat": table_chat,
    "anthropic-messages": table_anthropic,
    "openai-responses": table_responses,
    "gemini": table_gemini,
}


def bodies(recordings: Path, wire: str) -> list[tuple[str, bytes]]:
    out = []
    for path in sorted((recordings / wire).glob("*.json")):
        for number, exchange in enumerate(json.loads(path.read_text(encoding="utf-8"))["exchanges"]):
            if "event-stream" in exchange["response"]["headers"].get("content-type", ""):
                out.append((f"{path.stem}/{number}", exchange["response"]["body_text"].encode()))
    return out


def events_of(body: bytes) -> list[bytes]:
    """The stream in pieces that each end with an event."""
    return [found.group() for found in re.finditer(rb".*?(?:\r?\n\r?\n|\Z)", body, re.S) if found.group()]


def read(wire: str, pieces: list[bytes], why: str = "") -> Reply | ProviderError:
    """What the reader makes of the pieces, without a socket."""
    table = TABLES[wire]
    events, reader, assembly = EventReader(10_000_000), table.WIRE.reader(table.PROFILE), Assembly()
    try:
        for event in [event for piece in pieces for event in events.feed(piece)] + events.end():
            if not reader.done:
                for part in reader.event(event):
                    assembly.feed(part)
        for part in reader.end(why):
            assembly.feed(part)
    except ProviderError as error:
        return error
    reply = assembly.reply()
    assert reply is not None
    return reply


def check(wire: str, name: str, before: bytes, outcome: Reply | ProviderError) -> None:
    seen = TABLES[wire].Seen(before)
    if seen.failed:
        assert isinstance(outcome, ProviderError) and outcome.kind != "interrupted"
        return
    if seen.whole:
        assert isinstance(outcome, Reply), name
        parts = outcome.parts
    else:
        assert isinstance(outcome, ProviderError), f"{name}: a half answer passed for whole"
        assert outcome.kind == "interrupted"
        parts = outcome.partial
    assert "".join(part.text for part in parts if isinstance(part, Text)) == seen.text
    assert bool([part for part in parts if isinstance(part, Call)]) == bool(seen.calls)


@pytest.mark.parametrize("wire", TABLES)
def test_a_stream_cut_between_any_two_events_is_judged_right(wire: str, recordings: Path) -> None:
    cuts = 0
    for name, body in bodies(recordings, wire):
        pieces = events_of(body)
        for count in range(len(pieces)):
            check(wire, name, b"".join(pieces[:count]), read(wire, pieces[:count]))
            cuts += 1
    assert cuts > 50


@pytest.mark.parametrize("wire", TABLES)
def test_a_stream_cut_inside_an_event_loses_only_that_event(wire: str, recordings: Path) -> None:
    for name, body in bodies(recordings, wire):
        pieces = events_of(body)
        for count in range(0, len(pieces), 3):
            half = pieces[count][: len(pieces[count]) // 2]
            check(wire, name, b"".join(pieces[:count]), read(wire, [*pieces[:count], half]))


@pytest.mark.parametrize("wire", TABLES)
def test_single_bytes_give_what_the_whole_stream_gives(wire: str, recordings: Path) -> None:
    for name, body in bodies(recordings, wire):
        whole, split = read(wire, [body]), read(wire, [body[at : at + 1] for at in range(len(body))])
        if isinstance(whole, ProviderError):
            assert isinstance(split, ProviderError) and (split.kind, split.partial) == (whole.kind, whole.partial)
        else:
            assert split == whole, name


PROVIDER = {
    "openai-chat": "",
    "anthropic-messages": "anthropic",
    "openai-responses": "openai-responses",
    "gemini": "gemini",
}
STREAMS = [
    ("openai-chat/openai-text-stream", 0),
    ("openai-chat/openai-tool-loop-stream", 0),
    ("openai-chat/openai-parallel-tools-loop-stream", 0),
    ("openai-chat/perplexity-crlf-no-done", 0),
    ("openai-chat/openrouter-novita-tool-id-repeated", 0),
    ("openai-chat/openrouter-reasoning-details-stream", 0),
    ("openai-chat/mistral-tools-multiturn-stream", 0),
    ("openai-chat/groq-midstream-error", 0),
    ("anthropic-messages/anthropic-text-stream", 0),
    ("anthropic-messages/anthropic-thinking-tool-loop-stream", 0),
    ("anthropic-messages/anthropic-midstream-error-in-tool", 0),
    ("openai-responses/openai-phase-stream-loop", 0),
    ("openai-responses/openrouter-raw-cot-interleaved", 0),
    ("openai-responses/openai-midstream-error", 0),
    ("gemini/gemini3-parallel-tools-loop-stream", 0),
    ("gemini/gemini-partial-args-stream", 0),
]


@pytest.mark.parametrize("reset", ["", ";reset=1"], ids=["fin", "rst"])
@pytest.mark.parametrize(("name", "number"), STREAMS)
async def test_a_connection_cut_at_any_tenth_of_a_stream_is_judged_right(
    name: str, number: int, reset: str, replay: Any, at: Any, ask: Any
) -> None:
    body = replay.by_id[name]["exchanges"][number]["response"]["body_text"].encode()
    wire = name.partition("/")[0]
    provider = PROVIDER[wire]
    pieces = events_of(body)
    for tenth in range(10):
        before = b"".join(pieces[: len(pieces) * tenth // 10])
        replay.reset()
        if not before:
            continue
        model = at(f"{replay.url}/r/{name};cut={len(before)}{reset}/v1", provider)
        try:
            outcome: Reply | ProviderError = await ask(model)
        except ProviderError as error:
            outcome = error
        if reset and isinstance(outcome, ProviderError) and outcome.kind == "interrupted":
            continue  # a reset may take bytes with it that were on their way
        check(wire, name, before, outcome)


async def test_a_whole_answer_cut_short_is_an_interrupted_error(replay: Any, at: Any, ask: Any) -> None:
    model = at(f"{replay.url}/r/openai-chat/openai-tool-loop;cut=300/v1")
    with pytest.raises(ProviderError, match="interrupted"):
        await ask(model)


@pytest.mark.slow
@pytest.mark.parametrize("wire", TABLES)
async def test_a_connection_cut_after_any_event_of_any_recording_is_judged_right(
    wire: str, replay: Any, at: Any, ask: Any, recordings: Path
) -> None:
    for name, body in bodies(recordings, wire):
        recording, _, number = name.partition("/")
        pieces = events_of(body)
        for count in range(1, len(pieces)):
            before = b"".join(pieces[:count])
            replay.reset()
            address = f"{replay.url}/r/{wire}/{recording};only={number};cut={len(before)}/v1"
            model = at(address, PROVIDER[wire])
            for _ in range(int(number)):
                await given(ask, model)
            check(wire, name, before, await given(ask, model))


async def given(ask: Any, model: Any) -> Reply | ProviderError:
    try:
        reply: Reply = await ask(model)
    except ProviderError as error:
        return error
    return reply
