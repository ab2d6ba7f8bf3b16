"""Which references are ours, what can be set, and that a password is shown nowhere."""

import pytest

from treadle.plugin import SettingsError, StoreFault, UsageError
from treadle_postgres import Postgres
from treadle_postgres.testing import free_port


@pytest.mark.parametrize("ref", ["postgresql://a@b/c", "postgres://b/c", "postgresql:///c?host=/run"])
def test_connection_uris_are_ours(ref):
    assert Postgres().open_store(ref).ref == ref


@pytest.mark.parametrize("ref", ["sqlite:///a.db", "postgresql", "pg://a", "memory:"])
def test_other_references_are_left_to_others(ref):
    assert Postgres().open_store(ref) is None


@pytest.mark.parametrize(
    "ref", ["postgresql:app", "postgres:", "postgresql://h/d?no_such_option=1", "postgresql://[::1"]
)
def test_what_is_no_uri_says_how_to_write_one(ref):
    with pytest.raises(UsageError, match="postgresql://user@host"):
        Postgres().open_store(ref)


@pytest.mark.parametrize(
    "setting",
    [{"schema": "Drop Table"}, {"schema": 'x"; --'}, {"connections": 0}, {"lease_seconds": -1}, {"poll_seconds": 0}],
)
def test_a_setting_that_makes_no_sense_is_named(setting):
    with pytest.raises(SettingsError, match=next(iter(setting))):
        Postgres.Settings(**setting)


async def test_a_server_that_is_not_there_is_a_fault_that_names_it_and_never_the_password():
    port = free_port()
    store = Postgres().open_store(f"postgresql://me:secret@127.0.0.1:{port}/app?password=secret")
    assert store.ref == f"postgresql://me:***@127.0.0.1:{port}/app?password=***"
    with pytest.raises(StoreFault, match=f"me:.*{port}/app.*[Cc]onnection refused") as caught:
        await store.open("s", write=True)
    assert "secret" not in str(caught.value)
    await store.close()


async def test_closing_a_store_that_was_never_used_connects_to_nothing():
    await Postgres().open_store(f"postgresql://127.0.0.1:{free_port()}/app").close()
