"""Docstrings, structured answers, and what a decorated function does when it is called."""

import dataclasses
import enum
import functools
import json
from typing import Annotated, Literal, Optional, TypedDict

import anyio
import attrs
import pydantic
import pytest
from jsonschema import Draft202012Validator

from treadle.agent import Agent
from treadle.context import CallContext, ToolAnswer, context_parameters
from treadle.errors import InvalidArguments, UsageError
from treadle.functions import decode_output, output_schema, output_tool, tool
from treadle.functions.docstrings import Docs, read_docs
from treadle.messages import Text

# --- TC-125: defaults ------------------------------------------------------------------------------------------


def report(
    topic: str,
    pages: int = 3,
    style: str | None = "plain",
    tags: list[str] = pydantic.Field(default_factory=list),  # noqa: B008
):
    return topic, pages, style, tags


def test_TC_125_only_what_has_no_default_is_required():
    assert tool(report).parameters["required"] == ["topic"]


def test_TC_125_a_call_with_only_the_topic_uses_the_defaults_and_a_fresh_list_each_time():
    made = tool(report)
    first, second = (made.call(**made.decode({"topic": "tea"})) for _ in range(2))
    assert first == second == ("tea", 3, "plain", [])
    assert first[3] is not second[3]


def test_TC_125_an_explicit_null_arrives_as_none():
    made = tool(report)
    assert made.call(**made.decode({"topic": "tea", "style": None})) == ("tea", 3, None, [])


# --- TC-127: instances at every depth ----------------------------------------------------------------------------


class Order(pydantic.BaseModel):
    sku: str
    qty: int


@dataclasses.dataclass
class ADataclass:
    n: int


class Color(enum.Enum):
    RED = "red"


class ATypedDict(TypedDict):
    n: int


@attrs.frozen
class AnAttrs:
    n: int
    order: Order


def many(first: Order, items: list[Order], o: Optional[Order], d: ADataclass, e: Color, t: ATypedDict, a: AnAttrs): ...  # noqa: UP045


SOCKS = {"sku": "socks", "qty": 2}
MANY = {
    "first": SOCKS, "items": [SOCKS, SOCKS], "o": SOCKS, "d": {"n": 1}, "e": "red", "t": {"n": 1},
    "a": {"n": 1, "order": SOCKS},
}  # fmt: skip


def test_TC_127_the_function_gets_instances_at_every_depth():
    socks = Order(sku="socks", qty=2)
    assert tool(many).decode(MANY) == {
        "first": socks, "items": [socks, socks], "o": socks, "d": ADataclass(1), "e": Color.RED, "t": {"n": 1},
        "a": AnAttrs(1, socks),
    }  # fmt: skip


def test_TC_127_a_bad_value_is_refused_with_its_path():
    bad = {**MANY, "items": [SOCKS, {"sku": "socks", "qty": "x"}]}
    with pytest.raises(InvalidArguments, match=r"^items\.1\.qty: Input should be a valid integer\.$"):
        tool(many).decode(bad)


# --- TC-129: docstrings --------------------------------------------------------------------------------------------


def test_TC_129_a_docstring_that_opens_with_its_arguments_is_read():
    @tool
    def find(city: str, unit: str):
        """Args:
        city: The city.
        unit (str): Either c or f.
        """

    assert find.description == ""
    assert find.parameters["properties"]["city"] == {"type": "string", "description": "The city."}
    assert find.parameters["properties"]["unit"]["description"] == "Either c or f."


def test_TC_129_numpy_style_is_read():
    @tool
    def find(city: str, unit: str = "c"):
        """Find the weather.

        It may rain.

        Parameters
        ----------
        city : str
            The city.
        unit : {"c", "f"}, optional
            The unit.

        Returns
        -------
        str
            Words.
        """

    assert find.description == "Find the weather.\n\nIt may rain."
    assert find.parameters["properties"]["city"]["description"] == "The city."
    assert find.parameters["properties"]["unit"]["description"] == "The unit."


def test_TC_129_sphinx_style_is_read():
    @tool
    def find(city: str, unit: str = "c"):
        """Find the weather.

        :param city: The city.
        :param str unit: The unit.
        :returns: Words.
        """

    assert find.description == "Find the weather."
    assert find.parameters["properties"]["city"]["description"] == "The city."
    assert find.parameters["properties"]["unit"]["description"] == "The unit."


