"""What acts: everything that touches httpx, the environment and time. It knows no wire format.

The client is httpx's, made on first use, or one that the application hands in: httpx, httpx2 or a class of theirs.
Such a client is used as it is (its time-outs, proxies, hooks) and never closed here.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import cache
from typing import NoReturn, Protocol, cast
from urllib.parse import quote, urlsplit

import anyio
import attrs

from treadle.plugin import Json, Piece, ProviderError, Request

from .errors import error_of
from .profiles import Profile
from .sse import BadStream, EventReader
from .wires import Reader, Wire

LIMIT_BYTES = 64 * 1024 * 1024
"""The most that one event, or one whole answer, may hold. Images come in events of some MiB."""

ERROR_BYTES = 1024 * 1024
"""How much of an error's body is read."""

DRAIN_SECONDS = 0.1
"""How long to wait, after the answer said it is over, for the end that lets the connection be used again."""


class Response(Protocol):
    """What is used of an httpx response."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def aiter_bytes(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


class Client(Protocol):
    """What is used of an httpx client; httpx2's has the same face."""

    def build_request(self, method: str, url: str, *, content: bytes, headers: Mapping[str, str]) -> Json: ...
    async def send(self, request: Json, *, stream: bool) -> Json: ...
    async def aclose(self) -> None: ...


@attrs.frozen(kw_only=True)
class Patience:
    """How long to wait: for the connection, for the first byte of the answer, and between any two bytes of it."""

    connect_seconds: float
    first_byte_seconds: float
    idle_seconds: float


class Clients:
    """Hands out the client of a call. `shared` is the one of an open stack; outside of it each call has its own."""

    def __init__(self, patience: Patience, injected: Client | None) -> None:
        self.patience, self._injected = patience, injected
        self._open = False
        self._shared: Client | None = None

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """While open, calls share connections. Leaving closes them, also when cancelled."""
        self._open = True
        try:
            yield
        finally:
            self._open, shared, self._shared = False, self._shared, None
            if shared is not None:
                await _closed(shared)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Client]:
        """The client for one call."""
        if self._injected is not None:
            yield self._injected
        elif self._open:
            self._shared = self._shared or self._made()
            yield self._shared
        else:
            client = self._made()
            try:
                yield client
            finally:
                await _closed(client)

    def _made(self) -> Client:
        import httpx  # 50 to 100 ms: not before somebody calls a model

        # The first byte and idle time are counted by `_Answer`, from any byte; httpx need only bound the connecting.
        timeout = httpx.Timeout(None, connect=self.patience.connect_seconds)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        return cast(Client, httpx.AsyncClient(timeout=timeout, limits=limits, verify=_tls()))


@cache
def _tls() -> ssl.SSLContext:
    """The certificates to trust, read once: that takes longer than the rest of making a client."""
    import httpx

    return httpx.create_ssl_context()


async def _closed(thing: Client | Response) -> None:
    with anyio.move_on_after(5, shield=True):
        await thing.aclose()


# --- the model -------------------------------------------------------------------------------------------


class HttpModel:
    """One model of one provider: a `Model`."""

    def __init__(self, ref: str, name: str, *, profile: Profile, wire: Wire, clients: Clients, stream: bool) -> None:
        self.ref = ref
        self.family = profile.family
        self.window_tokens: int | None = None
        self.native_output = profile.output == "json_schema"  # else the schema would be no more than a wish in words
        self._name, self._profile, self._wire, self._stream = name, profile, wire, stream
        self._clients = clients

    def __repr__(self) -> str:
        return f"HttpModel({self.ref!r})"

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Piece]]:
        """Send the request and give its answer as pieces. Leaving, or a cancel, closes the connection at once."""
        body = self._wire.body(request, self._name, self._profile, stream=self._stream)
        path = self._wire.path(self._name, stream=self._stream)
        call = _call(self._profile, path, self._name, body)
        async with (
            self._clients.one() as client,
            _answer(client, call, self._clients.patience) as answer,
            aclosing(_pieces(answer, self._wire.reader(self._profile))) as pieces,
        ):
            yield pieces


async def _pieces(answer: _Answer, reader: Reader) -> AsyncGenerator[Piece, None]:
    """The pieces of an answer, as events or as one body, whichever the server chose to send."""
    if not answer.is_events:
        for piece in _of_body(await answer.read(reader), reader):
            yield piece
        return
    events = EventReader(LIMIT_BYTES)
    why = ""
    while not reader.done:
        try:
            data = await answer.next()
        except ProviderError as error:
            data, why = b"", error.message
        try:
            found = events.feed(data) if data else events.end()
        except BadStream as error:
            raise reader.bad_stream(str(error)) from None
        for event in found:
            for piece in reader.event(event):
                yield piece
        if not data:
            break
    if reader.done:
        await answer.drain()
    for piece in reader.end(why):
        yield piece


