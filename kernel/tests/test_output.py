"""Structured answers: through the final tool, in words, asked for again, by the provider itself, or not at all."""

import attrs
import pytest
from jsonschema import Draft202012Validator

from treadle import Agent, Allow, Limits, Stack, Tool, hookimpl
from treadle.errors import InvalidArguments, TurnNotCompleted, UsageError
from treadle.functions import decode_output, output_schema
from treadle_script import ScriptModel, call


@attrs.frozen
class City:
    """A city."""

    name: str
    people: int


OSLO = City("Oslo", 700_000)
OSLO_CALL = call("final_answer", name="Oslo", people=700_000)
OSLO_TEXT = '{"name": "Oslo", "people": 700000}'


async def ask(*lines, output=City, native=False, tools=(), limits=None, plugins=()):
    model = ScriptModel(lines)
    model.native_output = native
    agent = Agent(model=model, tools=list(tools), limits=limits or Limits())
    return model, await Stack(plugins).run(agent, "Which city?", output=output)


def offered(model):
    return [[tool.name for tool in each.request.tools] for each in model.asked]


async def test_the_final_tool_gives_the_value_and_ends_the_turn():
    model, result = await ask(OSLO_CALL)
    assert (result.output, result.reason, result.detail, result.steps) == (OSLO, "completed", "", 1)
    assert offered(model) == [["final_answer"]]
    assert result.check() is result


async def test_the_answer_as_words_is_taken_where_it_fits():
    _, result = await ask(OSLO_TEXT)
    assert (result.output, result.steps) == (OSLO, 1)


async def test_a_code_fence_around_it_is_taken_off():
    _, result = await ask(f"```json\n{OSLO_TEXT}\n```")
    assert (result.output, result.steps) == (OSLO, 1)


async def test_words_instead_are_asked_again_once_naming_the_tool():
    model, result = await ask("It is Oslo.", OSLO_CALL)
    assert (result.output, result.steps) == (OSLO, 2)
    asked = model.requests[1][-1]
    assert (asked.role, asked.origin) == ("context", "turn:output")
    assert asked.text.endswith("Call final_answer with the answer.")


async def test_words_again_end_the_turn_with_no_output_and_the_reason():
    model, result = await ask("It is Oslo.", "Oslo, I said.", "never asked")
    assert (result.output, result.reason, result.text, model.left) == (None, "completed", "Oslo, I said.", 1)
    assert result.detail.startswith("no structured answer: The answer is not one JSON object.")
    with pytest.raises(TurnNotCompleted, match="no structured answer"):
        result.check()


async def test_an_empty_answer_is_no_answer_even_where_nothing_is_required():
    @attrs.frozen
    class Loose:
        name: str = "x"

    _, result = await ask(None, None, output=Loose)
    assert (result.output, result.output_error) == (None, "There is no answer yet.")


async def test_a_wrong_document_is_an_error_result_that_the_model_mends():
    _, result = await ask(call("final_answer", name="Oslo", people="many"), OSLO_CALL)
    assert (result.output, result.steps) == (OSLO, 2)


async def test_the_repair_is_a_veto_and_without_vetoes_there_is_none():
    model, result = await ask("It is Oslo.", OSLO_CALL, limits=Limits(max_vetoes=0))
    assert (result.output, model.left) == (None, 1)
    assert result.detail.startswith("no structured answer")


async def test_without_steps_left_there_is_no_repair():
    model, result = await ask("It is Oslo.", OSLO_CALL, limits=Limits(max_steps=1))
    assert (result.output, result.reason, model.left) == (None, "completed", 1)


async def test_a_tool_of_the_agents_that_concludes_is_not_the_answer():
    from treadle import ToolAnswer

    stop = Tool(name="stop", call=lambda: ToolAnswer(parts=OSLO_TEXT, concludes=True))
    _, result = await ask(call("stop"), OSLO_CALL, tools=[stop])
    assert (result.output, result.steps) == (OSLO, 2)


async def test_a_last_tool_result_is_never_taken_for_the_answer():
    look = Tool(name="look", call=lambda: OSLO_TEXT)
    _, result = await ask(call("look"), "There.", "There, I said.", tools=[look])
    assert result.output is None


async def test_a_turn_that_fails_has_no_output_and_no_complaint_about_it():
    _, result = await ask()
    assert (result.reason, result.output, result.output_error) == ("failed", None, "")


async def test_each_turn_of_a_driver_owes_its_own_answer():
    paris = call("final_answer", name="Paris", people=2_000_000)
    agent = Agent(model=ScriptModel([OSLO_CALL, "hm", paris]))
    async with Stack().open(agent, output=City) as driver:
        assert (await driver.prompt("one")).output == OSLO
        assert (await driver.prompt("two")).output == City("Paris", 2_000_000)


async def test_an_answer_is_given_after_a_decision_too():
    risky = Tool(name="risky", call=lambda: "done", needs_approval=True)
    agent = Agent(model=ScriptModel([call("risky"), OSLO_CALL]), tools=[risky])
    async with Stack().open(agent, output=City) as driver:
        first = await driver.prompt("go")
        assert (first.reason, first.output, first.output_error) == ("waiting", None, "")
        receipt = await driver.decide({first.waiting[0].id: Allow()})
        assert (await receipt.result()).output == OSLO


