"""A model's own settings, passed on under the names that its provider gives them."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.plugin import Json
from treadle_http.profiles import Profile

from .media import bad_request

_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})


def passed(params: Mapping[str, Json], profile: Profile, own: frozenset[str]) -> dict[str, Json]:
    """The parameters as the provider calls them; `own` are the names that a wire fills itself.

    Raises `ProviderError` (bad_request) for what cannot be sent, and says which.
    """
    renames = dict(profile.renames)
    out: dict[str, Json] = {}
    for name, value in params.items():
        if name in own:
            raise bad_request(f'The parameter "{name}" is made from the request itself.', "Leave it out of params.")
        if name in profile.refuses:
            raise bad_request(f'{profile.name} does not take the parameter "{name}".', "Leave it out for this model.")
        if name == "n" and value != 1:
            raise bad_request("A step has one answer, so n must be 1.", "Leave it out of params.")
        out[profile.max_tokens if name in _LIMITS else renames.get(name, name)] = value
    return out
