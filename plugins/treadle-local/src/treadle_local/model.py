"""The provider: a request goes to the engine as a chat body, and its chunks come back as pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs

from treadle.plugin import Finish, Piece, ProviderError, Request, TreadleError

from .chat import chat_body
from .engine import Asking, Engine
from .reading import Reading


@attrs.frozen(kw_only=True, eq=False)
class LocalModel:
    """A model in this process. Its calls wait for one another; all models of one file share one engine.

    `tuned` says that the template shipped with this package writes its prompt.
    """

    ref: str
    engine: Engine
    window_tokens: int
    max_tokens: int
    tuned: bool = False
    family: str = "local"
    native_output: bool = True  # llama.cpp holds the answer to the schema, token by token

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Piece]]:
        """One answer, piece by piece. The first use loads the model.

        Leaving early, or a cancel while waiting for another call, returns at once; the model itself stops at its next
        token, or within 64 tokens of the prompt. Errors: not_found (weights, runtime or a loadable model is missing),
        context_overflow, bad_request, interrupted (the stack closed), server.
        """
        asking = Asking(chat_body(request, self.max_tokens, tuned=self.tuned))
        self.engine.ask(asking)
        try:
            yield _Pieces(asking)
        finally:
            asking.leave()


class _Pieces:
    """The pieces of one call. A class and no generator: a stream that is left early has nothing to clean up."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._reading = Reading()
        self._pieces: deque[Piece] = deque()
        self._finished = False

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        while not self._pieces:
            if self._finished:
                raise StopAsyncIteration
            await self._read()
        piece = self._pieces.popleft()
        self._finished = isinstance(piece, Finish)
        return piece

    async def _read(self) -> None:
        try:
            chunk = await self._asking.next()
        except TreadleError:
            raise
        except ValueError as error:  # how llama.cpp refuses a request before it starts
            raise ProviderError("bad_request", f"llama.cpp refused the request: {error}") from error
        except Exception as error:
            raise ProviderError("server", f"llama.cpp failed: {type(error).__name__}: {error}") from error
        if chunk is None:
            self._pieces.append(self._reading.end())
        else:
            self._pieces.extend(self._reading.pieces(chunk))
