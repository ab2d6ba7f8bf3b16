from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from treadle.plugin import UsageError
from treadle_cli.composition import Acting, Composing, compose, make_agent, read_value
from treadle_cli.places import data_folder, default_store

if TYPE_CHECKING:
    from conftest import Home


def model(**env: str) -> object:
    return make_agent(Acting(), compose(Composing(), env), env).model


def test_the_model_is_the_local_one_where_nobody_names_one(home: Home) -> None:
    assert model() == "local:smollm2"


def test_the_environment_names_a_model(home: Home) -> None:
    assert model(TREADLE_MODEL="script:hi") == "script:hi"


def test_the_settings_file_names_a_model_before_the_environment(home: Home) -> None:
    home.write("treadle.toml", 'model = "script:calc"\n')
    assert model(TREADLE_MODEL="script:hi") == "script:calc"


def test_an_option_names_a_model_before_all(home: Home) -> None:
    home.write("treadle.toml", 'model = "script:calc"\n')
    assert make_agent(Acting(model="script:hi"), compose(Composing(), {}), {}).model == "script:hi"


def test_the_settings_file_names_the_store(home: Home) -> None:
    home.write("treadle.toml", 'store = "sqlite:///here.db"\n')
    composed = compose(Composing(), {})
    assert (composed.store, composed.named) == ("sqlite:///here.db", True)


def test_without_a_store_nothing_is_kept_and_the_user_is_told(home: Home) -> None:
    composed = compose(Composing(plugins=("no:sqlite",)), {})
    assert (composed.store, composed.kept) == ("memory:", False)
    assert any("pip install treadle-sqlite" in note for note in composed.notes)


def test_two_places_for_one_session_are_refused() -> None:
    with pytest.raises(UsageError, match="--store and --db say different things"):
        Composing(store="sqlite:///a.db", db="b.db")


def test_the_data_folder_follows_home_then_xdg_then_the_users_own() -> None:
    assert data_folder({"TREADLE_HOME": "/t", "XDG_DATA_HOME": "/x"}) == Path("/t")
    assert data_folder({"XDG_DATA_HOME": "/x"}) == Path("/x/treadle")
    assert data_folder({"XDG_DATA_HOME": "relative"}) == Path.home() / ".local/share/treadle"
    assert default_store({"XDG_DATA_HOME": "/x"}) == "sqlite:////x/treadle/sessions.db"


def test_the_folder_of_the_default_store_is_the_users_alone(home: Home) -> None:
    home.here("hi", "-m", "script:hi")
    assert (home.folder / "home").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("true", True), ("[1]", [1]), ("END", "END"), ("", "")])
def test_a_parameter_is_json_or_text(text: str, value: object) -> None:
    assert read_value(text) == value
