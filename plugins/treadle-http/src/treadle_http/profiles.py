"""How the servers that speak Chat Completions differ, as data.

A profile is plain values. Nothing here reads the environment: `client` does, on each call. A server that is not
listed is a `Profile` in the settings; one with a listed name takes that name's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs


@attrs.frozen(kw_only=True)
class Profile:
    """One provider: where it is, how it is paid for, and its dialect.

    Addresses and access:
    `base_url` is what `/chat/completions` is appended to; the first set variable of `base_env` takes its place. The
    key is the first set variable of `key_env`, sent as `Authorization: Bearer` or, with `auth` "api-key", as `api-key`;
    `key_required` says whether a call without one is refused here. `headers` are sent as they are. With `deployments`
    the base URL is an Azure resource: with a version in one of `version_env` the model is a deployment in the path.

    Dialect of requests:
    `system_role` speaks the instructions. `max_tokens` is what the output limit is called. `renames` are other
    parameters' names here, `refuses` parameters the server does not take. `stream_usage`: usage of a stream has to be
    asked for. `output` is how a structured answer is asked for; with "json_schema" the server holds the answer to the
    schema, so that the model's `native_output` is true. `id_pattern` is what a call's id must match in full.
    `file_urls` is the content part for a document by URL, empty if the server takes none.

    Dialect of reasoning:
    `echo` are the fields of a reply that are sent back on later requests, `thinking` standing for content chunks of
    that type; `echo_empty` those that a message with calls must have even if its reply had none.
    """

    name: str = ""
    base_url: str = ""
    base_env: tuple[str, ...] = ()
    key_env: tuple[str, ...] = ()
    key_required: bool = True
    auth: Literal["bearer", "api-key"] = "bearer"
    headers: tuple[tuple[str, str], ...] = ()
    deployments: bool = False
    version_env: tuple[str, ...] = ()
    system_role: str = "system"
    max_tokens: str = "max_tokens"
    renames: tuple[tuple[str, str], ...] = ()
    refuses: tuple[str, ...] = ()
    stream_usage: bool = True
    output: Literal["json_schema", "json_object"] = "json_schema"
    id_pattern: str = r"[\x21-\x7e]{1,40}"
    file_urls: Literal["", "file_data", "document_url"] = ""
    echo: tuple[str, ...] = ()
    echo_empty: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Whose opaque payloads it understands: its own, on this wire."""
        return f"{self.name}-chat"


_ALL = (
    Profile(
        name="openai",
        base_url="https://api.openai.com/v1",
        base_env=("OPENAI_BASE_URL",),
        key_env=("OPENAI_API_KEY",),
        # Reasoning models refuse max_tokens, the others take both (API reference, "max_completion_tokens").
        max_tokens="max_completion_tokens",
    ),
    Profile(
        name="azure",
        base_env=("AZURE_OPENAI_ENDPOINT",),
        key_env=("AZURE_OPENAI_API_KEY",),
        auth="api-key",
        deployments=True,
        version_env=("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION"),
        max_tokens="max_completion_tokens",
    ),
    Profile(
        name="deepseek",
        base_url="https://api.deepseek.com",
        base_env=("DEEPSEEK_BASE_URL",),
        key_env=("DEEPSEEK_API_KEY",),
        output="json_object",
        # Once a tool was called, each later request must hold the reasoning (DeepSeek's guide "Thinking Mode").
        echo=("reasoning_content",),
        echo_empty=("reasoning_content",),
    ),
    Profile(
        name="groq",
        base_url="https://api.groq.com/openai/v1",
        base_env=("GROQ_BASE_URL",),
        key_env=("GROQ_API_KEY",),
        max_tokens="max_completion_tokens",
        # Groq's page "OpenAI Compatibility", section "Currently Unsupported OpenAI Features".
        refuses=("logprobs", "logit_bias", "top_logprobs"),
    ),
    Profile(
        name="mistral",
        base_url="https://api.mistral.ai/v1",
        base_env=("MISTRAL_BASE_URL",),
        key_env=("MISTRAL_API_KEY",),
        renames=(("seed", "random_seed"),),
        stream_usage=False,
        id_pattern=r"[A-Za-z0-9]{9}",
        file_urls="document_url",
        # Mistral's example "reasoning_multi_turn": thinking chunks go back in place.
        echo=("thinking",),
    ),
    Profile(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        base_env=("OPENROUTER_BASE_URL",),
        key_env=("OPENROUTER_API_KEY",),
        id_pattern=r"[\x21-\x7e]{1,64}",
        file_urls="file_data",
        echo=("reasoning_details",),
    ),
    Profile(
        name="xai",
        base_url="https://api.x.ai/v1",
        base_env=("XAI_BASE_URL",),
        key_env=("XAI_API_KEY",),
    ),
    Profile(
        name="cerebras",
        base_url="https://api.cerebras.ai/v1",
        base_env=("CEREBRAS_BASE_URL",),
        key_env=("CEREBRAS_API_KEY",),
        max_tokens="max_completion_tokens",
    ),
    Profile(
        name="perplexity",
        base_url="https://api.perplexity.ai",
        base_env=("PERPLEXITY_BASE_URL",),
        key_env=("PERPLEXITY_API_KEY",),
        stream_usage=False,
    ),
    Profile(
        name="zai",
        base_url="https://api.z.ai/api/paas/v4",
        base_env=("ZAI_BASE_URL",),
        key_env=("ZAI_API_KEY",),
        output="json_object",
        echo=("reasoning_content",),
    ),
    # Servers on one's own machine want no key, and show the model its own reasoning if its template has a place for it.
    Profile(
        name="ollama",
        base_url="http://127.0.0.1:11434/v1",
        base_env=("OLLAMA_BASE_URL",),
        key_env=("OLLAMA_API_KEY",),
        key_required=False,
        echo=("reasoning",),
    ),
    Profile(
        name="vllm",
        base_url="http://127.0.0.1:8000/v1",
        base_env=("VLLM_BASE_URL",),
        key_env=("VLLM_API_KEY",),
        key_required=False,
        echo=("reasoning_content", "reasoning"),
    ),
    Profile(
        name="llamacpp",
        base_url="http://127.0.0.1:8080/v1",
        base_env=("LLAMACPP_BASE_URL",),
        key_env=("LLAMACPP_API_KEY",),
        key_required=False,
        echo=("reasoning_content",),
    ),
)

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in _ALL}
"""The providers known by name."""
