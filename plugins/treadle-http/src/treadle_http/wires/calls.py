"""Calls as they go back to a provider: arguments it can parse, and ids that it takes and that pair up."""

from __future__ import annotations

import hashlib
import json
import re

from treadle.plugin import Call, Result
from treadle_http.profiles import Profile

from .fields import parsed


def replayable(arguments: str) -> str:
    """A call's arguments as every server takes them back: a JSON object, unchanged if they are one.

    Nothing becomes `{}`. Servers parse what they once wrote and refuse the session if it is broken, so text that is
    no object goes into one; the call's result has told the model what was wrong.
    """
    if not arguments.strip():
        return "{}"
    try:
        value = parsed(arguments)
        if isinstance(value, dict):
            return arguments
        if isinstance(value, str) and isinstance(parsed(value), dict):
            return value
    except ValueError:
        pass
    return json.dumps({"invalid_json": arguments}, ensure_ascii=False)


def is_object(arguments: str) -> bool:
    """Whether arguments are whole: nothing, an object, or an object as text."""
    try:
        return not arguments.strip() or isinstance(parsed(arguments), (dict, str))
    except ValueError:
        return False


def callable_name(name: str) -> str:
    """A tool's name as every provider takes it back: letters, digits, `_` and `-`. Models make up others."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


class CallIds:
    """Call ids as this provider takes them, the same for a call and its result and in each later request."""

    def __init__(self, profile: Profile) -> None:
        self._valid = re.compile(profile.id_pattern)
        self._by_call: dict[str, str] = {}
        self._taken: set[str] = set()
        self._given: set[str] = set()

    def of_call(self, call: Call) -> str:
        """The provider's own id if it fits and names no earlier call (some servers say "0" each time)."""
        for wanted in (call.provider_id, call.id, _short(call.id), _short(f"{call.id}/{len(self._taken)}")):
            if wanted not in self._taken and self._valid.fullmatch(wanted):
                break
        self._by_call[call.id] = wanted
        if call.provider_id:
            self._given.add(call.id)
        self._taken.add(wanted)
        return wanted

    def of_result(self, result: Result) -> str:
        """The id under which the result's call was sent."""
        return self._by_call[result.call_id]

    def is_known(self, result: Result) -> bool:
        """Whether the result's call has an id of a provider; Gemini's older models give none and want none."""
        return result.call_id in self._given


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _short(text: str) -> str:
    """Nine letters and digits that stand for `text`: what Mistral takes, and every server with it."""
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
    return "".join(_DIGITS[number // 62**place % 62] for place in range(9))