async def test_an_answer_longer_than_a_result_may_be_stays_whole():
    long = "x" * 1000
    _, result = await ask(call("final_answer", name=long, people=1), limits=Limits(result_bytes=100))
    assert result.output == City(long, 1)


async def test_an_objection_of_a_plugin_comes_before_the_repair():
    class Once:
        @hookimpl
        def on_turn_stopping(self, context):
            return "Think." if not context.vetoes else None

    model, result = await ask("hm", "hm", OSLO_CALL, plugins=[Once()])
    assert result.output == OSLO
    assert [m[-1].origin for m in model.requests[1:]] == ["plugin:once", "turn:output"]


async def test_a_tool_of_the_agent_named_like_the_final_tool_is_refused():
    mine = Tool(name="final_answer", call=print)
    with pytest.raises(UsageError, match="final_answer"):
        await ask(OSLO_CALL, tools=[mine])


# --- by the provider itself ------------------------------------------------------------------------------------------


async def test_a_provider_that_writes_answers_itself_gets_the_schema_and_no_tool():
    model, result = await ask(OSLO_TEXT, native=True)
    assert (result.output, offered(model)) == (OSLO, [[]])
    assert model.asked[0].request.output == output_schema(City)


async def test_with_tools_it_gets_the_final_tool_first_and_the_schema_when_asked_again():
    look = Tool(name="look", call=lambda: "north")
    model, result = await ask(call("look"), "Oslo.", OSLO_TEXT, native=True, tools=[look])
    assert result.output == OSLO
    assert offered(model) == [["look", "final_answer"], ["look", "final_answer"], []]
    assert [each.request.output is None for each in model.asked] == [True, True, False]
    assert model.requests[2][-1].text.endswith("as one JSON object and nothing else.")


async def test_other_providers_never_get_the_schema():
    model, _ = await ask("hm", OSLO_CALL)
    assert [each.request.output for each in model.asked] == [None, None]


# --- unions, functions, schemas --------------------------------------------------------------------------------------


@attrs.frozen
class Nothing:
    """No city fits."""

    why: str


async def test_a_union_gives_whichever_fits():
    _, result = await ask(call("final_answer", value={"why": "too vague"}), output=City | Nothing)
    assert result.output == Nothing("too vague")


async def test_a_plain_function_validates_and_what_it_raises_is_mended():
    def capital(name: str):
        if name != "Oslo":
            raise ValueError("that is no capital of Norway")
        return name.upper()

    _, result = await ask(call("final_answer", name="Bergen"), call("final_answer", name="Oslo"), output=capital)
    assert (result.output, result.steps) == ("OSLO", 2)


SCHEMA = {
    "title": "City",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "people": {"type": "integer", "minimum": 0},
        "kind": {"enum": ["town", 1]},
        "near": {"type": "array", "items": {"$ref": "#/$defs/place"}, "maxItems": 2},
        "state": {"anyOf": [{"type": "null"}, {"const": True}]},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"place": {"type": ["string", "null"], "pattern": "^[A-Z]"}},
}


async def test_a_json_schema_gives_plain_data():
    model, result = await ask(call("final_answer", name="Oslo", people=1.0), output=SCHEMA)
    assert result.output == {"name": "Oslo", "people": 1.0}
    assert model.asked[0].request.tools[0].parameters == SCHEMA


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"name": "Oslo", "near": ["Moss", null]}', ""),
        ('{"name": "Oslo", "state": null, "kind": 1.0}', ""),
        ("{}", "the answer lacks name."),
        ('{"name": 7}', "name must be of type string, not integer."),
        ('{"name": ""}', "name must have a length of at least 1."),
        ('{"name": "x", "people": -1}', "people must be at least 0."),
        ('{"name": "x", "kind": true}', 'kind must be one of ["town", 1].'),
        ('{"name": "x", "near": ["Moss", 3]}', "near.1 must be of type string or null, not integer."),
        ('{"name": "x", "near": ["moss"]}', "near.0 must match ^[A-Z]."),
        ('{"name": "x", "near": ["A", "B", "C"]}', "near must have a length of at most 2."),
        ('{"name": "x", "state": 1}', "state fits none of the 2 forms that it may have."),
        ('{"name": "x", "age": 3}', "the answer has no age; it has name, people, kind, near, state."),
        ('{"people": -1}', "the answer lacks name. people must be at least 0."),
    ],
)
def test_a_document_is_checked_against_the_schema_as_a_validator_of_others_does(document, words):
    import json

    assert Draft202012Validator(SCHEMA).is_valid(json.loads(document)) is (words == "")
    if not words:
        assert decode_output(SCHEMA, document) == json.loads(document)
        return
    with pytest.raises(InvalidArguments) as refused:
        decode_output(SCHEMA, document)
    assert f"{refused.value}" == words


def test_a_schema_that_is_no_object_stands_in_one():
    schema = {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
    assert decode_output(schema, '{"value": [1, 2]}') == [1, 2]
    with pytest.raises(InvalidArguments, match=r"value\.1 must be of type integer"):
        decode_output(schema, '{"value": [1, "2"]}')
    Draft202012Validator.check_schema(output_schema(schema).schema)


def test_a_reference_to_nowhere_is_the_callers_fault():
    with pytest.raises(UsageError, match=r'"#/\$defs/gone"'):
        decode_output({"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}}, '{"a": 1}')