def test_TC_129_a_text_for_a_name_that_is_no_parameter_is_ignored():
    @tool
    def find(city: str):
        """Find it.

        Args:
            city: The city.
            town: No such parameter.
        """

    assert find.parameters["properties"] == {"city": {"type": "string", "description": "The city."}}


def test_TC_129_a_text_over_two_lines_with_a_colon_is_kept_whole():
    @tool
    def find(city: str):
        """Find it.

        Args:
            city: The city: its name
                as on the map.
        """

    assert find.parameters["properties"]["city"]["description"] == "The city: its name\nas on the map."


def test_TC_129_without_a_docstring_the_description_is_empty():
    @tool
    def find(city: str): ...

    assert find.description == ""


def test_a_docstring_without_a_parameter_section_is_kept_whole():
    assert read_docs("Find it.\n\n    Note: slow.\n\n    Examples:\n        find()") == Docs(
        "Find it.\n\nNote: slow.\n\nExamples:\n    find()"
    )


def test_the_annotation_describes_before_the_docstring():
    @tool
    def find(city: Annotated[str, "From the annotation."]):
        """Find it.

        Args:
            city: From the docstring.
        """

    assert find.parameters["properties"]["city"]["description"] == "From the annotation."


def test_a_description_may_be_given_or_left_empty():
    def find():
        """Find it."""

    assert tool(find, description="Look.").description == "Look."
    assert tool(find, description="").description == ""


def test_the_docstring_of_a_callable_object_is_that_of_its_call():
    class Finder:
        def __call__(self, city: str):
            """Find it."""

    made = tool(Finder())
    assert (made.name, made.description) == ("Finder", "Find it.")


# --- calling ---------------------------------------------------------------------------------------------------------


def test_plain_functions_among_the_tools_of_an_agent_become_tools():
    def add(a: int, b: int) -> int:
        "Add two integers."
        return a + b

    (made,) = Agent(model="script:x", tools=[add]).tools
    assert (made.name, made.description) == ("add", "Add two integers.")
    assert made.call(**made.arguments('{"a": 17, "b": 25}')) == 42


def test_a_bound_method_keeps_its_object():
    @attrs.define
    class Counter:
        n: int = 0

        def add(self, by: int) -> int:
            self.n += by
            return self.n

    counter = Counter()
    made = tool(counter.add)
    assert made.call(**made.decode({"by": 2})) == 2
    assert counter.n == 2


def test_a_wrapped_function_shows_the_signature_it_wraps():
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * 2

        return wrapper

    @tool
    @twice
    def double(n: int) -> int:
        return n

    assert double.parameters["properties"] == {"n": {"type": "integer"}}
    assert double.call(**double.decode({"n": 4})) == 8


def test_a_class_is_a_tool_by_its_constructor():
    class Parcel:
        """Pack a parcel."""

        def __init__(self, kg: float):
            self.kg = kg

    made = tool(Parcel)
    assert (made.name, made.description) == ("Parcel", "Pack a parcel.")
    assert made.call(**made.decode({"kg": 2})).kg == 2.0


def test_a_concluding_function_gives_a_concluding_answer():
    @tool(concludes=True)
    def finish(note: str) -> str:
        return note

    assert finish.call(note="done") == ToolAnswer(parts=(Text("done"),), concludes=True)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_concluding_async_function_stays_async_and_keeps_its_context(backend):
    @tool(concludes=True)
    async def finish(note: str, context: CallContext[object]) -> str:
        await anyio.lowlevel.checkpoint()
        return note

    async def call():
        return await finish.call(note="done", context=None)

    assert context_parameters(finish.call) == (("context", False),)
    assert anyio.run(call, backend=backend) == ToolAnswer(parts=(Text("done"),), concludes=True)


def test_an_argument_that_is_nested_too_deeply_is_refused():
    @dataclasses.dataclass
    class Node:
        under: Optional["Node"] = None

    @tool
    def walk(node: Node): ...

    given: dict[str, object] = {}
    for _ in range(5000):
        given = {"under": given}
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        walk.decode({"node": given})


# --- structured answers --------------------------------------------------------------------------------


@dataclasses.dataclass
class Weather:
    """What the sky does.

    Attributes:
        degrees: In Celsius.
    """

    degrees: float
    sky: Literal["clear", "grey"] = "clear"


