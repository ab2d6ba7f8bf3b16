"""How fast answers are read, beside the least that anybody could do with the same bytes. Printed, not asserted.

The server is a process of its own. Written event by event: this plugin against httpx that only iterates over the
bytes (aim: at most 1.5 times). All in one body: against splitting it and `json.loads` (aim: at most 2.5 times).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import table_anthropic
import table_chat
import table_gemini
import table_responses

from treadle.plugin import Request, as_message
from treadle_http.sse import EventReader

pytestmark = pytest.mark.slow
EVENTS = 3000
SERVER = """
import pathlib, socketserver, sys
from http.server import BaseHTTPRequestHandler
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *given): pass
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        _, how, wire, *_ = self.path.split("/")
        body = (pathlib.Path(sys.argv[1]) / wire).read_bytes()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in [e + b"\\n\\n" for e in body.split(b"\\n\\n") if e] if how == "each" else [body]:
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\\r\\n\\r\\n")
with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""
WIRES: dict[str, Any] = {
    "openai": table_chat.WIRE,
    "anthropic": table_anthropic.WIRE,
    "openai-responses": table_responses.WIRE,
    "gemini": table_gemini.WIRE,
}


def events(wire: str) -> list[Any]:
    """An answer of many words, as each wire writes it."""
    words = [f"word {n} " for n in range(EVENTS)]
    if wire == "openai":
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        deltas = [{**chunk, "choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
        return [*deltas, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    if wire == "anthropic":
        start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        kind = "content_block_delta"
        deltas = [{"type": kind, "index": 0, "delta": {"type": "text_delta", "text": word}} for word in words]
        return [
            start,
            *deltas,
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ]
    if wire == "openai-responses":
        item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "".join(words)}]}
        same = {
            "type": "response.output_text.delta",
            "item_id": "m",
            "output_index": 0,
            "content_index": 0,
            "logprobs": [],
        }
        start = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}}
        end = {"type": "response.completed", "response": {"status": "completed", "output": [item]}}
        return [start, *({**same, "delta": word, "sequence_number": n} for n, word in enumerate(words)), end]
    same = {"modelVersion": "m", "responseId": "r", "usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4}}
    parts = [{"candidates": [{"content": {"parts": [{"text": word}], "role": "model"}}], **same} for word in words]
    return [*parts, {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}], **same}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("speed")
    for wire in WIRES:
        (folder / wire).write_bytes(b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events(wire)))
    with subprocess.Popen([sys.executable, "-c", SERVER, str(folder)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield folder, f"http://127.0.0.1:{running.stdout.readline().strip()}"
        running.terminate()


async def best(run: Callable[[], Awaitable[object]], times: int = 7) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await run()
        taken.append(time.perf_counter() - began)
    return min(taken)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("wire", WIRES)
async def test_how_fast_each_wire_is_read(wire: str, server: Any, at: Any, anyio_backend: str) -> None:
    folder, url = server
    body = (folder / wire).read_bytes()

    async def bytes_alone() -> None:
        async with client.stream("POST", f"{url}/each/{wire}", content=b"{}") as response:
            async for _ in response.aiter_bytes():
                pass

    async def pieces() -> None:
        async with model.stream(Request(messages=(as_message("x"),))) as found:
            async for _ in found:
                pass

    async with httpx.AsyncClient(trust_env=False) as client:
        model = at(f"{url}/each/{wire}", wire, client=client)
        least, ours = await best(bytes_alone), await best(pieces)

    async def split() -> None:
        for event in body.split(b"\n\n"):
            if event:
                json.loads(event[6:])

    async def read() -> None:
        reader, found = WIRES[wire].reader(model._profile), EventReader(1 << 30)
        for event in found.feed(body):
            reader.event(event)
        reader.end()

    floor, whole = await best(split), await best(read)
    print(
        f"\n{wire}: event by event {ours * 1000:.0f} ms, httpx alone {least * 1000:.0f} ms, {ours / least:.2f} times; "
        f"one body {whole * 1000:.1f} ms, split and json.loads {floor * 1000:.1f} ms, {whole / floor:.2f} times"
    )