def _of_body(body: bytes, reader: Reader) -> list[Piece]:
    """The pieces of a body that came whole, also of an event stream with the wrong content type."""
    if not body.lstrip(b"\xef\xbb\xbf\r\n\t ").startswith((b"data:", b"event:", b":")):
        return [*reader.body(body), *reader.end()]
    events = EventReader(LIMIT_BYTES)
    try:
        found = [*events.feed(body), *events.end()]
    except BadStream as error:
        raise reader.bad_stream(str(error)) from None
    out: list[Piece] = []
    for event in found:
        out += () if reader.done else reader.event(event)
    return [*out, *reader.end()]


# --- what is sent ------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Call:
    """One HTTP call. The headers hold the key, so they are never shown."""

    url: str
    body: bytes = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)
    key: str = attrs.field(repr=False)
    key_name: str
    provider: str


def _call(profile: Profile, path: str, model: str, body: Json) -> _Call:
    key_name, key = _key(profile)
    headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
    headers |= dict(profile.headers)
    if key:
        headers |= {"authorization": f"Bearer {key}"} if profile.auth == "bearer" else {profile.auth: key}
    url = _url(profile, path, model)
    return _Call(url=url, body=_encoded(body), headers=headers, key=key, key_name=key_name, provider=profile.name)


def _key(profile: Profile) -> tuple[str, str]:
    """The key and the variable it stands in. Read on each call, so that a rotated key counts at once."""
    for name in profile.key_env:
        key = os.environ.get(name, "").strip()
        if not key:
            continue
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ProviderError("auth", f"{name} holds characters that no key has.", hint="Set it to the key alone.")
        return name, key
    if profile.key_required:
        names = " or ".join(profile.key_env) or "no variable: its profile has no key_env"
        raise ProviderError("auth", f'There is no key for "{profile.name}".', hint=f"Set {names}.")
    return "", ""


def _first_set(names: Sequence[str]) -> str:
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")


def _url(profile: Profile, path: str, model: str) -> str:
    base = (_first_set(profile.base_env) or profile.base_url).rstrip("/")
    if not base:
        names = " or ".join(profile.base_env) or "base_url in its profile"
        raise ProviderError("bad_request", f'It is not known where "{profile.name}" is.', hint=f"Set {names}.")
    if not _is_url(base):
        message = f'The address of "{profile.name}" is "{_shown(base)}", which is no URL of a server.'
        raise ProviderError("bad_request", message, hint="Write it as http://HOST:PORT/v1 or with https.")
    if not profile.deployments:
        # Some variables hold the version by custom and some do not: it stands once.
        return base + (_VERSION.sub("", path) if _VERSION.search(base[base.rfind("/") :] + "/") else path)
    # Azure has a deployment in the path with dated versions, and OpenAI's own paths without (its page "API lifecycle").
    version = _first_set(profile.version_env)
    if version:
        return f"{base}/openai/deployments/{quote(model, safe='')}{path}?api-version={quote(version, safe='')}"
    return f"{base}{path}" if base.endswith("/openai/v1") else f"{base}/openai/v1{path}"


_VERSION = re.compile(r"^/v\d[a-z0-9]*(?=/)")


def _is_url(base: str) -> bool:
    """Whether it names a server. Libraries differ in what they make of one that does not, a name look-up among it."""
    try:
        parts = urlsplit(base)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _shown(url: str) -> str:
    """A URL without what may be secret in it: user, password and query."""
    scheme, separator, rest = url.partition("?")[0].rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]


def _encoded(body: Json) -> bytes:
    """The body's bytes. Half of a surrogate pair has no UTF-8 and becomes a question mark: servers refuse it."""
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        message = f"The request cannot be written as JSON: {error}."
        raise ProviderError("bad_request", message, hint="Look at params and at the tools' schemas.") from error
    return text.encode("utf-8", "replace")


# --- what comes back ---------------------------------------------------------------------------------------


@asynccontextmanager
async def _answer(client: Client, call: _Call, patience: Patience) -> AsyncIterator[_Answer]:
    """The answer to a call whose status is a success. Other statuses are raised as what they mean."""
    answer = _Answer(client, call, patience)
    try:
        await answer.open()
        yield answer
    finally:
        await answer.close()


