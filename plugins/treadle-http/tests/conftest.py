"""Both backends, a server that replays recordings, and one that does what a test says; all over real sockets."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from treadle.plugin import Assembly, Message, Model, Reply, Request, as_message
from treadle_http import Http, HttpSettings, Profile
from treadle_http.profiles import PROFILES

sys.path.append(str(Path(__file__).parent))  # for the tables, which several tests read


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no key or address of the machine's own reaches a test."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.endswith(("_API_KEY", "_BASE_URL", "_ENDPOINT", "_API_VERSION")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def recordings() -> Path:
    from wire_tables import shared_folder

    folder = shared_folder() / "recordings"
    if not folder.is_dir():
        pytest.skip("the recordings are not here; TREADLE_SHARED names the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def _replay(recordings: Path) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("replay_server", recordings / "replay_server.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.ReplayServer([recordings]) as server:
        yield server


@pytest.fixture
def replay(_replay: Any) -> Any:
    _replay.reset()
    return _replay


Opener = Callable[..., Model]


@pytest.fixture
def at() -> Opener:
    """A model at a base URL, in the dialect of a known provider or of none, that wants no key."""

    def open_at(base_url: str, provider: str = "", client: Any = None, **settings: Any) -> Model:
        import attrs

        known = PROFILES.get(provider, Profile(name="any"))
        profile = attrs.evolve(known, base_url=base_url, base_env=(), key_env=(), key_required=False, deployments=False)
        http = Http(HttpSettings(providers=(profile,), **settings), client=client)
        model = http.open_model(f"{profile.name}:model-1")
        assert model is not None
        return model

    return open_at


Asker = Callable[..., Awaitable[Reply]]


@pytest.fixture
def ask() -> Asker:
    """The whole reply of a model."""

    async def answered(model: Model, *messages: Message, **fields: Any) -> Reply:
        request = Request(messages=messages or (as_message("hello"),), **fields)
        assembly = Assembly()
        async with model.stream(request) as pieces:
            async for piece in pieces:
                assembly.feed(piece)
        reply = assembly.reply()
        assert reply is not None
        return reply

    return answered


class Peer:
    """One connection of the test's own server: what was asked, and ways to answer."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self.head = b""
        self.body = b""

    async def request(self) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self.stream.receive()
        self.head, _, self.body = data.partition(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in self.head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        while len(self.body) < length:
            self.body += await self.stream.receive()

    async def start(self, status: str = "200 OK", *, kind: str = "text/event-stream", more: str = "") -> None:
        await self.stream.send(
            f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}transfer-encoding: chunked\r\n\r\n".encode()
        )

    async def send(self, data: bytes) -> None:
        await self.stream.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def finish(self) -> None:
        await self.stream.send(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while True:
                await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass


Serve = Callable[[Callable[[Peer], Awaitable[None]]], AbstractAsyncContextManager[str]]


@pytest.fixture
def serve() -> Serve:
    """A server on loopback whose connections are each handled by the given function; gives its base URL."""

    @asynccontextmanager
    async def running(handle: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[str]:
        async def one(stream: SocketStream) -> None:
            async with stream:
                try:
                    await handle(Peer(stream))
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, one)
            try:
                yield f"http://127.0.0.1:{port}/v1"
            finally:
                tasks.cancel_scope.cancel()

    return running


@pytest.fixture(scope="session")
def recorded(recordings: Path) -> dict[str, list[bytes]]:
    """The bodies of all recorded answers, by wire."""
    import json

    return {
        folder.name: [
            exchange["response"]["body_text"].encode()
            for path in sorted(folder.glob("*.json"))
            for exchange in json.loads(path.read_text(encoding="utf-8"))["exchanges"]
        ]
        for folder in recordings.iterdir()
        if folder.is_dir()
    }
