"""Which file a reference names, what can be set, and what importing costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.plugin import SettingsError, UsageError
from treadle_sqlite import Sqlite
from treadle_sqlite.settings import file_of


@pytest.mark.parametrize(
    ("ref", "path"),
    [
        ("sqlite:////srv/a b/app.db", "/srv/a b/app.db"),
        ("sqlite:////srv/ü%20.db", "/srv/ü%20.db"),
        ("sqlite:///app.db", "here/app.db"),
        ("sqlite:///sub/app.db", "here/sub/app.db"),
        ("sqlite:///../app.db", "here/../app.db"),
    ],
)
def test_three_slashes_name_a_relative_and_four_an_absolute_path(ref, path, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert file_of(ref) == tmp_path / path


def test_a_relative_path_counts_from_the_folder_at_opening(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Sqlite().open_store("sqlite:///app.db")
    monkeypatch.chdir("/")
    assert store.database.path == tmp_path / "app.db"


@pytest.mark.parametrize("ref", ["memory:", "jsonl:///a", "sqlite3:///a.db", "postgresql://h/sqlite:", "sqlite", ""])
def test_other_references_are_left_to_others(ref):
    assert Sqlite().open_store(ref) is None


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("sqlite:", "names no file"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "memory:"),
        ("sqlite://app.db", "three slashes"),
        ("sqlite:app.db", "three slashes"),
        ("sqlite:///app.db?timeout=3", "Sqlite.Settings"),
        ("sqlite:///a\0b", "NUL"),
    ],
)
def test_a_reference_that_names_no_file_says_how_to_write_one(ref, said):
    with pytest.raises(UsageError, match=said) as caught:
        Sqlite().open_store(ref)
    assert "sqlite:///relative.db" in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [{"durability": "most"}, {"busy_seconds": 0}, {"lease_seconds": -1.0}, {"poll_seconds": float("nan")}],
    ids=str,
)
def test_a_wrong_setting_is_named(wrong):
    (field,) = wrong
    with pytest.raises(SettingsError) as caught:
        Sqlite.Settings(**wrong)
    assert (caught.value.plugin, caught.value.field) == ("sqlite", field)


def test_capabilities_are_said_honestly():
    normal = Sqlite().open_store("sqlite:///a.db").capabilities
    assert (normal.processes, normal.hosts, normal.push, normal.durable, normal.transaction, normal.suspends) == (
        True, False, False, True, True, False,
    )  # fmt: skip
    full = Sqlite(Sqlite.Settings(durability="full")).open_store("sqlite:///a.db").capabilities
    assert full.suspends


def loaded_after(script, folder):
    show = "import sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\n{show}"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_plugin_imports_no_database(tmp_path):
    loaded = loaded_after("import treadle_sqlite; treadle_sqlite.Sqlite()", tmp_path)
    assert not loaded & {"sqlite3", "sqlite_utils", "cattrs"}
    assert list(Path(tmp_path).iterdir()) == []


APPEND = """
import anyio
from treadle.plugin import Event, PluginData
from treadle_sqlite import Sqlite

async def main():
    store = Sqlite().open_store("sqlite:///app.db")
    log = await store.open("s", write=True)
    seq = len(await log.read())
    await log.append([Event(seq + 1, 1.0, PluginData("kit/note", 1), owner="kit")], seq)
    await log.close()
    await store.close()

anyio.run(main)
"""


def test_only_making_the_tables_imports_sqlite_utils(tmp_path):
    assert "sqlite_utils" in loaded_after(APPEND, tmp_path)
    assert "sqlite_utils" not in loaded_after(APPEND, tmp_path)
