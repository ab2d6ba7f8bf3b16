"""A second opinion: the providers' own libraries read the same recordings from the same server.

What they say of text, calls, tokens and the ending has to be what this plugin says. Where it is not, the recording
stands in `DISAGREE` with the reason. The libraries are development dependencies; without one its tests are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import attrs
import pytest
import table_anthropic
import table_chat
import table_gemini
import table_responses

from treadle.plugin import ProviderError, Reply

TABLES: dict[str, Any] = {
    "openai-chat": table_chat,
    "anthropic-messages": table_anthropic,
    "openai-responses": table_responses,
    "gemini": table_gemini,
}

DISAGREE: dict[str, str] = {
    "openai-chat/anthropic-compat-tool-stream": "the library fails on a first call whose index is 1",
    "openai-chat/azure-content-filter": "a choice without a message is None there, and a refusal here",
    "openai-chat/mistral-content-array": "the library hands on a list of content as it is, thinking among it",
    "openai-chat/openrouter-novita-tool-id-repeated": "the library joins a name that each delta repeats",
    "openai-chat/xai-reasoning-tool-stream": "xAI counts reasoning beside the output, which the library does not add",
    "anthropic-messages/anthropic-spliced-message-start": "the library joins both starts to one broken call",
    "gemini/gemini-partial-args-stream": "the library gives each piece of the arguments as a call of its own",
    "gemini/gemini-unexpected-tool-call": "the library gives the call; here it is a failure",
}
"""Recordings that a library reads otherwise, and why."""


@attrs.frozen
class Opinion:
    """An answer as two readers can be compared: text, calls as name and arguments, tokens in and out, the ending."""

    text: str
    calls: tuple[tuple[str, str], ...]
    tokens: tuple[int, int] | None
    ending: str
    failed: bool = False


FAILED = Opinion("", (), None, "", failed=True)


def canonical(arguments: Any) -> str:
    try:
        value = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments or {}
    except ValueError:
        return str(arguments)
    return json.dumps(value, sort_keys=True)


def ours(reply: Reply) -> Opinion:
    usage = reply.usage
    tokens = None
    if usage is not None:
        tokens = (usage.input + usage.cache_read + usage.cache_write, usage.output + usage.reasoning)
    calls = tuple((call.name, canonical(call.arguments)) for call in reply.calls)
    return Opinion(reply.text, calls, tokens, reply.raw.partition(":")[0])


# --- what the libraries say ---------------------------------------------------------------------------------


def chat(url: str, stream: bool) -> Opinion:
    import openai
    from openai.lib.streaming.chat import ChatCompletionStreamState

    with openai.OpenAI(api_key="x", base_url=url, max_retries=0) as client:
        ask = partial(client.chat.completions.create, model="m", messages=[{"role": "user", "content": "hello"}])
        try:
            if stream:
                state = ChatCompletionStreamState()
                for chunk in ask(stream=True):
                    state.handle_chunk(chunk)
                answer: Any = state.current_completion_snapshot
            else:
                answer = ask()
        except openai.APIError:
            return FAILED
    choice, usage = answer.choices[0], answer.usage
    said = choice.message
    calls = tuple((call.function.name, canonical(call.function.arguments)) for call in said.tool_calls or ())
    tokens = (usage.prompt_tokens, usage.completion_tokens) if usage else None
    return Opinion((said.content or "") + (said.refusal or ""), calls, tokens, choice.finish_reason or "")


def messages(url: str, stream: bool) -> Opinion:
    import anthropic

    with anthropic.Anthropic(api_key="x", base_url=url.removesuffix("/v1"), max_retries=0) as client:
        asked: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
        try:
            if stream:
                with client.messages.stream(**asked) as events:
                    answer: Any = events.get_final_message()
            else:
                answer = client.messages.create(**asked)
        except anthropic.APIError:
            return FAILED
    text = "".join(block.text for block in answer.content if block.type == "text")
    calls = tuple((block.name, canonical(block.input)) for block in answer.content if block.type == "tool_use")
    usage = answer.usage
    read = usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    return Opinion(text, calls, (read, usage.output_tokens), answer.stop_reason or "")


def responses(url: str, stream: bool) -> Opinion:
    import openai

    with openai.OpenAI(api_key="x", base_url=url, max_retries=0) as client:
        ask: Any = partial(client.responses.create, model="m", input="hello")
        try:
            answer: Any = None
            if stream:
                for event in ask(stream=True):
                    if event.type in ("error", "response.failed"):
                        return FAILED
                    answer = getattr(event, "response", answer)
            else:
                answer = ask()
        except openai.APIError:
            return FAILED
    content = [part for item in answer.output if item.type == "message" for part in item.content]
    text = "".join(getattr(part, "text", "") or getattr(part, "refusal", "") for part in content)
    calls = tuple((item.name, canonical(item.arguments)) for item in answer.output if item.type == "function_call")
    tokens = (answer.usage.input_tokens, answer.usage.output_tokens) if answer.usage else None
    ending = answer.incomplete_details.reason if answer.incomplete_details else answer.status
    return Opinion(text, calls, tokens, ending or "")


def gemini(url: str, stream: bool) -> Opinion:
    from google import genai
    from google.genai import errors, types

    options = types.HttpOptions(base_url=url.removesuffix("/v1"))
    with genai.Client(api_key="x", http_options=options) as client:
        try:
            if stream:
                chunks: Any = list(client.models.generate_content_stream(model="m", contents="hello"))
            else:
                chunks = [client.models.generate_content(model="m", contents="hello")]
        except errors.APIError:
            return FAILED
    candidates = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
    parts = [part for each in candidates if each.content for part in each.content.parts or ()]
    text = "".join(part.text for part in parts if part.text and not part.thought)
    calls = tuple((part.function_call.name, canonical(part.function_call.args)) for part in parts if part.function_call)
    ending = next((each.finish_reason.value for each in reversed(candidates) if each.finish_reason), "")
    feedback = chunks[-1].prompt_feedback
    usage = chunks[-1].usage_metadata
    tokens = None
    if usage is not None and usage.total_token_count is not None:
        read = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
        tokens = (read, (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0))
    return Opinion(text, calls, tokens, ending or (feedback.block_reason.value if feedback else ""))


LIBRARIES: dict[str, tuple[str, Callable[[str, bool], Opinion]]] = {
    "openai-chat": ("openai", chat),
    "anthropic-messages": ("anthropic", messages),
    "openai-responses": ("openai", responses),
    "gemini": ("google.genai", gemini),
}
ALL = [f"{wire}/{name}" for wire, table in TABLES.items() for name in table.EXPECTED]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("name", ALL)
async def test_the_providers_library_reads_the_same(
    name: str, replay: Any, at: Any, ask: Any, anyio_backend: str
) -> None:
    wire = name.partition("/")[0]
    library, read = LIBRARIES[wire]
    pytest.importorskip(library)
    table, recording = TABLES[wire], replay.by_id[name]
    url = f"{replay.url}/r/{name};chunk=all/v1"
    theirs, mine = [], []
    for exchange in recording["exchanges"]:
        stream = "event-stream" in exchange["response"]["headers"].get("content-type", "")
        try:
            theirs.append(await anyio.to_thread.run_sync(read, url, stream))
        except Exception as error:
            theirs.append(attrs.evolve(FAILED, text=f"{type(error).__name__}: {error}"))
    replay.reset()
    model = at(url, table.PROVIDERS.get(recording["provider"], recording["provider"]))
    for _ in recording["exchanges"]:
        try:
            mine.append(ours(await ask(model)))
        except ProviderError:
            mine.append(FAILED)
    if name in DISAGREE:
        assert theirs != mine, f"{name}: the library reads the same now; take it out of the list"
    else:
        assert theirs == mine
