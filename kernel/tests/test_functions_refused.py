"""What cannot be a tool is refused when it is decorated, with the tool, the parameter and the reason."""

import collections
import dataclasses
import enum
import functools
import sys
from typing import Annotated, Any, Literal

import annotated_types
import attrs
import msgspec
import pytest

import treadle.functions
from treadle.context import CallContext
from treadle.errors import MissingExtra, UsageError
from treadle.functions import output_tool, tool


def refused(function, *words, **options):
    with pytest.raises(UsageError) as error:
        tool(function, **options)
    for word in words:
        assert word in str(error.value)


def test_a_positional_only_parameter_is_refused():
    def half(x: int, /): ...

    refused(half, 'Tool "half"', 'parameter "x" is positional only', 'Remove the "/"')


def test_star_arguments_are_refused():
    def add(*numbers: int): ...

    refused(add, 'Tool "add"', '"*numbers: int" takes arguments that no schema can name')


def test_double_star_arguments_are_refused():
    def send(**fields: str): ...

    refused(send, '"**fields: str"', "take a list or a dict")


def test_a_class_without_a_json_form_is_refused_with_the_path_to_it():
    class Socket: ...

    def send(to: list[Socket]): ...

    refused(send, 'Tool "send": to.[]:', "Socket has no JSON form", "dataclass")


def test_a_field_without_a_json_form_is_refused_with_the_path_to_it():
    @dataclasses.dataclass
    class Holder:
        lock: complex

    def send(holder: Holder): ...

    refused(send, 'Tool "send": holder.lock:', "complex has no JSON form")


def test_a_deque_is_refused():
    def send(items: collections.deque[int]): ...

    refused(send, "deque", "has no JSON form")


def test_a_dict_with_keys_that_are_no_text_is_refused():
    def send(table: dict[tuple[int, int], str]): ...

    refused(send, "JSON has only text for keys")


def test_an_enum_without_a_json_form_is_refused():
    class Mixed(enum.Enum):
        A = 1
        B = "b"

    def pick(one: Mixed): ...

    refused(pick, "the values of", "Mixed are not all text and not all integers")


def test_a_flag_is_refused():
    class Access(enum.IntFlag):
        READ = 1
        WRITE = 2

    def grant(access: Access): ...

    refused(grant, "access", "Access has combinations that no list names")


def test_a_literal_of_enum_members_is_refused():
    class Color(enum.Enum):
        RED = "red"

    def pick(one: Literal[Color.RED]): ...

    refused(pick, 'Tool "pick"')


def test_a_limit_that_does_not_apply_is_refused():
    def pick(on: Annotated[bool, msgspec.Meta(ge=1)]): ...

    refused(pick, 'Tool "pick"', "ge")


def test_a_limit_on_a_class_is_refused():
    @dataclasses.dataclass
    class Order:
        sku: str

    def pick(order: Annotated[Order, annotated_types.MinLen(1)]): ...

    refused(pick, "order", "min_length cannot be checked of Order")


def test_a_limit_that_applies_to_no_member_of_a_union_is_refused():
    def pick(one: Annotated[int | None, annotated_types.MinLen(1)]): ...

    refused(pick, "one", "min_length cannot be checked")


def test_a_predicate_that_nobody_would_check_is_refused():
    def pick(name: Annotated[str, annotated_types.Predicate(str.islower)]): ...

    refused(pick, "Predicate", "Check it in the function")


def test_a_name_that_only_type_checkers_know_is_refused():
    def pick(one: "Nowhere"): ...  # noqa: F821

    refused(pick, 'parameter "one"', '"Nowhere"', "TYPE_CHECKING")


def test_a_field_whose_type_is_not_known_is_refused():
    @dataclasses.dataclass
    class Order:
        item: "Nowhere"  # noqa: F821

    def pick(order: Order): ...

    refused(pick, "order", 'names "Nowhere"')


def test_a_value_in_place_of_a_type_is_refused():
    def pick(one: [int]): ...

    refused(pick, "pick", "[<class 'int'>] is not a type")


