"""The scripted model: its lines, its files, and playing a recorded session again."""

import json

import pytest

from treadle import Agent, Stack, Tool
from treadle.errors import ProviderError, UsageError
from treadle.messages import Text
from treadle.store import MemoryStore
from treadle_script import Script, ScriptModel, ScriptSettings, call, calls, read_script

ADD = Tool(name="add", parameters={"type": "object"}, call=lambda a, b: str(a + b))


async def test_each_request_takes_the_next_line_whatever_was_asked():
    model = ScriptModel([call("add", a=1, b=2), "three", lambda request: f"{len(request.messages)} messages"])
    stack = Stack(store=MemoryStore())
    agent = Agent(model=model, tools=[ADD])
    assert (await stack.run(agent, "1 + 2?", session="s")).text == "three"
    assert model.left == 1
    assert (await stack.run(agent, "how many?", session="s")).text == "5 messages"
    assert [len(messages) for messages in model.requests] == [1, 3, 5]


async def test_a_script_that_is_over_says_which_line_was_wanted_and_last_repeats():
    result = await Stack().run(Agent(model=ScriptModel([], ref="script:x")), "hi")
    assert "the script script:x has no line 1" in result.detail
    model = ScriptModel(["again"], last=True)
    assert [(await Stack().run(Agent(model=model), "hi")).text for _ in range(3)] == ["again"] * 3


async def test_text_streams_word_by_word_and_joins_to_what_was_written():
    async with Stack().stream(Agent(model=ScriptModel(["  one two\n three "])), "hi") as stream:
        pieces = [text async for text in stream.text()]
    assert pieces == ["  one", " two", "\n three "]


async def test_a_file_is_a_script(tmp_path):
    lines = ["hello", {"text": "Let me add.", "calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}, {"text": "5"}]
    (tmp_path / "sum.json").write_text(json.dumps(lines))
    stack = Stack([Script(ScriptSettings(folder=str(tmp_path)))])
    agent = Agent(model="script:sum", tools=[ADD])
    async with stack, stack.open(agent) as driver:
        assert (await driver.prompt("hi")).text == "hello"
        result = await driver.prompt("2 + 3?")
    assert (result.text, result.messages[1].parts[0]) == ("5", Text("Let me add."))


@pytest.mark.parametrize(
    ("text", "words"),
    [("{}", "holds no list"), ("[1]", "reply 1"), ('["a", {"txt": 1}]', "reply 2"), ("[", "not valid JSON")],
)
def test_a_file_that_is_no_script_names_file_and_reply(tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        read_script(path)
    assert "bad.json" in str(caught.value)


def test_a_script_that_is_not_there_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(UsageError, match="There is no script"):
        Script(ScriptSettings(folder=str(tmp_path))).open_model("script:nothing")
    assert Script().open_model("openai:gpt-5") is None


async def test_a_recorded_session_is_played_again_call_for_call():
    store = MemoryStore()
    model = ScriptModel([calls(call("add", a=1, b=2), call("add", a=3, b=4)), "3 and 7"])
    first = await Stack(store=store).run(Agent(model=model, tools=[ADD]), "add", session="s")
    events = await Stack(store=store).sessions(store).read("s")
    again = await Stack().run(Agent(model=ScriptModel.replay(events), tools=[ADD]), "add")
    assert next(m for m in again.messages if m.role == "tool").parts[0].parts == (Text("3"),)
    assert (again.text, again.steps) == (first.text, first.steps)


async def test_a_fault_in_a_script_is_raised_at_its_place():
    from treadle.model import TextDelta

    result = await Stack().run(
        Agent(model=ScriptModel([[TextDelta("half"), ProviderError("server", "as written")]])), "x"
    )
    assert (result.reason, "as written" in result.detail) == ("failed", True)
