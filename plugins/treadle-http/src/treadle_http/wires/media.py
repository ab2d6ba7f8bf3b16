"""Images and documents as providers take them: by URL, or as data inside a URL. Bytes in a store are not read here."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote_to_bytes

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


def data_of(source: str) -> tuple[str, str] | None:
    """Media type and base64 text of a data URL (RFC 2397), None for any other source. Raises `ProviderError`."""
    if not source.startswith("data:"):
        return None
    head, comma, data = source[5:].partition(",")
    kind, *options = head.split(";")
    if not comma:
        raise bad_request("A data URL has no comma, so it holds no data.", "Write it as data:TYPE;base64,DATA.")
    if "base64" not in options:
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return kind or "text/plain", data


def words_of(data: str) -> str:
    """The text that base64 text stands for. Raises `ProviderError` if it is none."""
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        hint = "Give the document as base64 of UTF-8 text, or another media type."
        raise bad_request("A document said to be text holds no UTF-8 text.", hint) from None
