"""How providers differ, as data.

A profile is plain values. Nothing here reads the environment: `client` does, on each call. A server that is not
listed is a `Profile` in the settings; one with a listed name takes that name's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import attrs

from treadle.plugin import Json

WireName = Literal["chat", "responses", "messages", "gemini"]
Auth = Literal["bearer", "api-key", "x-api-key", "x-goog-api-key"]


@attrs.frozen(kw_only=True)
class Profile:
    """One provider: where it is, how it is paid for, and its dialect.

    `wire` is the format it speaks: "chat" (Chat Completions), "responses" (OpenAI's Responses), "messages"
    (Anthropic's Messages) or "gemini" (Gemini's generateContent).

    Addresses and access:
    `base_url` is what the wire's own path is appended to (`/chat/completions`, `/responses`, `/v1/messages`,
    `/v1beta/models/...`); the first set variable of `base_env` takes its place. The key is the first set variable of
    `key_env`, sent as `Authorization: Bearer` or in the header that `auth` names; `key_required` says whether a call
    without one is refused here. `headers` are sent as they are. With `deployments` the base URL is an Azure resource:
    with a version in one of `version_env` the model is a deployment in the path.

    Dialect of requests:
    `system_role` speaks the instructions. `max_tokens` is what the output limit is called, `output_tokens` the limit
    that is sent if the parameters hold none (0: none is sent). `renames` are other parameters' names here, `refuses`
    parameters the server does not take. `stream_usage`: usage of a stream has to be asked for. `output` is how a
    structured answer is asked for; with "json_schema" the server holds the answer to the schema, so that the model's
    `native_output` is true. `id_pattern` is what a call's id must match in full. `cache_markers`: a request
    says where a prefix ends that is worth keeping. `file_urls` is the content part for a document by URL, empty if
    the server takes none. `encrypted_models` matches the names of models that are asked for encrypted reasoning, since
    others refuse to be; `signed_models` those that want a signature at each first call, also at another model's.

    Dialect of reasoning:
    `echo` are the fields of a reply that are sent back on later requests, `thinking` standing for content chunks of
    that type; `echo_empty` those that a message with calls must have even if its reply had none.
    """

    name: str = ""
    wire: WireName = "chat"
    base_url: str = ""
    base_env: tuple[str, ...] = ()
    key_env: tuple[str, ...] = ()
    key_required: bool = True
    auth: Auth = "bearer"
    headers: tuple[tuple[str, str], ...] = ()
    deployments: bool = False
    version_env: tuple[str, ...] = ()
    system_role: str = "system"
    max_tokens: str = "max_tokens"
    output_tokens: int = 0
    renames: tuple[tuple[str, str], ...] = ()
    refuses: tuple[str, ...] = ()
    stream_usage: bool = True
    output: Literal["json_schema", "json_object"] = "json_schema"
    id_pattern: str = r"[\x21-\x7e]{1,40}"
    cache_markers: bool = False
    encrypted_models: str = "(?!)"
    signed_models: str = "(?!)"
    file_urls: Literal["", "file_data", "document_url"] = ""
    echo: tuple[str, ...] = ()
    echo_empty: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Whose opaque payloads it understands: its own, on this wire."""
        return f"{self.name}-chat" if self.wire == "chat" else self.name


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
        name="openai-responses",
        wire="responses",
        base_url="https://api.openai.com/v1",
        base_env=("OPENAI_BASE_URL",),
        key_env=("OPENAI_API_KEY",),
        max_tokens="max_output_tokens",
        id_pattern=r"[\x21-\x7e]{1,64}",
        encrypted_models=r"o\d|gpt-[5-9](?!-chat)|codex",
    ),
    Profile(
        name="azure-responses",
        wire="responses",
        base_env=("AZURE_OPENAI_ENDPOINT",),
        key_env=("AZURE_OPENAI_API_KEY",),
        auth="api-key",
        deployments=True,
        max_tokens="max_output_tokens",
        id_pattern=r"[\x21-\x7e]{1,64}",
        encrypted_models=r"o\d|gpt-[5-9](?!-chat)|codex",
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
        name="xai-responses",
        wire="responses",
        base_url="https://api.x.ai/v1",
        base_env=("XAI_BASE_URL",),
        key_env=("XAI_API_KEY",),
        max_tokens="max_output_tokens",
        id_pattern=r"[\x21-\x7e]{1,64}",
        encrypted_models="grok",
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
    Profile(
        name="anthropic",
        wire="messages",
        base_url="https://api.anthropic.com",
        base_env=("ANTHROPIC_BASE_URL",),
        key_env=("ANTHROPIC_API_KEY",),
        auth="x-api-key",
        headers=(("anthropic-version", "2023-06-01"),),
        # Every model since Claude 4 takes as much; the API demands a limit.
        output_tokens=32_000,
        renames=(("stop", "stop_sequences"),),
        id_pattern=r"[a-zA-Z0-9_-]{1,64}",
        cache_markers=True,
    ),
    Profile(
        name="gemini",
        wire="gemini",
        base_url="https://generativelanguage.googleapis.com",
        base_env=("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
        key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        auth="x-goog-api-key",
        max_tokens="maxOutputTokens",
        renames=(("stop", "stopSequences"), ("top_p", "topP"), ("top_k", "topK")),
        id_pattern=r"[\x21-\x7e]{1,64}",
        signed_models=r"(models/)?gemini-(?![12]\b)",
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
    Profile(
        name="llamacpp-responses",
        wire="responses",
        base_url="http://127.0.0.1:8080/v1",
        base_env=("LLAMACPP_BASE_URL",),
        key_env=("LLAMACPP_API_KEY",),
        key_required=False,
        max_tokens="max_output_tokens",
        id_pattern=r"[\x21-\x7e]{1,64}",
    ),
    Profile(
        name="llamacpp-messages",
        wire="messages",
        base_url="http://127.0.0.1:8080",
        base_env=("LLAMACPP_BASE_URL",),
        key_env=("LLAMACPP_API_KEY",),
        key_required=False,
        auth="x-api-key",
        output_tokens=32_000,
        renames=(("stop", "stop_sequences"),),
        id_pattern=r"[a-zA-Z0-9_-]{1,64}",
    ),
)

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in _ALL}
"""The providers known by name."""


_CHOICES = {
    "wire": get_args(WireName),
    "auth": get_args(Auth),
    "output": ("json_schema", "json_object"),
    "file_urls": ("", "file_data", "document_url"),
}


def profiles_of(values: Iterable[Profile | Mapping[str, Json]]) -> tuple[Profile, ...]:
    """Profiles out of profiles and of tables of their fields, as a settings file holds them. Raises `ValueError`."""
    return tuple(value if isinstance(value, Profile) else _profile(value) for value in values)


def _profile(table: Mapping[str, Json]) -> Profile:
    if not isinstance(table, Mapping):
        raise ValueError(f"a provider is a table of a profile's fields, not {type(table).__name__}")
    known = {field.name: field for field in attrs.fields(Profile)}
    fields = dict(table)
    like = fields.pop("like", None)
    base = PROFILES.get(like) if isinstance(like, str) else Profile()
    if base is None:
        raise ValueError(f'no known provider is called "{like}"; known: {", ".join(sorted(PROFILES))}')
    where = f'provider "{fields.get("name", "")}"'
    for name, value in fields.items():
        if name not in known:
            raise ValueError(f'{where}: there is no field "{name}"; known: like, {", ".join(known)}')
        fields[name] = _field(f'{where}: "{name}"', value, getattr(base, name))
    for name, choices in _CHOICES.items():
        if name in fields and fields[name] not in choices:
            raise ValueError(f'{where}: "{name}" must be one of {", ".join(choices)}, not "{fields[name]}"')
    return attrs.evolve(base, **fields)


def _field(where: str, value: Json, example: Json) -> Json:
    """A value of a file as a field of a profile, which is text, a flag, a number, texts or pairs of texts."""
    if isinstance(example, tuple):
        if isinstance(value, Mapping):
            value = list(value.items())
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list or a table, not {type(value).__name__}")
        return tuple(tuple(item) if isinstance(item, (list, tuple)) else item for item in value)
    if type(value) is not type(example):
        raise ValueError(f"{where} must be {type(example).__name__}, not {type(value).__name__}")
    return value
