from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from treadle.plugin import UsageError
from treadle_cli.schemas import read_schema, short_form

if TYPE_CHECKING:
    from conftest import Home

DOG = {"name": "Rex", "age": 3}


def final(**given: Any) -> dict[str, Any]:
    return {"calls": [{"name": "final_answer", "arguments": given}]}


# --- what a schema may be --------------------------------------------------------------------------------------------


def test_the_short_form_is_the_one_that_llm_takes() -> None:
    assert short_form("name, age int, weight float, good bool, bio: one sentence") == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "weight": {"type": "number"},
            "good": {"type": "boolean"},
            "bio": {"type": "string", "description": "one sentence"},
        },
        "required": ["name", "age", "weight", "good", "bio"],
        "additionalProperties": False,
    }


def test_with_newlines_a_description_may_hold_a_comma() -> None:
    made = short_form("name: first, then last\nage int: in years")
    assert made["properties"]["name"]["description"] == "first, then last"
    assert made["properties"]["age"] == {"type": "integer", "description": "in years"}


@pytest.mark.parametrize("text", ["name integer", "first name str", "7up", " , ", "age int int", ": what"])
def test_what_is_no_field_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--schema"):
        read_schema(text)


def test_several_are_an_array_under_items_and_definitions_stay_at_the_root() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    assert read_schema(json.dumps(schema), several=True) == {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {k: v for k, v in schema.items() if k != "$defs"}}},
        "required": ["items"],
        "additionalProperties": False,
        "$defs": schema["$defs"],
    }


def test_a_schema_in_a_file_and_one_as_text_are_the_same(home: Home) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    home.write("a.json", json.dumps(schema))
    assert read_schema("a.json") == read_schema(json.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("text", "words"),
    [("gone.json", "cannot be read"), ('{"a": ', "not JSON"), ("gone.py:Dog", "no file"), ("tools.py:Dog", "no Dog")],
)
def test_what_cannot_be_read_is_a_usage_error(text: str, words: str, home: Home) -> None:
    done = home.here("x", "-m", "script:hi", "--schema", text)
    assert done.exit_code == 2 and words in done.stderr


# --- the answer ------------------------------------------------------------------------------------------------------


def test_the_answer_alone_stands_on_stdout(home: Home) -> None:
    model = home.script("dog", [{"text": "Here:", **final(**DOG)}])
    done = home.run("Invent a dog.", "-m", model, "--schema", "name, age int")
    assert (done.returncode, json.loads(done.stdout)) == (0, DOG)


def test_a_tool_is_used_before_the_answer(home: Home) -> None:
    add = {"calls": [{"name": "add", "arguments": {"a": 17, "b": 25}}]}
    model = home.script("sum", [add, final(total=42)])
    done = home.here("17 + 25?", "-m", model, "-t", "tools.py:add", "--schema", "total int")
    assert json.loads(done.stdout) == {"total": 42}
    assert "add(a=17, b=25)\n  -> 42" in done.stderr


def test_a_wrong_answer_is_mended(home: Home) -> None:
    model = home.script("dog", [final(name="Rex"), final(**DOG)])
    done = home.here("x", "-m", model, "--schema", "name, age int")
    assert (done.exit_code, json.loads(done.stdout)) == (0, DOG)


def test_words_again_and_again_leave_stdout_empty_and_fail(home: Home) -> None:
    model = home.script("words", ["A dog!", "A dog, I said."])
    done = home.here("x", "-m", model, "--schema", "name, age int")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "gave no answer of that form: The answer is not one JSON object. It said: A dog, I said." in done.stderr


def test_several_come_under_items(home: Home) -> None:
    model = home.script("dogs", [final(items=[DOG, DOG])])
    done = home.here("x", "-m", model, "--schema-multi", "name, age int")
    assert json.loads(done.stdout) == {"items": [DOG, DOG]}


def test_a_type_of_a_file_is_a_schema_too(home: Home) -> None:
    home.write("dogs.py", "import attrs\n\n@attrs.frozen\nclass Dog:\n    name: str\n    age: int\n")
    model = home.script("dog", [final(**DOG)])
    done = home.here("x", "-m", model, "--schema", "dogs.py:Dog")
    assert (done.exit_code, json.loads(done.stdout)) == (0, DOG)


def test_the_json_document_holds_the_answer_and_words_have_none(home: Home) -> None:
    model = home.script("dog", [final(**DOG)])
    assert json.loads(home.here("x", "-m", model, "--schema", "name, age int", "--json").stdout)["output"] == DOG
    assert json.loads(home.here("x", "-m", "script:hi", "--json").stdout)["output"] is None


def test_both_forms_of_a_schema_are_too_many(home: Home) -> None:
    assert home.here("x", "-m", "script:hi", "--schema", "a", "--schema-multi", "a").exit_code == 2


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="treadle-local's runtime is not installed")
def test_the_local_model_calls_a_typed_tool_and_answers_by_the_schema(home: Home) -> None:
    """End to end: a real model, a tool with two typed parameters, a structured answer."""
    done = home.run("What is 17 plus 25?", "-m", "local:smollm2", "-t", "tools.py:add", "--schema", "total int")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"total": 42}), done.stderr
    assert "add(a=17, b=25)" in done.stderr