def test_a_context_within_another_type_is_refused():
    def pick(context: CallContext | None = None): ...

    refused(pick, "context", "annotated CallContext itself")


def test_a_type_alias_that_contains_itself_is_refused():
    aliases = pytest.importorskip("typing_extensions")
    json_alias = aliases.TypeAliasType("JsonAlias", "list[JsonAlias] | None")

    def pick(value: json_alias): ...

    refused(pick, "JsonAlias")


def test_a_method_in_its_class_body_is_refused():
    with pytest.raises(UsageError, match=r"tool\(object.method\)"):

        class Clerk:
            @tool
            def send(self, to: str): ...


def test_a_classmethod_in_its_class_body_is_refused():
    with pytest.raises(UsageError, match=r"tool\(Class.method\)"):

        class Clerk:
            @tool
            @classmethod
            def send(cls, to: str): ...


def test_a_generator_is_refused():
    def count(n: int):
        yield n

    refused(count, "it is a generator", "CallContext.progress")


def test_a_lambda_needs_a_name():
    refused(lambda: None, "<lambda> cannot name a tool", "tool(name=...)")
    assert tool(lambda: None, name="nothing").name == "nothing"


def test_a_name_that_providers_do_not_take_is_refused():
    def größe(x: int): ...

    refused(größe, "größe cannot name a tool")
    refused(größe, "how big cannot name a tool", name="how big")


def test_a_tool_is_not_made_twice():
    made = tool(print_nothing)
    refused(made, '"print_nothing" is a tool already')


def test_a_value_is_not_a_tool():
    refused("search", "takes a function, not str")


def print_nothing(): ...


def test_an_uncertain_type_variable_is_refused():
    from typing import Generic, TypeVar

    T = TypeVar("T")

    @dataclasses.dataclass
    class Box(Generic[T]):
        it: T

    @dataclasses.dataclass
    class Pair(Box[int], Generic[T]):
        other: T

    def pick(pair: Pair[str]): ...

    refused(pick, "uses the type variable ~T for two types")


def test_an_async_validator_is_refused():
    async def check(answer: int) -> int:
        return answer

    with pytest.raises(UsageError, match="a validator is a plain function"):
        output_tool(check)


def test_without_msgspec_the_missing_part_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "treadle.functions.shapes", raising=False)
    monkeypatch.delattr(treadle.functions, "shapes", raising=False)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(MissingExtra, match=r"pip install 'treadle\[tools\]'"):
        treadle.functions.tool(print_nothing)


def test_importing_the_functions_module_loads_no_library():
    import subprocess

    code = "import sys, treadle.functions; print({'msgspec', 'docstring_parser', 'pydantic'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_what_a_partial_has_bound_is_not_asked_for():
    def send(to: str, text: str, urgent: bool = False): ...

    made = tool(functools.partial(send, "ann", urgent=True))
    assert list(made.parameters["properties"]) == ["text"]
    assert made.name == "send"


def test_the_value_of_any_options_is_kept():
    def find(key: str): ...

    made = tool(
        name="look", description="Look it up.", exclusive=True, replay="reconcile", timeout_seconds=5,
        needs_approval=True,
        reconcile=lambda key: None,
    )(find)  # fmt: skip
    kept = {name: getattr(made, name) for name in ("name", "description", "exclusive", "replay", "timeout_seconds")}
    assert kept == {
        "name": "look", "description": "Look it up.", "exclusive": True, "replay": "reconcile", "timeout_seconds": 5,
    }  # fmt: skip
    assert made.needs_approval and made.reconcile is not None
    assert made.call is find


def test_locals_of_the_caller_do_not_live_as_long_as_the_tool():
    import gc
    import weakref

    @attrs.define(eq=False)
    class Heavy:
        it: Any = None

    def make():
        heavy = Heavy()
        return tool(print_nothing), weakref.ref(heavy)

    made, heavy = make()
    gc.collect()
    assert made.name == "print_nothing" and heavy() is None