WEATHER = {
    "type": "object",
    "description": "What the sky does.",
    "properties": {
        "degrees": {"type": "number", "description": "In Celsius."},
        "sky": {"enum": ["clear", "grey"], "default": "clear"},
    },
    "required": ["degrees"],
    "additionalProperties": False,
}


@dataclasses.dataclass
class Refused:
    reason: str


def test_a_class_is_its_own_document():
    schema = output_schema(Weather)
    assert (schema.name, schema.schema) == ("Weather", WEATHER)
    assert decode_output(Weather, '{"degrees": 4, "sky": "grey"}') == Weather(4.0, "grey")


def test_a_type_that_is_no_object_stands_in_one():
    assert output_schema(list[int]).schema == {
        "type": "object", "properties": {"value": {"type": "array", "items": {"type": "integer"}}},
        "required": ["value"],
        "additionalProperties": False,
    }  # fmt: skip
    assert decode_output(list[int], '{"value": [1, 2]}') == [1, 2]


def test_several_types_are_a_choice():
    assert decode_output([Weather, Refused], '{"value": {"reason": "night"}}') == Refused("night")
    assert decode_output(Weather | Refused, '{"value": {"degrees": 1}}') == Weather(1.0)
    assert decode_output((int, str), '{"value": "x"}') == "x"


def test_a_type_without_a_name_of_its_own_is_called_answer():
    assert [output_schema(each).name for each in (list[int], Weather | Refused, check)] == ["answer", "answer", "check"]


def test_the_order_of_a_choice_decides():
    @dataclasses.dataclass
    class Wide:
        degrees: float

    assert decode_output(Weather | Wide, '{"value": {"degrees": 1}}') == Weather(1.0)
    assert decode_output(Wide | Weather, '{"value": {"degrees": 1}}') == Wide(1.0)


def test_a_pydantic_model_is_its_own_document():
    assert output_schema(Order).schema["required"] == ["sku", "qty"]
    assert decode_output(Order, json.dumps(SOCKS)) == Order(sku="socks", qty=2)


def test_a_class_that_holds_itself_has_its_definition_beside_it():
    @dataclasses.dataclass
    class Chain:
        n: int
        more: Optional["Chain"] = None

    schema = output_schema(Chain).schema
    assert schema["type"] == "object"
    assert schema["properties"]["more"]["anyOf"][0] == {"$ref": "#/$defs/Chain"}
    assert Draft202012Validator(schema).is_valid({"n": 1, "more": {"n": 2}})
    assert not Draft202012Validator(schema).is_valid({"n": 1, "more": {"n": "2"}})


def test_the_final_answer_concludes_and_its_text_gives_the_value_back():
    final = output_tool(Weather)
    assert (final.name, final.parameters) == ("final_answer", WEATHER)
    assert final.description == "Give the final answer.\n\nWhat the sky does."
    keywords = final.arguments('{"degrees": 21.5}')
    answer = final.call(**keywords)
    assert keywords["answer"] == Weather(21.5)
    assert answer.concludes
    assert decode_output(Weather, answer.parts[0].text) == Weather(21.5)


def test_a_bad_final_answer_is_told_to_the_model():
    with pytest.raises(InvalidArguments, match=r"^degrees must be of type number, not string\.$"):
        output_tool(Weather).arguments('{"degrees": "warm"}')


def check(low: int, high: int) -> range:
    """The span of days.

    Args:
        low: The first day.
        high: The day after the last.
    """
    if high <= low:
        raise ValueError("high must be above low")
    return range(low, high)


def test_a_validator_makes_the_value():
    final = output_tool(check)
    assert final.parameters["properties"]["low"] == {"type": "integer", "description": "The first day."}
    assert final.decode({"low": 1, "high": 4})["answer"] == range(1, 4)
    assert decode_output(check, '{"low": 1, "high": 4}') == range(1, 4)


def test_what_a_validator_refuses_is_told_to_the_model():
    with pytest.raises(InvalidArguments, match=r"^The answer was refused: high must be above low$"):
        output_tool(check).decode({"low": 4, "high": 1})


def test_an_output_without_a_json_form_is_refused():
    with pytest.raises(UsageError, match="Output complex: complex has no JSON form"):
        output_schema(complex)


def test_text_that_is_no_document_is_refused():
    with pytest.raises(InvalidArguments, match="not valid JSON"):
        decode_output(Weather, "It is warm.")
