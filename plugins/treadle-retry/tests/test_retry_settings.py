from __future__ import annotations

import tomllib

from treadle_retry import Retry

FILE = """
[plugins.retry]
max_seconds = 30
[plugins.retry.fallbacks]
"openai:gpt-5" = ["anthropic:claude-opus"]
"""


def test_a_settings_file_holds_all_that_can_be_set() -> None:
    settings = Retry.Settings(**tomllib.loads(FILE)["plugins"]["retry"])
    assert (settings.max_seconds, settings.fallbacks) == (30, {"openai:gpt-5": ("anthropic:claude-opus",)})
