"""Images and documents as providers take them: by URL, or as data inside a URL. Bytes in a store are not read here."""

from __future__ import annotations

from treadle.plugin import ProviderError


def bad_request(message: str, hint: str) -> ProviderError:
    """The error for a request that a wire cannot say."""
    return ProviderError("bad_request", message, hint=hint)


def reachable(source: str, what: str) -> str:
    """`source`, if it is a URL that a provider can read."""
    if source.startswith(("https://", "http://", "data:")):
        return source
    raise bad_request(
        f'The {what} "{source[:80]}" is not a URL, and this plugin cannot read the bytes behind it.',
        f"Give the {what} as an http, https or data URL.",
    )
