"""Models behind HTTP, for treadle. This module is light: the HTTP library is imported when a model is first called."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import attrs

from treadle.plugin import Model, UsageError, hookimpl

from .profiles import PROFILES, Profile, profiles_of

if TYPE_CHECKING:
    from .client import Client, Clients
    from .wires import Wire

__all__ = ["Http", "HttpSettings", "Profile"]


@attrs.frozen(kw_only=True)
class HttpSettings:
    """Settings of `Http`.

    `providers` adds servers, or takes the place of the ones known by that name; each is a `Profile`, or, from a file,
    a table of its fields in which `like` may name a known provider whose other fields it takes.

    `stream` asks for answers as they are written. `connect_seconds` is how long a connection may take,
    `first_byte_seconds` how long the answer may let wait for its first byte (a model that thinks before it streams, or
    does not stream, is silent till then), `idle_seconds` the longest silence after that.
    """

    providers: tuple[Profile, ...] = attrs.field(default=(), converter=profiles_of)
    stream: bool = True
    connect_seconds: float = 10.0
    first_byte_seconds: float = 600.0
    idle_seconds: float = 120.0


class Http:
    """Opens `provider:model` for the providers of `PROFILES` and of its settings.

    `client` is an httpx or httpx2 `AsyncClient` of the application, used as it is and never closed here.
    """

    Settings = HttpSettings

    def __init__(self, settings: HttpSettings | None = None, *, client: Client | None = None) -> None:
        self._settings = settings or HttpSettings()
        self._profiles: Mapping[str, Profile] = {**PROFILES, **_named(self._settings.providers)}
        self._injected = client
        self._clients: Clients | None = None

    @hookimpl
    def open_model(self, ref: str) -> Model | None:
        """The model of `provider:model`, or None if the provider is not known here."""
        provider, colon, name = ref.partition(":")
        profile = self._profiles.get(provider)
        if not colon or profile is None:
            return None
        if not name:
            raise UsageError(f'"{ref}" names no model. Write it as {provider}:MODEL.')
        from .client import HttpModel

        return HttpModel(
            ref,
            name,
            profile=profile,
            wire=_wire(profile.wire),
            clients=self._shared(),
            stream=self._settings.stream,
        )

    @hookimpl
    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Hold connections while the stack is open, and close them with it."""
        return self._shared().shared()

    def _shared(self) -> Clients:
        if self._clients is None:
            from .client import Clients, Patience

            settings = self._settings
            patience = Patience(
                connect_seconds=settings.connect_seconds,
                first_byte_seconds=settings.first_byte_seconds,
                idle_seconds=settings.idle_seconds,
            )
            self._clients = Clients(patience, self._injected)
        return self._clients


def _wire(name: str) -> Wire:
    if name == "chat":
        from .wires.chat import Chat

        return Chat()
    if name == "messages":
        from .wires.messages import Messages

        return Messages()
    if name == "responses":
        from .wires.responses import Responses

        return Responses()
    if name == "gemini":
        from .wires.gemini import Gemini

        return Gemini()
    raise UsageError(f'There is no wire "{name}". A profile names one of chat, messages, responses and gemini.')


def _named(providers: tuple[Profile, ...]) -> Mapping[str, Profile]:
    out: dict[str, Profile] = {}
    for profile in providers:
        if not profile.name or ":" in profile.name:
            raise UsageError(
                f'The provider name "{profile.name}" is empty or holds a colon. Name it for PROVIDER:MODEL.'
            )
        if profile.name in out:
            raise UsageError(f'Two providers of the settings are named "{profile.name}". Rename one.')
        out[profile.name] = profile
    return out
