"""What a tool returns, as the model reads it; what names an agent's definition; which time-out binds a call."""

import dataclasses
import datetime
import json

import anyio
import attrs
import pydantic
import pytest

from treadle import Agent, Allow, CallContext, Image, Limits, Stack, Text, Tool, ToolAnswer, hookimpl, tool
from treadle.context import as_answer
from treadle_script import ScriptModel, call, calls


class Visit(pydantic.BaseModel):
    day: datetime.date
    guests: int


@attrs.frozen
class Stay:
    first: Visit
    until: datetime.date


@dataclasses.dataclass
class Book:
    visits: list[Visit]


LEAP = Visit(day=datetime.date(2024, 2, 29), guests=2)
PLAIN = {"day": "2024-02-29", "guests": 2}


def read(value):
    (part,) = as_answer(value).parts
    return json.loads(part.text)


def test_a_pydantic_model_is_dumped_as_it_says_itself():
    assert read(LEAP) == PLAIN


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ([LEAP], [PLAIN]),
        ({"one": LEAP}, {"one": PLAIN}),
        (Stay(LEAP, datetime.date(2024, 3, 1)), {"first": PLAIN, "until": "2024-03-01"}),
        (Book([LEAP]), {"visits": [PLAIN]}),
    ],
    ids=["list", "dict", "attrs", "dataclass"],
)
def test_a_pydantic_model_inside_of_something_else_is_dumped_too(value, plain):
    assert read(value) == plain


def test_text_stays_text_and_parts_stay_parts():
    image = Image("sha256:00", "image/png")
    assert as_answer("null").parts == (Text("null"),)
    assert as_answer([Text("see"), image]).parts == (Text("see"), image)
    assert as_answer(None).parts == (Text("null"),)


def test_what_has_no_json_form_is_its_str():
    assert as_answer(object).parts == (Text(str(object)),)


def test_an_agents_digest_tells_time_outs_of_tools_apart():
    def of(seconds):
        return Agent(model="script:x", tools=[Tool(name="t", call=print, timeout_seconds=seconds)]).digest

    assert len({of(None), of(1.0), of(2.0)}) == 3


# --- TC-089: time-outs -----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_TC_089_the_most_specific_time_out_wins_and_a_call_can_read_its_own():
    left = {}

    async def note_deadline(context, name):
        left[name] = context.deadline - anyio.current_time()

    async def ordinary(context: CallContext):
        await note_deadline(context, "ordinary")
        await anyio.sleep_forever()

    async def patient(context: CallContext):
        await note_deadline(context, "patient")
        return "done"

    tools = [Tool(name="ordinary", call=ordinary), Tool(name="patient", call=patient, timeout_seconds=60.0)]
    script = ScriptModel([calls(call("ordinary"), call("patient")), "ok"])
    result = await Stack().run(Agent(model=script, tools=tools, limits=Limits(tool_seconds=0.1)), "go")
    answers = {part.name: part.status for m in result.messages if m.role == "tool" for part in m.parts}
    assert answers == {"ordinary": "timeout", "patient": "ok"}
    assert left["ordinary"] <= 0.1 and 50 < left["patient"] <= 60


@pytest.mark.anyio
async def test_TC_089_a_tools_own_shorter_time_out_binds_where_the_agents_is_longer():
    async def slow():
        await anyio.sleep_forever()

    made = tool(slow, timeout_seconds=0.05)
    result = await Stack().run(Agent(model=ScriptModel([call("slow"), "ok"]), tools=[made]), "go")
    assert [part.status for m in result.messages if m.role == "tool" for part in m.parts] == ["timeout"]


def test_a_tool_answer_takes_text_for_its_parts():
    assert ToolAnswer(parts="four").parts == (Text("four"),)


# --- TC-133: the kernel's part of it; pipes to a host are treadle-acp's and treadle-mcp's -----------------------------


def wipe(done):
    return Tool(name="wipe", call=lambda: done.append("wiped") or "wiped", needs_approval=True)


@pytest.mark.anyio
async def test_TC_133_an_approval_that_comes_after_the_last_input_is_used_once():
    done = []
    agent = Agent(model=ScriptModel([call("wipe"), "Wiped."]), tools=[wipe(done)])
    async with Stack().open(agent) as driver:
        waiting = (await driver.prompt("go")).waiting
        assert (done, len(waiting)) == ([], 1)
        result = await (await driver.decide({waiting[0].id: Allow()})).result()
    assert (done, result.text) == (["wiped"], "Wiped.")


@pytest.mark.anyio
async def test_TC_133_a_broken_guard_denies_its_call_with_the_reason_and_is_asked_again_for_the_next():
    asked, done = [], []

    class Guard:
        @hookimpl
        def before_tool(self, call):
            asked.append(call.id)
            if len(asked) == 1:
                raise BrokenPipeError("the host is gone")

    tool = Tool(name="wipe", call=lambda: done.append("wiped") or "wiped")
    model = ScriptModel([call("wipe"), call("wipe"), "ok"])
    result = await Stack([Guard()]).run(Agent(model=model, tools=[tool]), "go")
    first, second = [part for m in result.messages if m.role == "tool" for part in m.parts]
    assert (first.status, second.status, done, len(asked)) == ("denied", "ok", ["wiped"], 2)
    assert first.parts[0].text == "The call was denied: The guard guard failed, so the call was not allowed."
