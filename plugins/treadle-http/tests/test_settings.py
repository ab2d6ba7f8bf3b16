from __future__ import annotations

import tomllib
from typing import Any

import pytest

from treadle_http import Http, HttpSettings
from treadle_http.profiles import PROFILES

FILE = """
[[plugins.http.providers]]
name = "box"
like = "llamacpp"
base_url = "http://box:8000/v1"
key_env = ["BOX_KEY"]
headers = { "x-team" = "blue" }

[[plugins.http.providers]]
name = "claude-box"
like = "anthropic"
output_tokens = 4096
cache_markers = false
"""


def table(text: str) -> Any:
    return tomllib.loads(text)["plugins"]["http"]


def test_a_settings_file_adds_providers_that_are_like_known_ones() -> None:
    box, claude = HttpSettings(**table(FILE)).providers
    assert (box.name, box.wire, box.base_url, box.key_env) == ("box", "chat", "http://box:8000/v1", ("BOX_KEY",))
    assert box.headers == (("x-team", "blue"),) and box.echo == PROFILES["llamacpp"].echo and not box.key_required
    assert (claude.wire, claude.output_tokens, claude.cache_markers) == ("messages", 4096, False)
    assert claude.headers == PROFILES["anthropic"].headers


def test_a_provider_of_a_settings_file_opens_its_models() -> None:
    model = Http(HttpSettings(**table(FILE))).open_model("claude-box:opus")
    assert model is not None and (model.ref, model.family) == ("claude-box:opus", "claude-box")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "x", "like": "nobody"}, "nobody"),
        ({"name": "x", "url": "http://x"}, '"url"'),
        ({"name": "x", "key_env": "KEY"}, "list"),
        ({"name": "x", "key_required": "no"}, "bool"),
        ({"name": "x", "output_tokens": True}, "int"),
        ("box", "table"),
    ],
)
def test_a_provider_that_a_file_gets_wrong_is_named_with_what_is_wrong(fields: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        HttpSettings(providers=(fields,))


@pytest.mark.parametrize("wire", ["soap", ""])
def test_a_wire_that_does_not_exist_is_refused_with_those_that_do(wire: str) -> None:
    with pytest.raises(ValueError, match="chat, responses, messages, gemini"):
        HttpSettings(providers=({"name": "x", "wire": wire},))
