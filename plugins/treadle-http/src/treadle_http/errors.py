"""What a provider's refusal means: from status, headers and body to one `ProviderError`.

Bodies come in many shapes, HTML among them; none is trusted to be JSON. The kinds are the kernel's. No I/O here.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Literal

import attrs

from treadle.plugin import Json, Part, ProviderError, Usage

Kind = Literal[
    "auth",
    "not_found",
    "context_overflow",
    "bad_request",
    "rate_limit",
    "quota",
    "overloaded",
    "server",
    "tool_use_failed",
    "interrupted",
]

MESSAGE_CHARACTERS = 2000
"""How much of a provider's words goes into an error's text; `raw` holds all of them."""

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large|too_many_prompt_tokens"
    r"|max(imum)? context length|exceeds? the (available|maximum|model'?s?) context"
    r"|exceeds the maximum number of tokens|prompt (is )?too long|context window|input is too long"
    r"|reduce the length of the (messages|prompt)",
    re.I,
)
_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|insufficient (balance|credits|funds)|billing", re.I
)
_AUTH = re.compile(
    r"api_key_invalid|invalid_api_key|authentication_error|permission_error"
    r"|(incorrect|invalid) api key|api key (not valid|provided is invalid)",
    re.I,
)
_OVERLOADED = re.compile(r"overloaded|\bunavailable\b|insufficient_system_resource|over capacity", re.I)
_SOON = re.compile(r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?\s*(?:ms|[hms])[a-z]*\s*)+)", re.I)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|h|m|s)", re.I)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@attrs.frozen(kw_only=True)
class Facts:
    """What a body says: the words, its codes in one lower-case text, the status it names, and a retry hint."""

    message: str
    codes: str = ""
    status: int | None = None
    parameter: str = ""
    retry_after_seconds: float | None = None


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """The error of a response with a status that is no success. `headers` are looked up in lower case."""
    text = body.decode("utf-8", "replace")
    facts = facts_of(text)
    kind = kind_of(status, facts)
    if kind == "rate_limit" and headers.get("x-should-retry", "").lower() == "false":
        kind = "quota"
    where = headers.get("location", "")
    message = facts.message or f"The server answered with status {status} and no words."
    if 300 <= status < 400:
        message = f"The server sends this call on to {where or 'another place'}."
    wait = retry_after(headers, time.time())
    return ProviderError(
        kind,
        message,
        status=status,
        retry_after_seconds=facts.retry_after_seconds if wait is None else wait,
        raw=text,
        hint="Check the base URL." if 300 <= status < 400 else _hint(facts),
    )


def error_in_answer(
    value: Json, raw: str, *, partial: Sequence[Part] = (), usage: Usage | None = None
) -> ProviderError:
    """The error that a provider put inside an answer of status 200; `status` is the one that it names, if any."""
    facts = _facts_of_json(value)
    return ProviderError(
        kind_of(facts.status, facts),
        facts.message or "The provider ended its answer with an error and no words.",
        status=facts.status,
        retry_after_seconds=facts.retry_after_seconds,
        partial=partial,
        usage=usage,
        raw=raw,
        hint=_hint(facts),
    )


def kind_of(status: int | None, facts: Facts) -> Kind:
    """One kind out of a status (None inside an answer) and a body's facts."""
    said = f"{facts.codes} {facts.message}"
    if "tool_use_failed" in facts.codes:
        return "tool_use_failed"
    if status == 413 or (status not in (401, 403, 404) and _OVERFLOW.search(said)):
        return "context_overflow"
    if status in (401, 403) or (status in (400, None) and _AUTH.search(said)):
        return "auth"
    if status == 404 or "model_not_found" in facts.codes or "not_found_error" in facts.codes:
        return "not_found"
    if status == 402 or (status in (429, None) and _QUOTA.search(said) and not _comes_back(facts)):
        return "quota"
    if status == 429 or "rate_limit" in facts.codes or "resource_exhausted" in facts.codes:
        return "rate_limit"
    if status in (503, 529) or _OVERLOADED.search(facts.codes):
        return "overloaded"
    if status is None:
        return "bad_request" if "invalid_" in facts.codes else "server"
    return "server" if status >= 500 or status in (408, 409, 425) else "bad_request"


def _comes_back(facts: Facts) -> bool:
    """Whether a spent quota is one of minutes: Gemini calls all limits quotas, and says of these when to come back."""
    lasting = "insufficient_quota" in facts.codes or "perday" in facts.codes
    return facts.retry_after_seconds is not None and not lasting


