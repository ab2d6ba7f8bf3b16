"""Runs one model: a thread that loads it, answers calls in the order they came, and frees it.

Why a thread of our own and not a pool's: the calls of several event loops meet here (an application's own loop and the
one behind `run_sync`), so the queue must not belong to a loop; and a stream that is left must not wait for the thread,
which learns of it at its next chunk. This module knows chat bodies and chunks only as plain data.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
from collections import deque
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock, Thread

import anyio
import attrs
from anyio.lowlevel import checkpoint, current_token

from treadle.plugin import Json, ProviderError

from .weights import Source

BATCH_TOKENS = 64
"""How much of a prompt is read between two looks at whether anybody still waits. Bigger ones were not faster on a CPU;
this size keeps a cancel below half a second."""


@attrs.frozen(kw_only=True)
class Load:
    """What is loaded, and how it is run."""

    source: Source
    window_tokens: int
    threads: int


class Asking:
    """One call: its body on the way in, its chunks on the way out to one task of one event loop, in order.

    Made in that task. `take` and `end` are the thread's side, `next` and `leave` the task's.
    """

    def __init__(self, body: Json) -> None:
        self.body = body
        self.left = False
        self._chunks: deque[Json] = deque()
        self._ended = False
        self._error: Exception | None = None
        self._ready = anyio.Event()
        native: Json = current_token().native_token
        # Neither waits for the loop: a thread that did would hang on a loop that ends meanwhile.
        soon = getattr(native, "run_sync_soon", None) or native.call_soon_threadsafe
        self._soon: Callable[[Callable[[], None]], None] = soon

    def take(self, chunk: bytes) -> bool:
        """Hand over a chunk; True asks the model to stop (xllamacpp's `callback_wrapper_bytes`)."""
        self._chunks.append(json.loads(chunk))
        self._wake()
        return self.left

    def end(self, error: Exception | None = None) -> None:
        """Hand over the end, or what went wrong."""
        self._ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self.left:
            return
        try:
            self._soon(lambda: self._ready.set())
        except RuntimeError:  # both backends raise it for a loop that is gone, and with it whoever waited
            self.left = True

    async def next(self) -> Json | None:
        """The next chunk, or None after the last one. Raises what went wrong. A cancel loses nothing."""
        await checkpoint()
        while not self._chunks:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return None
            # Made anew before each wait, in the loop's own thread; the thread appends first and wakes afterwards.
            self._ready = anyio.Event()
            await self._ready.wait()
        return self._chunks.popleft()

    def leave(self) -> None:
        """Nobody waits any longer: the call stops at its next chunk, or is never begun."""
        self.left = True


class Engine:
    """One model file, loaded on first use, whose calls are answered one after the other.

    It may be closed and used again; it then loads anew. Methods may be called from any thread.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._lock = Lock()
        self._worker: _Worker | None = None

    def ask(self, asking: Asking) -> None:
        """Queue a call. Those that came earlier are answered first."""
        with self._lock:
            if self._worker is None:
                self._worker = _Worker(self._load)
                # A daemon thread inside C++ must be gone before the interpreter is.
                atexit.register(self.close)
            self._worker.queue.put(asking)

    def close(self) -> None:
        """Stop what runs, end what waits as interrupted, free the model. Blocks for less than a second."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
            atexit.unregister(self.close)


class _Worker:
    """The thread of one loaded model."""

    def __init__(self, load: Load) -> None:
        self.queue: SimpleQueue[Asking | None] = SimpleQueue()
        self._closing = False
        self._thread = Thread(target=self._run, args=(load,), name="treadle-local", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self.queue.put(None)
        self._thread.join()

    def _run(self, load: Load) -> None:
        server: Json = None
        while (asking := self.queue.get()) is not None:
            if asking.left:
                continue
            try:
                if server is None and not self._closing:
                    server = load_server(load)
                self._answer(server, asking)
            except Exception as error:  # whatever it is, it belongs to the caller that waits for it
                asking.end(error)
            else:
                asking.end()

    def _answer(self, server: Json, asking: Asking) -> None:
        if not self._closing:
            body = json.dumps(asking.body, ensure_ascii=False).encode("utf-8", "replace")
            server.handle_chat_completions(body, lambda chunk: asking.take(chunk) or self._closing)
        if self._closing:
            raise ProviderError("interrupted", "The local model was closed while it answered.")


def load_server(load: Load) -> Json:
    """An `xllamacpp.Server` with the model in memory. Blocks for as long as reading the file takes.

    The server insists on listening somewhere. It is given a socket in a private folder that is deleted once the model
    is loaded, so that nobody ever connects; where there are no such sockets, a loopback port with a key nobody knows.
    """
    path, template = load.source.model_path(), load.source.template_text()
    try:
        xllamacpp: Json = import_module("xllamacpp")
    except ImportError as error:
        hint = "Run: pip install xllamacpp"
        raise ProviderError("not_found", f"The local model needs xllamacpp: {error}.", hint=hint) from error
    with TemporaryDirectory(prefix="treadle-") as folder:
        params = _params(xllamacpp, load, path, template)
        params.hostnames = [_listening(folder)]
        try:
            return xllamacpp.Server(params)
        except (RuntimeError, ValueError) as error:
            reason = f"llama.cpp cannot load {path}: {error}"
            raise ProviderError("not_found", reason, hint="Is it a chat model, and is there memory for it?") from error


def _params(xllamacpp: Json, load: Load, path: Path, template: str) -> Json:
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.chat_template = template
    params.n_ctx, params.n_parallel = load.window_tokens, 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = load.threads
    params.verbosity = -1  # below errors: its log goes to the terminal, which is not ours
    params.warmup = False
    params.cache_ram_mib = 0  # its default keeps up to 8 GiB of finished conversations
    params.n_threads_http = 1
    params.ui = params.endpoint_slots = False
    params.api_keys = [secrets.token_urlsafe(32)]
    return params


def _listening(folder: str) -> str:
    # A socket's path holds at most 104 bytes on macOS and 108 on Linux (sys/un.h); llama.cpp goes by the ending.
    path = os.path.join(folder, "llama.sock")
    return "127.0.0.1" if os.name == "nt" or len(os.fsencode(path)) > 100 else path
