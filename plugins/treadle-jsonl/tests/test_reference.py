"""Which folder a reference names, and what can be set."""

from pathlib import Path

import pytest

from treadle.plugin import SettingsError, UsageError
from treadle_jsonl import Jsonl
from treadle_jsonl.settings import folder_of


def test_a_relative_folder_counts_from_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folder_of("jsonl:a/b") == tmp_path / "a" / "b"


def test_an_absolute_folder_is_itself():
    assert folder_of("jsonl:/srv/sessions") == Path("/srv/sessions")


@pytest.mark.parametrize("ref", ["sqlite:///a.db", "jsonl", "memory:", "json:a"])
def test_other_references_are_left_to_others(ref):
    assert Jsonl().open_store(ref) is None


@pytest.mark.parametrize("ref", ["jsonl:", "jsonl://host/a", "jsonl:///a", "jsonl:a\0b"])
def test_a_reference_that_names_no_folder_says_how_to_write_one(ref):
    with pytest.raises(UsageError, match="jsonl:relative/folder"):
        Jsonl().open_store(ref)


@pytest.mark.parametrize("setting", [{"durability": "some"}, {"poll_seconds": 0}, {"busy_seconds": -1}])
def test_a_setting_that_makes_no_sense_is_named(setting):
    with pytest.raises(SettingsError, match=next(iter(setting))):
        Jsonl.Settings(**setting)


async def test_a_folder_that_is_a_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    store = Jsonl().open_store(f"jsonl:{tmp_path}/file")
    with pytest.raises(UsageError, match="cannot be used"):
        await store.open("s", write=True)
    assert list(await store.list()) == []
    await store.close()


async def test_reading_makes_no_folder(tmp_path):
    store = Jsonl().open_store(f"jsonl:{tmp_path}/none")
    assert list(await store.list()) == []
    await store.close()
    assert list(tmp_path.iterdir()) == []
