"""The tool seam without msgspec: raw arguments, the kernel's own check, and what a definition must hold."""

import pytest

from treadle.errors import InvalidArguments, UsageError
from treadle.model import ToolSchema
from treadle.tools import Tool, check_object, parse_object


@pytest.mark.parametrize("raw", ["", " ", "\n\t"])
def test_TC_019_empty_arguments_are_no_arguments(raw):
    assert parse_object(raw) == {}


def test_TC_019_a_tool_without_parameters_takes_empty_arguments():
    assert Tool(name="now", call=lambda: None).arguments("") == {}


def test_TC_021_an_object_that_was_encoded_twice_is_unwrapped_once():
    assert parse_object(r'"{\"city\": \"Bern\"}"') == {"city": "Bern"}


def test_TC_021_an_object_that_was_encoded_three_times_is_refused():
    with pytest.raises(InvalidArguments, match="not a JSON object"):
        parse_object(r'"\"{}\""')


def test_TC_021_text_within_an_object_is_not_unwrapped():
    assert parse_object(r'{"body": "{\"a\": 1}"}') == {"body": '{"a": 1}'}


@pytest.mark.parametrize("raw", ["[]", "3", "null", "true", '"[1]"'])
def test_what_is_no_object_is_refused(raw):
    with pytest.raises(InvalidArguments, match="not a JSON object"):
        parse_object(raw)


@pytest.mark.parametrize("raw", ["{", '{"a": 1', '{"a": 1} {"b": 2}', "{'a': 1}", "plain words", '"plain words"'])
def test_what_is_no_json_is_refused(raw):
    with pytest.raises(InvalidArguments, match="not valid JSON"):
        parse_object(raw)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_word_that_is_no_json_number_is_refused_by_name(word):
    with pytest.raises(InvalidArguments, match=f"hold {word}, which is not a JSON number"):
        parse_object(f'{{"x": [{word}]}}')


def test_a_number_beyond_all_floats_is_refused_by_name():
    with pytest.raises(InvalidArguments, match="hold 1e999, which is not a JSON number"):
        parse_object('{"x": [1e999]}')


def test_arguments_that_are_nested_too_deeply_are_refused():
    with pytest.raises(InvalidArguments, match="not valid JSON"):
        parse_object('{"a":' * 100_000)


# --- the kernel's own check ---------------------------------------------------------------------------------------


def schema(**properties):
    return {"type": "object", "properties": properties, "required": ["x"], "additionalProperties": False}


FITTING = [
    ("string", "a"), ("integer", 1), ("integer", 1.0), ("number", 1), ("number", 1.5), ("boolean", False),
    ("array", []), ("object", {}), ("null", None), (["string", "null"], None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), FITTING)
def test_a_value_of_the_type_passes_unchanged(kind, value):
    assert check_object({"x": value}, schema(x={"type": kind})) == {"x": value}


REFUSED = [
    ("string", 1, "of type string, not integer"), ("integer", 1.5, "of type integer, not number"),
    ("integer", True, "of type integer, not boolean"), ("number", False, "of type number, not boolean"),
    ("number", "1", "of type number, not string"), ("boolean", 1, "of type boolean, not integer"),
    ("boolean", "false", "of type boolean, not string"), ("array", {}, "of type array, not object"),
    ("object", [], "of type object, not array"), ("null", 0, "of type null, not integer"),
    (["string", "null"], 5, "of type string or null, not integer"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "words"), REFUSED)
def test_a_value_of_another_type_is_refused_in_words(kind, value, words):
    with pytest.raises(InvalidArguments) as error:
        check_object({"x": value}, schema(x={"type": kind}))
    assert str(error.value) == f"x must be {words}."


def test_missing_names_are_all_told():
    with pytest.raises(InvalidArguments, match=r"^Missing: a, b\.$"):
        check_object({}, {"required": ["a", "b"]})


def test_an_unknown_name_is_refused_where_the_schema_is_closed():
    with pytest.raises(InvalidArguments, match=r"^Unknown argument y\. Allowed: x\.$"):
        check_object({"x": 1, "y": 2}, schema(x={}))


def test_an_unknown_name_passes_where_the_schema_is_open():
    assert check_object({"y": 2}, {"type": "object", "properties": {}}) == {"y": 2}


def test_a_rule_without_a_type_lets_everything_pass():
    assert check_object({"x": [1]}, schema(x=True)) == {"x": [1]}


# --- definitions ---------------------------------------------------------------------------------------------------


def test_a_tool_needs_a_name():
    with pytest.raises(UsageError, match="A tool needs a name"):
        Tool(name="", call=print)


def test_reconcile_needs_its_function():
    with pytest.raises(UsageError, match='Tool "pay" says replay="reconcile" but has no reconcile'):
        Tool(name="pay", call=print, replay="reconcile")


@pytest.mark.parametrize(
    ("replay", "safe"), [("pure", True), ("idempotent", True), ("reconcile", True), ("at_most_once", False)]
)
def test_what_may_run_again_is_safe(replay, safe):
    assert Tool(name="pay", call=print, replay=replay, reconcile=lambda key: None).replay_safe is safe


def test_who_does_not_say_is_run_at_most_once():
    assert Tool(name="pay", call=print).replay == "at_most_once"


def test_the_model_is_told_name_description_and_parameters():
    made = Tool(name="now", description="The time.", call=print)
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    assert made.schema == ToolSchema(name="now", description="The time.", parameters=parameters)


def test_a_decoder_of_its_own_takes_the_place_of_the_check():
    made = Tool(name="pay", call=print, decode=lambda given: {"sum": given["x"] * 2})
    assert made.arguments('{"x": 2}') == {"sum": 4}