class _Answer:
    """One response, read with time-outs. All failures of the connection are `ProviderError("interrupted")`."""

    def __init__(self, client: Client, call: _Call, patience: Patience) -> None:
        self._client, self._call, self._patience = client, call, patience
        self._faults: tuple[type[Exception], ...] = (*_faults_of(client), OSError)
        self._response: Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._await_byte(patience.first_byte_seconds)

    def _await_byte(self, seconds: float) -> None:
        self._seconds, self._deadline = seconds, anyio.current_time() + seconds

    async def open(self) -> None:
        call = self._call
        try:
            request = self._client.build_request("POST", call.url, content=call.body, headers=call.headers)
            with anyio.CancelScope(deadline=self._deadline):
                self._response = await self._client.send(request, stream=True)
        except self._faults as error:
            self._failed(error)
        if self._response is None:
            self._late()
        self._chunks = self._response.aiter_bytes()
        if not 200 <= self._response.status_code < 300:
            raise await self._refusal(self._response)

    @property
    def is_events(self) -> bool:
        return "event-stream" in self._header("content-type").lower()

    def _header(self, name: str) -> str:
        return self._response.headers.get(name, "") if self._response is not None else ""

    async def next(self) -> bytes:
        """The next bytes, or none at the end. Any byte, also of a comment, is a sign of life."""
        assert self._chunks is not None
        try:
            data = b""
            while not data:
                with anyio.CancelScope(deadline=self._deadline) as scope:
                    data = await anext(self._chunks)
                if scope.cancelled_caught:
                    self._late()
        except StopAsyncIteration:
            return b""
        except self._faults as error:
            self._failed(error)
        self._await_byte(self._patience.idle_seconds)
        return data

    async def read(self, reader: Reader) -> bytes:
        """The whole body."""
        body = bytearray()
        while data := await self.next():
            body += data
            if len(body) > LIMIT_BYTES:
                raise reader.bad_stream(f"the answer is longer than {LIMIT_BYTES} bytes")
        return bytes(body)

    async def drain(self) -> None:
        """Read the end of an answer that is over, briefly, so that the connection can serve the next call."""
        with anyio.move_on_after(DRAIN_SECONDS):
            try:
                while await self.next():
                    pass
            except ProviderError:
                pass  # the answer is whole; only the connection is lost

    async def close(self) -> None:
        """Give the response up: its connection closes now unless it was read to the end. Not cut short by a cancel."""
        if self._response is None or self._chunks is None:
            return
        try:
            # The library reads through nested generators, which end together only if the innermost raises; trio
            # reports those left half read. What is buffered comes first: up to 64 KiB, in chunks of a byte and more.
            with anyio.CancelScope(shield=True) as scope:
                scope.cancel()
                for _ in range(20_000):
                    if not await anext(self._chunks, b""):
                        break
        except self._faults:
            pass  # it is being thrown away
        try:
            await _closed(self._response)
        except self._faults:
            pass

    async def _refusal(self, response: Response) -> ProviderError:
        body = bytearray()
        try:
            while len(body) < ERROR_BYTES and (data := await self.next()):
                body += data
        except ProviderError:
            pass  # half an error's body still says which error it is
        headers = {name.lower(): value for name, value in response.headers.items()}
        key = self._call.key.encode()
        error = error_of(response.status_code, headers, bytes(body).replace(key, b"***") if key else bytes(body))
        if error.kind == "auth" and self._call.key_name:
            error.hint = f"The key came from {self._call.key_name}."
        return error

    def _late(self) -> NoReturn:
        where = f"{self._call.provider} at {_shown(self._call.url)}"
        raise ProviderError("interrupted", f"{where} sent nothing for {self._seconds:g} seconds.")

    def _failed(self, error: Exception) -> NoReturn:
        """What a fault of the HTTP library means. Its classes differ between the libraries, their names do not."""
        name = type(error).__name__
        said = str(error).replace(self._call.key, "***") if self._call.key else str(error)
        where = f"{self._call.provider} at {_shown(self._call.url)}"
        if name in ("InvalidURL", "UnsupportedProtocol", "LocalProtocolError", "TooManyRedirects"):
            raise ProviderError("bad_request", f"{where}: {said}.", hint="Check the base URL and headers.") from None
        if name in ("ConnectError", "ConnectTimeout", "ProxyError", "PoolTimeout"):
            hint = "Check that the server runs and that the address is right."
            raise ProviderError("interrupted", f"{where} was not reached ({name}: {said}).", hint=hint) from None
        lost = f"The connection to {where} was lost ({name}: {said})." if said else f"{where}: {name}."
        raise ProviderError("interrupted", lost) from None


def _faults_of(client: Client) -> tuple[type[Exception], ...]:
    """The error classes of the library that the client comes from, found by its class, so that none is imported."""
    out: list[type[Exception]] = []
    for cls in type(client).__mro__:
        module = sys.modules.get(cls.__module__.partition(".")[0])
        for name in ("HTTPError", "InvalidURL", "StreamError"):
            found = getattr(module, name, None)
            if isinstance(found, type) and issubclass(found, Exception):
                out.append(found)
    return tuple(dict.fromkeys(out))