def _hint(facts: Facts) -> str:
    if facts.parameter and "unsupported_parameter" in facts.codes:
        return f'Leave out "{facts.parameter}" for this model.'
    return ""


# --- bodies -----------------------------------------------------------------------------------------


def facts_of(text: str) -> Facts:
    """The facts of an error body of any shape: JSON, HTML, plain words or nothing."""
    try:
        return _facts_of_json(json.loads(text))
    except (ValueError, RecursionError):
        return Facts(message=_words(text))


def _words(text: str) -> str:
    """Plain words out of text or HTML."""
    title = re.search(r"<title[^>]*>(.{1,500}?)</title>", text[:20_000], re.I | re.S)
    if title is None and "<" in text[:20_000]:
        text = re.sub(r"<[^<>]{0,500}>", " ", text[:20_000])
    return " ".join((title[1] if title else text[: 4 * MESSAGE_CHARACTERS]).split())[:MESSAGE_CHARACTERS]


def _facts_of_json(value: Json) -> Facts:
    if isinstance(value, list) and value:
        value = value[0]  # Google's servers wrap the error object in a list on some routes
    if isinstance(value, str):
        return Facts(message=_words(value))
    if not isinstance(value, dict):
        return Facts(message=_words(json.dumps(value)))
    error = value.get("error")
    inner = error if isinstance(error, dict) else value
    codes = [inner.get(key) for key in ("type", "code", "status")] + [_reasons(inner)]
    message = _message(inner, error if isinstance(error, str) else "")
    return Facts(
        message=message or _words(json.dumps(value, ensure_ascii=False)),
        codes=" ".join(code for code in codes if isinstance(code, str)).lower(),
        status=next((code for key in ("status_code", "code", "status") if _is_status(code := inner.get(key))), None),
        parameter=inner["param"] if isinstance(inner.get("param"), str) else "",
        retry_after_seconds=_retry_info(inner) or _soon(message),
    )


def _message(inner: Mapping[str, Json], error: str) -> str:
    """The words of an error object. A gateway's own word is thin, so what came from upstream is added."""
    detail = inner.get("message") or error or inner.get("detail") or inner.get("error_description")
    if isinstance(detail, list):
        detail = "; ".join(str(item.get("msg", item)) if isinstance(item, dict) else str(item) for item in detail)
    words = _words(detail) if isinstance(detail, str) else _words(json.dumps(detail)) if detail else ""
    metadata = inner.get("metadata")
    upstream = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(upstream, str) and upstream and upstream not in words:
        words = f"{words} ({facts_of(upstream).message})"
    return words[:MESSAGE_CHARACTERS]


def _is_status(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 300 <= value < 600


def _details(inner: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    details = inner.get("details")
    return [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []


def _reasons(inner: Mapping[str, Json]) -> str:
    """`reason` of Google's ErrorInfo details and `quotaId` of its QuotaFailure (google.rpc)."""
    found = [item.get("reason") for item in _details(inner)]
    for item in _details(inner):
        violations = item.get("violations")
        if isinstance(violations, list):
            found += [each.get("quotaId") for each in violations if isinstance(each, dict)]
    return " ".join(each for each in found if isinstance(each, str))


# --- when to come back --------------------------------------------------------------------------------


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the headers ask to wait; `now` is Unix time.

    `retry-after-ms` is OpenAI's own; `retry-after` is seconds or an HTTP date (RFC 9110, section 10.2.3).
    """
    exact = _seconds(headers.get("retry-after-ms", ""), 0.001)
    if exact is not None:
        return exact
    value = headers.get("retry-after", "")
    plain = _seconds(value, 1.0)
    if plain is not None or not value:
        return plain
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _seconds(text: str, unit: float) -> float | None:
    try:
        value = float(text) * unit
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _retry_info(inner: Mapping[str, Json]) -> float | None:
    """`retryDelay` of Google's RetryInfo detail, such as "34.4s" (google.rpc.RetryInfo)."""
    for item in _details(inner):
        delay = item.get("retryDelay")
        if isinstance(delay, str) and delay.endswith("s"):
            return _seconds(delay[:-1], 1.0)
    return None


def _soon(message: str) -> float | None:
    """The wait in words such as "Please try again in 6m0.5s"."""
    found = _SOON.search(message)
    if found is None:
        return None
    return sum(float(count) * _UNIT_SECONDS[unit.lower()] for count, unit in _SPAN.findall(found[1]))
