"""Chunks of a chat completion as pieces (llama.cpp's tools/server/README.md; OpenAI's reference of the format)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from treadle.plugin import CallDelta, Finish, Json, Piece, ProviderError, ReasoningDelta, TextDelta, Usage

_FINISHES: Mapping[str, Json] = {"stop": "end", "tool_calls": "calls", "length": "length"}


class Reading:
    """Turns the chunks of one answer, in order, into pieces. `Finish` is the last, once all chunks are read."""

    def __init__(self) -> None:
        self._finish = ""
        self._usage: Usage | None = None

    def pieces(self, chunk: Json) -> Iterator[Piece]:
        """The pieces in a chunk; `ProviderError` if it reports one."""
        if "error" in chunk:
            raise error_of(chunk["error"])
        if usage := chunk.get("usage"):
            self._usage = usage_of(usage)
        for choice in chunk.get("choices") or ():
            yield from _delta(choice.get("delta") or {})
            self._finish = choice.get("finish_reason") or self._finish

    def end(self) -> Finish:
        """The end of the answer. Chunks that stopped without a reason are `ProviderError` of kind interrupted."""
        if not self._finish:
            raise ProviderError("interrupted", "The local model stopped before its answer was complete.")
        return Finish(finish=_FINISHES.get(self._finish, "fault"), usage=self._usage, raw=self._finish)


def _delta(delta: Json) -> Iterator[Piece]:
    if thought := delta.get("reasoning_content"):
        yield ReasoningDelta(thought)
    if words := delta.get("content"):
        yield TextDelta(words)
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        yield CallDelta(
            key=call.get("index", 0),
            name=function.get("name") or "",
            arguments=function.get("arguments") or "",
            provider_id=call.get("id") or "",
        )


def usage_of(usage: Json) -> Usage:
    """The tokens of a call. `prompt_tokens` counts those of the cache too, so they are taken out."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Usage(
        input=usage.get("prompt_tokens", 0) - cached,
        cache_read=cached,
        output=usage.get("completion_tokens", 0),
        raw=json.dumps(usage, separators=(",", ":")),
    )


def error_of(error: Json) -> ProviderError:
    """llama.cpp's error object as ours."""
    kind, code, text = error.get("type"), error.get("code"), error.get("message") or "no reason given"
    raw = json.dumps(error, separators=(",", ":"))
    if kind == "exceed_context_size_error":
        hint = "Shorten the conversation, or raise the setting window_tokens of the plugin local."
        return ProviderError("context_overflow", text, status=code, raw=raw, hint=hint)
    return ProviderError("bad_request" if code == 400 else "server", text, status=code, raw=raw)
