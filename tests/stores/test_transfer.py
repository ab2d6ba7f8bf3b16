"""Sessions go from any store to any other and lose nothing."""

import itertools
import json

import pytest
from stores.kinds import KINDS

from treadle import Agent, Stack, tool
from treadle.errors import NoSuchSession, UnlawfulEvent, UnreadableLog, UsageError
from treadle.events import Event, PluginData, SessionMeta, SessionOpen
from treadle.plugin import AdaptedStore, export_sessions, import_sessions, message_to_plain, messages_of
from treadle.store import PostCancel, SessionFilter
from treadle.testing import faults_of
from treadle.testing.stores import stored, written
from treadle_script import ScriptModel, call

PAIRS = [
    *itertools.permutations(KINDS, 2),
    *(pytest.param("postgres", each, marks=pytest.mark.services) for each in KINDS),
    *(pytest.param(each, "postgres", marks=pytest.mark.services) for each in KINDS),
]
ODD = {"nul\0": ["x\0"], "high": "\ud800", "big": 10**40, "e": 0.1}


@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b


async def fill(store):
    """A session with a tool call, one with an unknown plugin's events, a fork of each, one archived."""
    agent = Agent(model=ScriptModel([call("add", a=17, b=25), "42."] * 3), tools=[add])
    stack = Stack(store=store)
    await stack.run(agent, "What is 17 plus 25?", session="sums")
    await stack.run(agent, "Again\0?", session="sums")
    events = [
        Event(1, 5.0, SessionOpen(reason="new", kernel="0.1.0")),
        Event(2, 5.25, PluginData("gone/one", ODD), owner="gone", required=False),
        Event(3, 4.0, SessionMeta(title="Odd", labels=("x",), metadata=ODD)),
        Event(4, 6.0, PluginData("gone/two", None), owner="gone", required=True),
    ]
    await written(store, "odd", events)
    await store.fork("odd", 2, "odd child")
    await stack.sessions(store).fork("sums", name="sums child")
    await stack.sessions(store).fork("sums child", 1, name="sums grandchild")
    await store.archive("sums child")


async def contents(store):
    infos = [*await store.list(), *await store.list(SessionFilter(archived=True))]
    told = {info.id: (info.parent, info.parent_seq, info.archived, info.title, info.head_seq) for info in infos}
    return {name: (about, list(await stored(store, name))) for name, about in told.items()}


async def exported(store, *names, **options):
    return [line async for line in export_sessions(store, names or None, **options)]


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_all_sessions_go_from_any_store_to_any_other_and_lose_nothing(make, source, target):
    one, other = make(source), make(target)
    await fill(one)
    lines = await exported(one)
    assert all(line.isascii() and "\n" not in line for line in lines)
    made = await import_sessions(other, lines)
    assert set(made) == {"sums", "odd", "odd child", "sums child", "sums grandchild"}
    assert await contents(other) == await contents(one)
    assert sorted(await exported(other)) == sorted(lines)


async def test_a_fork_that_goes_alone_takes_what_it_inherited_with_it(store, make):
    await fill(store)
    other = make("memory")
    await import_sessions(other, await exported(store, "sums grandchild"))
    assert list(await stored(other, "sums grandchild")) == list(await stored(store, "sums grandchild"))
    (info,) = await other.list()
    assert info.parent == ""


async def test_whole_sessions_fit_a_store_without_forks(store):
    await fill(store)
    await store.archive("sums child", False)
    four = AdaptedStore(Shelf())
    await import_sessions(four, await exported(store, whole=True))
    for name in ("sums", "odd child", "sums grandchild"):
        assert list(await stored(four, name)) == list(await stored(store, name))


async def test_an_imported_session_goes_on(store, make):
    await fill(store)
    other = make("memory")
    await import_sessions(other, await exported(store, "sums"), name="mine")
    result = await Stack(store=other).run(Agent(model=ScriptModel(["more"])), "Go on", session="mine")
    assert result.text == "more"
    assert faults_of(await stored(other, "mine")) == []


async def test_a_session_that_is_there_is_not_written_over_and_nothing_else_comes_in(store, make):
    await fill(store)
    other = make("sqlite")
    await Stack(store=other).run(Agent(model=ScriptModel(["mine"])), "x", session="sums child")
    before = await contents(other)
    with pytest.raises(UsageError, match='"sums child" is in sqlite:'):
        await import_sessions(other, await exported(store))
    assert await contents(other) == before


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda lines: lines[:-1], "has .* of its .* events"),
        (lambda lines: ["oops", *lines], "line 1"),
        (lambda lines: lines[1:], "does not begin a session"),
        (lambda lines: [lines[0], "{", *lines[2:]], "line 2"),
        (lambda lines: [lines[0].replace('"treadle":1', '"treadle":2'), *lines[1:]], "newer treadle"),
    ],
)
async def test_lines_that_are_no_export_are_refused_naming_the_line(make, spoil, reason):
    source, target = make("memory"), make("memory")
    await fill(source)
    with pytest.raises(UnreadableLog, match=reason):
        await import_sessions(target, spoil(await exported(source, "sums")))
    assert await contents(target) == {}


async def test_a_log_that_no_treadle_wrote_is_refused(make):
    source, target = make("memory"), make("memory")
    await fill(source)
    head, first, *rest = await exported(source, "sums")
    swapped = [head, json.dumps(json.loads(first) | {"type": "turn/start", "data": {}}), *rest]
    with pytest.raises(UnlawfulEvent):
        await import_sessions(target, swapped)
    assert await contents(target) == {}


async def test_several_sessions_cannot_have_one_name(make):
    source, target = make("memory"), make("memory")
    await fill(source)
    with pytest.raises(UsageError, match="several"):
        await import_sessions(target, await exported(source, "sums", "odd"), name="one")
    assert await contents(target) == {}


async def test_nothing_to_import_is_said(make):
    with pytest.raises(UsageError, match="no session in these lines"):
        await import_sessions(make("memory"), ["", "\n"])


async def test_a_missing_session_is_named(store):
    with pytest.raises(NoSuchSession, match="nobody"):
        await exported(store, "nobody")


async def test_posts_are_not_part_of_a_session(make):
    source, target = make("memory"), make("memory")
    await fill(source)
    await source.post("sums", PostCancel())
    lines = await exported(source, "sums")
    await import_sessions(target, lines)
    assert len(lines) == 1 + len(await stored(target, "sums"))


async def test_messages_alone_are_what_was_said_in_order(store):
    await fill(store)
    said = [message_to_plain(message) for message in messages_of(await stored(store, "sums"))]
    assert [(each["role"], each["parts"][0]["kind"]) for each in said] == [
        ("user", "text"),
        ("assistant", "call"),
        ("tool", "result"),
        ("assistant", "text"),
        ("user", "text"),
        ("assistant", "call"),
        ("tool", "result"),
        ("assistant", "text"),
    ]
    assert said[4]["parts"][0]["text"] == "Again\0?"
    assert said[2]["parts"][0]["parts"] == [{"kind": "text", "text": "42"}]


class Shelf(dict):
    """Four methods over a dict."""

    def get_history(self, session_id):
        return self.get(session_id, [])

    def append_messages(self, session_id, messages):
        self[session_id] = [*self.get_history(session_id), *messages]

    def list_sessions(self):
        return list(self)

    def clear(self, session_id=None):
        self.pop(session_id, None)
