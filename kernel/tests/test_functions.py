"""Signatures as people write them: the schema, what decodes, and what is refused.

Each `@signature` states by hand what the model is told, one document that fits with the keywords it becomes, and one
that does not fit with the words the model reads.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
)

import annotated_types
import attrs
import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator

from treadle.context import CallContext, TurnContext
from treadle.errors import InvalidArguments
from treadle.functions import tool

STRING, INTEGER, NUMBER, BOOLEAN, NULL = ({"type": kind} for kind in ("string", "integer", "number", "boolean", "null"))
CASES: list[Any] = []


@attrs.frozen(kw_only=True)
class Case:
    function: Callable[..., object]
    schema: dict[str, Any]
    good: dict[str, Any]
    gives: dict[str, Any]
    bad: dict[str, Any]
    words: str
    seen: bool


def signature(properties, good, gives, bad, words, *, optional=(), defs=None, seen=True):
    """One case. `seen`: JSON Schema alone refuses the bad document too (a format or a constructor it cannot see)."""

    def take(function):
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [name for name in properties if name not in optional]
        if required:
            schema["required"] = required
        if defs:
            schema["$defs"] = defs
        case = Case(function=function, schema=schema, good=good, gives=gives, bad=bad, words=words, seen=seen)
        CASES.append(pytest.param(case, id=f"{len(CASES):02}-{function.__name__}"))
        return function

    return take


# --- JSON's own types ------------------------------------------------------------------------------------------


@signature({}, {}, {}, {"x": 1}, "Unknown argument x. Allowed: none.")
def nothing(): ...


@signature(
    {"city": STRING}, {"city": "Bern"}, {"city": "Bern"}, {"city": 5}, "city must be of type string, not integer."
)
def text(city: str): ...


@signature({"n": INTEGER}, {"n": 3}, {"n": 3}, {"n": True}, "n must be of type integer, not boolean.")
def whole(n: int): ...


@signature({"n": INTEGER}, {"n": 3.0}, {"n": 3}, {"n": 3.5}, "n must be of type integer, not number.")
def whole_sent_as_a_float(n: int): ...


@signature({"n": INTEGER}, {"n": 2**70}, {"n": 2**70}, {"n": "3"}, "n must be of type integer, not string.")
def whole_and_large(n: int): ...


@signature({"x": NUMBER}, {"x": 3}, {"x": 3.0}, {"x": "3"}, "x must be of type number, not string.")
def number(x: float): ...


@signature({"x": NUMBER}, {"x": -1.5}, {"x": -1.5}, {"x": float("nan")}, "x must be a finite number.", seen=False)
def number_not_nan(x: float): ...


@signature({"x": NUMBER}, {"x": 1e308}, {"x": 1e308}, {"x": float("inf")}, "x must be a finite number.", seen=False)
def number_not_infinite(x: float): ...


@signature({"x": NUMBER}, {"x": 1}, {"x": 1.0}, {"x": False}, "x must be of type number, not boolean.")
def number_not_boolean(x: float): ...


@signature({"on": BOOLEAN}, {"on": True}, {"on": True}, {"on": "false"}, "on must be of type boolean, not string.")
def flag(on: bool): ...


@signature({"on": BOOLEAN}, {"on": False}, {"on": False}, {"on": 1}, "on must be of type boolean, not integer.")
def flag_not_a_number(on: bool): ...


@signature({"gone": NULL}, {"gone": None}, {"gone": None}, {"gone": 0}, "gone must be of type null, not integer.")
def only_none(gone: None): ...


@signature({"a": {}}, {"a": {"b": [1]}}, {"a": {"b": [1]}}, {"a": 1, "b": 2}, "Unknown argument b. Allowed: a.")
def anything(a: Any): ...


@signature({"a": {}}, {"a": None}, {"a": None}, {}, "Missing: a.")
def not_annotated(a): ...


@signature(
    {"a": {}}, {"a": [1.5]}, {"a": [1.5]}, {"a": {"b": [float("nan")]}},
    "a must hold finite numbers only, no NaN and no Infinity.", seen=False,
)  # fmt: skip
def anything_but_nan(a: object): ...


@signature({"a": STRING, "b": INTEGER}, {"b": 1, "a": ""}, {"a": "", "b": 1}, {}, "Missing: a, b.")
def two(a: str, b: int): ...


# --- defaults and None -----------------------------------------------------------------------------------------


@signature(
    {"n": {**INTEGER, "default": 3}}, {}, {"n": 3}, {"n": None}, "n must be of type integer, not null.", optional=["n"]
)
def default(n: int = 3): ...


@signature(
    {"a": {"anyOf": [STRING, NULL]}}, {"a": None}, {"a": None}, {}, "Missing: a.",
)  # fmt: skip
def optional_without_default(a: Optional[str]): ...  # noqa: UP045


@signature(
    {"a": {"anyOf": [STRING, NULL], "default": None}}, {}, {"a": None}, {"a": 1},
    "a must be of type string or null, not integer.", optional=["a"],
)  # fmt: skip
def optional_with_default(a: str | None = None): ...


@signature(
    {"a": {"anyOf": [INTEGER, NULL], "default": None}}, {"a": None}, {"a": None}, {"a": "1"},
    "a must be of type integer or null, not string.", optional=["a"],
)  # fmt: skip
def none_that_the_annotation_forgot(a: int = None): ...  # noqa: RUF013


@signature(
    {"a": {"anyOf": [STRING, NULL], "default": "plain"}}, {"a": None}, {"a": None}, {"a": []},
    "a must be of type string or null, not array.", optional=["a"],
)  # fmt: skip
def null_is_not_the_default(a: str | None = "plain"): ...


@signature(
    {"tags": {"type": "array", "items": STRING, "default": []}}, {}, {}, {"tags": "a"},
    "tags must be of type array, not string.", optional=["tags"],
)  # fmt: skip
def list_default(tags: list[str] = []): ...  # noqa: B006


@signature({"x": NUMBER}, {}, {}, {"x": None}, "x must be of type number, not null.", optional=["x"])
def default_without_a_plain_form(x: float = object()): ...


@signature(
    {"n": {**INTEGER, "default": 1}},
    {"n": 2},
    {"n": 2},
    {"n": 1.5},
    "n must be of type integer, not number.",
    optional=["n"],
)
def keyword_only(*, n: int = 1): ...


# --- containers ------------------------------------------------------------------------------------------------


@signature(
    {"xs": {"type": "array", "items": INTEGER}}, {"xs": [1, 2]}, {"xs": [1, 2]}, {"xs": [1, "2"]},
    "xs.1 must be of type integer, not string.",
)  # fmt: skip
def integers(xs: list[int]): ...


@signature(
    {"xs": {"type": "array"}}, {"xs": [1, "a"]}, {"xs": [1, "a"]}, {"xs": {}}, "xs must be of type array, not object."
)
def bare_list(xs: list): ...


@signature(
    {"xs": {"type": "array", "items": STRING}}, {"xs": ["a"]}, {"xs": ["a"]}, {"xs": "a"},
    "xs must be of type array, not string.",
)  # fmt: skip
def old_style_list(xs: typing.List[str]): ...  # noqa: UP006


@signature(
    {"xs": {"type": "array", "items": STRING}}, {"xs": ["a"]}, {"xs": ["a"]}, {"xs": [None]},
    "xs.0 must be of type string, not null.",
)  # fmt: skip
def sequence(xs: Sequence[str]): ...


@signature(
    {"xs": {"type": "array", "items": NUMBER}}, {"xs": [1]}, {"xs": [1.0]}, {"xs": [0.5, float("-inf")]},
    "xs.1 must be a finite number.", seen=False,
)  # fmt: skip
def iterable_of_numbers(xs: Iterable[float]): ...


@signature(
    {"xs": {"type": "array", "items": STRING, "uniqueItems": True}}, {"xs": ["a", "b"]}, {"xs": {"a", "b"}},
    {"xs": [1]},
    "xs.0 must be of type string, not integer.",
)  # fmt: skip
def set_of_text(xs: set[str]): ...


@signature(
    {"xs": {"type": "array", "items": INTEGER}}, {"xs": [1, 2]}, {"xs": (1, 2)}, {"xs": [[]]},
    "xs.0 must be of type integer, not array.",
)  # fmt: skip
def any_number_of(xs: tuple[int, ...]): ...


@signature(
    {"p": {"type": "array", "prefixItems": [NUMBER, STRING], "minItems": 2, "maxItems": 2, "items": False}},
    {"p": [1, "m"]}, {"p": (1.0, "m")}, {"p": [1, 2]}, "p.1 must be of type string, not integer.",
)  # fmt: skip
def pair(p: tuple[float, str]): ...


@signature(
    {"p": {"type": "array", "prefixItems": [INTEGER, INTEGER], "minItems": 2, "maxItems": 2, "items": False}},
    {"p": [1, 2]}, {"p": (1, 2)}, {"p": [1]}, "p must be of type array of length 2, not 1.",
)  # fmt: skip
def pair_of_wrong_length(p: tuple[int, int]): ...


@signature(
    {"d": {"type": "object", "additionalProperties": INTEGER}}, {"d": {"a": 1}}, {"d": {"a": 1}},
    {"d": {"a": 1, "b": "x"}},
    "d.b must be of type integer, not string.",
)  # fmt: skip
def counts(d: dict[str, int]): ...


@signature(
    {"d": {"type": "object"}}, {"d": {"a": None}}, {"d": {"a": None}}, {"d": []}, "d must be of type object, not array."
)
def bare_dict(d: dict): ...


@signature({"d": {"type": "object"}}, {"d": {}}, {"d": {}}, {"d": "{}"}, "d must be of type object, not string.")
def mapping_of_anything(d: Mapping[str, Any]): ...


@signature(
    {"d": {"type": "object", "propertyNames": {"pattern": "^-?[0-9]+$"}, "additionalProperties": STRING}},
    {"d": {"7": "x"}}, {"d": {7: "x"}}, {"d": {"x": "y"}}, "d: a key must be of type integer, not string.",
)  # fmt: skip
def whole_keys(d: dict[int, str]): ...


@signature(
    {"d": {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": INTEGER}},
    {"d": {"a": 1}}, {"d": {"a": 1}}, {"d": {"c": 1}}, "d: a key must be one of \"a\", \"b\", not 'c'.",
)  # fmt: skip
def chosen_keys(d: dict[Literal["a", "b"], int]): ...


@signature(
    {"d": {"type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "object", "additionalProperties": INTEGER}}}},
    {"d": {"a": [{"b": 1}]}}, {"d": {"a": [{"b": 1}]}}, {"d": {"a": [], "c": [{}, {"d": 1, "e": None}]}},
    "d.c.1.e must be of type integer, not null.",
)  # fmt: skip
def deep(d: dict[str, list[dict[str, int]]]): ...


# --- choices ---------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Size(enum.StrEnum):
    S = "s"
    L = "l"


@signature(
    {"u": {"enum": ["c", "f"], "default": "c"}}, {"u": "f"}, {"u": "f"}, {"u": "k"},
    "u must be one of \"c\", \"f\", not 'k'.", optional=["u"],
)  # fmt: skip
def literal(u: Literal["c", "f"] = "c"): ...


@signature({"n": {"enum": [1, 2]}}, {"n": 2}, {"n": 2}, {"n": 3}, "n must be one of 1, 2, not 3.")
def literal_numbers(n: Literal[1, 2]): ...


@signature(
    {"n": {"enum": [1, "auto"]}}, {"n": "auto"}, {"n": "auto"}, {"n": "x"}, "n must be one of 1, \"auto\", not 'x'."
)
def literal_mixed(n: Literal[1, "auto"]): ...


@signature(
    {"c": {"$ref": "#/$defs/Color"}}, {"c": "red"}, {"c": Color.RED}, {"c": "green"},
    "c must be one of \"blue\", \"red\", not 'green'.", defs={"Color": {"title": "Color", "enum": ["blue", "red"]}},
)  # fmt: skip
def enumeration(c: Color): ...


@signature(
    {"c": {"$ref": "#/$defs/Color", "default": "blue"}}, {"c": "red"}, {"c": Color.RED}, {"c": "RED"},
    "c must be one of \"blue\", \"red\", not 'RED'.", defs={"Color": {"title": "Color", "enum": ["blue", "red"]}},
    optional=["c"],
)  # fmt: skip
def enumeration_with_default(c: Color = Color.BLUE): ...


@signature(
    {"n": {"$ref": "#/$defs/Level"}}, {"n": 2}, {"n": Level.HIGH}, {"n": True},
    "n must be of type integer, not boolean.", defs={"Level": {"title": "Level", "enum": [1, 2]}},
)  # fmt: skip
def number_enumeration(n: Level): ...


@signature(
    {"xs": {"type": "array", "items": {"$ref": "#/$defs/Size"}}}, {"xs": ["s"]}, {"xs": [Size.S]}, {"xs": ["s", "m"]},
    "xs.1 must be one of \"l\", \"s\", not 'm'.", defs={"Size": {"title": "Size", "enum": ["l", "s"]}},
)  # fmt: skip
def enumerations(xs: list[Size]): ...


# --- text with a form ------------------------------------------------------------------------------------------

UTC = dt.UTC


@signature(
    {"d": {"type": "string", "format": "date"}}, {"d": "2024-02-29"}, {"d": dt.date(2024, 2, 29)}, {"d": "tomorrow"},
    'd must be a date as in RFC 3339, such as "2024-12-31".', seen=False,
)  # fmt: skip
def date(d: dt.date): ...


@signature(
    {"t": {"type": "string", "format": "date-time"}}, {"t": "2024-01-02T03:04:05Z"},
    {"t": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)},
    {"t": 1704164645}, "t must be of type string with a date and time, not integer.",
)  # fmt: skip
def moment(t: dt.datetime): ...


@signature(
    {"t": {"type": "string", "format": "time"}}, {"t": "03:04:05"}, {"t": dt.time(3, 4, 5)}, {"t": "noon"},
    't must be a time as in RFC 3339, such as "23:59:00".', seen=False,
)  # fmt: skip
def time_of_day(t: dt.time): ...


@signature(
    {"t": {"type": "string", "format": "duration"}}, {"t": "PT90S"}, {"t": dt.timedelta(seconds=90)}, {"t": 90},
    "t must be of type string with a duration, not integer.",
)  # fmt: skip
def duration(t: dt.timedelta): ...


ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@signature(
    {"i": {"type": "string", "format": "uuid"}}, {"i": str(ID)}, {"i": ID}, {"i": "7"}, "i must be a UUID.", seen=False
)
def unique(i: uuid.UUID): ...


@signature(
    {"b": {"type": "string", "contentEncoding": "base64"}}, {"b": "aGk="}, {"b": b"hi"}, {"b": "%"},
    "b must be base64 text.", seen=False,
)  # fmt: skip
def octets(b: bytes): ...


DECIMAL = {"anyOf": [NUMBER, {"type": "string", "format": "decimal"}]}


@signature(
    {"p": DECIMAL},
    {"p": 0.1},
    {"p": decimal.Decimal("0.1")},
    {"p": True},
    'p must be a finite decimal number, such as 1.5 or "1.5".',
)
def price(p: decimal.Decimal): ...


@signature(
    {"p": DECIMAL}, {"p": "0.10"}, {"p": decimal.Decimal("0.10")}, {"p": "NaN"},
    'p must be a finite decimal number, such as 1.5 or "1.5".', seen=False,
)  # fmt: skip
def price_not_nan(p: decimal.Decimal): ...


@signature(
    {"p": {"type": "string", "format": "path", "default": "."}}, {"p": "a/b.txt"}, {"p": pathlib.Path("a/b.txt")},
    {"p": 1},
    "p must be of type string.", optional=["p"],
)  # fmt: skip
def path(p: pathlib.Path = pathlib.Path(".")): ...


@signature(
    {"ps": {"type": "array", "items": {"type": "string", "format": "path"}}}, {"ps": ["a"]},
    {"ps": [pathlib.Path("a")]},
    {"ps": ["a", 2]}, "ps.1 must be of type string.",
)  # fmt: skip
def paths(ps: list[pathlib.Path]): ...


# --- descriptions and limits -------------------------------------------------------------------------------------


@signature(
    {"c": {**STRING, "description": "The city."}},
    {"c": "Bern"},
    {"c": "Bern"},
    {"c": []},
    "c must be of type string, not array.",
)
def described(c: Annotated[str, "The city."]): ...


@signature(
    {"n": {"anyOf": [INTEGER, NULL], "description": "How many.", "default": None}}, {"n": 1}, {"n": 1}, {"n": "1"},
    "n must be of type integer or null, not string.", optional=["n"],
)  # fmt: skip
def described_optional(n: Annotated[int | None, "How many."] = None): ...


@signature(
    {"xs": {"type": "array", "items": {**STRING, "description": "A tag."}, "description": "Tags."}}, {"xs": []},
    {"xs": []},
    {"xs": [1]}, "xs.0 must be of type string, not integer.",
)  # fmt: skip
def described_within(xs: Annotated[list[Annotated[str, "A tag."]], "Tags."]): ...


@signature(
    {"n": {**INTEGER, "minimum": 1, "maximum": 9}}, {"n": 9}, {"n": 9}, {"n": 10}, "n must be of type integer <= 9.",
)  # fmt: skip
def limited_by_msgspec(n: Annotated[int, msgspec.Meta(ge=1, le=9)]): ...


@signature(
    {"x": {**NUMBER, "exclusiveMinimum": 0}}, {"x": 0.5}, {"x": 0.5}, {"x": 0}, "x must be of type number > 0.0."
)
def limited_by_annotated_types(x: Annotated[float, annotated_types.Gt(0)]): ...


@signature(
    {"x": {"anyOf": [{**NUMBER, "minimum": 0}, NULL]}}, {"x": None}, {"x": None}, {"x": -1},
    "x must be of type number >= 0.0.",
)  # fmt: skip
def limited_optional(x: Annotated[float | None, annotated_types.Ge(0)]): ...


@signature(
    {"s": {**STRING, "minLength": 2, "pattern": "^[a-z]+$"}}, {"s": "ab"}, {"s": "ab"}, {"s": "AB"},
    "s must be of type string matching regex '^[a-z]+$'.",
)  # fmt: skip
def limited_text(s: Annotated[str, msgspec.Meta(min_length=2, pattern="^[a-z]+$")]): ...


@signature(
    {"xs": {"type": "array", "items": INTEGER, "minItems": 1}}, {"xs": [1]}, {"xs": [1]}, {"xs": []},
    "xs must be of type array of length >= 1.",
)  # fmt: skip
def limited_list(xs: Annotated[list[int], annotated_types.MinLen(1)]): ...


@signature(
    {"n": {**INTEGER, "minimum": 0, "description": "Count.", "default": 4}}, {}, {"n": 4}, {"n": -1},
    "n must be of type integer >= 0.",
    optional=["n"],
)  # fmt: skip
def pydantic_field_as_default(n: int = pydantic.Field(4, ge=0, description="Count.")): ...


@signature({"n": {**INTEGER, "description": "Count."}}, {"n": 1}, {"n": 1}, {}, "Missing: n.")
def pydantic_field_required(n: int = pydantic.Field(description="Count.")): ...


@signature(
    {"n": {**INTEGER, "maximum": 5, "description": "Count."}}, {"n": 5}, {"n": 5}, {"n": 6},
    "n must be of type integer <= 5.",
)  # fmt: skip
def pydantic_field_beside_the_type(n: Annotated[int, pydantic.Field(le=5, description="Count.")]): ...


# --- classes -----------------------------------------------------------------------------------------------------


def obj(title, properties, *, required=None, **more):
    """A definition, closed; every property is required unless said."""
    required = list(properties) if required is None else required
    return {
        "title": title, **more, "type": "object", "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }  # fmt: skip


@dataclasses.dataclass
class Order:
    sku: str
    qty: int = 1


ORDER = obj("Order", {"sku": STRING, "qty": {**INTEGER, "default": 1}}, required=["sku"])


@signature(
    {"o": {"$ref": "#/$defs/Order"}}, {"o": {"sku": "a", "qty": 2}}, {"o": Order("a", 2)},
    {"o": {"sku": "a", "qtty": 2}},
    "Unknown argument o.qtty. Allowed: sku, qty.", defs={"Order": ORDER},
)  # fmt: skip
def a_dataclass(o: Order): ...


@signature(
    {"os": {"type": "array", "items": {"$ref": "#/$defs/Order"}}}, {"os": [{"sku": "a"}]}, {"os": [Order("a")]},
    {"os": [{"sku": "a"}, {"qty": 1}]}, "Missing: os.1.sku.", defs={"Order": ORDER},
)  # fmt: skip
def dataclasses_in_a_list(os: list[Order]): ...


@signature(
    {"o": {"anyOf": [{"$ref": "#/$defs/Order"}, NULL], "default": None}}, {"o": None}, {"o": None}, {"o": {"sku": 1}},
    "o.sku must be of type string, not integer.", defs={"Order": ORDER}, optional=["o"],
)  # fmt: skip
def optional_dataclass(o: Order | None = None): ...


@signature(
    {"d": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Order"}}}, {"d": {"x": {"sku": "a"}}},
    {"d": {"x": Order("a")}}, {"d": {"x": {"sku": "a"}, "y": {"sku": "b", "qty": True}}},
    "d.y.qty must be of type integer, not boolean.", defs={"Order": ORDER},
)  # fmt: skip
def dataclasses_in_a_dict(d: dict[str, Order]): ...


@signature(
    {"o": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Order"}}, {"$ref": "#/$defs/Order"}]}},
    {"o": [{"sku": "a"}]}, {"o": [Order("a")]}, {"o": "a"}, "o must be of type object or array, not string.",
    defs={"Order": ORDER},
)  # fmt: skip
def one_or_many(o: list[Order] | Order): ...


@dataclasses.dataclass(frozen=True)
class Window:
    """A span of days.

    Attributes:
        start: The first day.
        end: The day after
            the last: open.
    """

    start: int
    end: Annotated[int, "Not this one."]
    inner: dataclasses.InitVar[bool] = False
    length: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, inner):
        if self.end <= self.start:
            raise ValueError("end must be after start")
        object.__setattr__(self, "length", self.end - self.start)


@signature(
    {"w": {"$ref": "#/$defs/Window"}}, {"w": {"start": 1, "end": 4}}, {"w": Window(1, 4)},
    {"w": {"start": 4, "end": 1}},
    "w was refused: end must be after start.", seen=False,
    defs={"Window": obj("Window", {
        "start": {**INTEGER, "description": "The first day."}, "end": {**INTEGER, "description": "Not this one."},
        "inner": {**BOOLEAN, "default": False},
    }, required=["start", "end"], description="A span of days.")},
)  # fmt: skip
def a_dataclass_that_checks_itself(w: Window): ...


@attrs.frozen
class Point:
    x: int = attrs.field(validator=attrs.validators.ge(0))
    _y: int = attrs.field(default=0, converter=int)
    tags: tuple[str, ...] = attrs.field(factory=tuple)


POINT = obj(
    "Point",
    {"x": INTEGER, "y": {**INTEGER, "default": 0}, "tags": {"type": "array", "items": STRING}},
    required=["x"],
)


@signature(
    {"p": {"$ref": "#/$defs/Point"}}, {"p": {"x": 1, "y": 2, "tags": ["a"]}}, {"p": Point(1, 2, ("a",))},
    {"p": {"x": 1, "_y": 2}},
    "Unknown argument p._y. Allowed: x, y, tags.", defs={"Point": POINT},
)  # fmt: skip
def an_attrs_class_by_its_init_names(p: Point): ...


@signature(
    {"ps": {"type": "array", "items": {"$ref": "#/$defs/Point"}}}, {"ps": [{"x": 0}]}, {"ps": [Point(0)]},
    {"ps": [{"x": 1}, {"x": -1}]},
    "ps.1 was refused: 'x' must be >= 0: -1.", defs={"Point": POINT}, seen=False,
)  # fmt: skip
def attrs_validators_run(ps: list[Point]): ...


class Movie(TypedDict):
    title: Annotated[str, "Its name."]
    year: NotRequired[int]


MOVIE = obj("Movie", {"title": {**STRING, "description": "Its name."}, "year": INTEGER}, required=["title"])


@signature(
    {"m": {"$ref": "#/$defs/Movie"}}, {"m": {"title": "M"}}, {"m": {"title": "M"}}, {"m": {"title": "M", "yr": 1931}},
    "Unknown argument m.yr. Allowed: title, year.", defs={"Movie": MOVIE},
)  # fmt: skip
def a_typed_dict(m: Movie): ...


class Loose(TypedDict, total=False):
    id: Required[int]
    note: str


Hyphens = TypedDict("Hyphens", {"user-id": int, "class": str})


@signature(
    {"a": {"$ref": "#/$defs/Loose"}}, {"a": {"id": 1}}, {"a": {"id": 1}}, {"a": {"note": "x"}}, "Missing: a.id.",
    defs={"Loose": obj("Loose", {"id": INTEGER, "note": STRING}, required=["id"])},
)  # fmt: skip
def a_typed_dict_not_total(a: Loose): ...


@signature(
    {"a": {"$ref": "#/$defs/Hyphens"}}, {"a": {"user-id": 1, "class": "x"}}, {"a": {"user-id": 1, "class": "x"}},
    {"a": {"user-id": "1", "class": "x"}}, "a.user-id must be of type integer, not string.",
    defs={"Hyphens": obj("Hyphens", {"user-id": INTEGER, "class": STRING})},
)  # fmt: skip
def a_typed_dict_with_other_keys(a: Hyphens): ...


class Place(NamedTuple):
    lat: float
    lon: float = 0.0


PLACE = obj("Place", {"lat": NUMBER, "lon": {**NUMBER, "default": 0.0}}, required=["lat"])


@signature(
    {"p": {"$ref": "#/$defs/Place"}}, {"p": {"lat": 47, "lon": 7.5}}, {"p": Place(47.0, 7.5)}, {"p": [47, 7.5]},
    "p must be of type object, not array.", defs={"Place": PLACE},
)  # fmt: skip
def a_named_tuple_by_its_names(p: Place): ...


@signature(
    {"ps": {"type": "array", "items": {"$ref": "#/$defs/Place"}, "uniqueItems": True}},
    {"ps": [{"lat": 1}, {"lat": 2}]},
    {"ps": frozenset({Place(1.0), Place(2.0)})}, {"ps": [{"lat": 1}, {"lat": None}]},
    "ps.1.lat must be of type number, not null.",
    defs={"Place": PLACE},
)  # fmt: skip
def records_in_a_set(ps: frozenset[Place]): ...


@signature(
    {"p": {"type": "array", "prefixItems": [{"$ref": "#/$defs/Place"}, INTEGER], "minItems": 2, "maxItems": 2,
    "items": False}},
    {"p": [{"lat": 1}, 2]}, {"p": (Place(1.0), 2)}, {"p": [{"lat": "x"}, 2]},
    "p.0.lat must be of type number, not string.",
    defs={"Place": PLACE},
)  # fmt: skip
def a_record_in_a_tuple(p: tuple[Place, int]): ...


class Get(msgspec.Struct, tag="get"):
    key: str


class Put(msgspec.Struct, tag="put", rename="camel"):
    the_key: str


@signature(
    {"op": {
        "anyOf": [{"$ref": "#/$defs/Get"}, {"$ref": "#/$defs/Put"}],
        "discriminator": {"propertyName": "type", "mapping": {"get": "#/$defs/Get", "put": "#/$defs/Put"}},
    }},
    {"op": {"type": "put", "theKey": "k"}}, {"op": Put("k")}, {"op": {"type": "get", "theKey": "k"}},
    "Unknown argument op.theKey. Allowed: type, key.",
    defs={
        "Get": obj("Get", {"type": {"enum": ["get"]}, "key": STRING}),
        "Put": obj("Put", {"type": {"enum": ["put"]}, "theKey": STRING}),
    },
)  # fmt: skip
def tagged_structs(op: Get | Put): ...


@dataclasses.dataclass
class Node:
    value: int
    children: "list[Node]" = dataclasses.field(default_factory=list)


NODE = obj(
    "Node", {"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}, required=["value"]
)


@signature(
    {"n": {"$ref": "#/$defs/Node"}}, {"n": {"value": 1, "children": [{"value": 2}]}}, {"n": Node(1, [Node(2)])},
    {"n": {"value": 1, "children": [{"value": 2, "children": [{"value": "3"}]}]}},
    "n.children.0.children.0.value must be of type integer, not string.", defs={"Node": NODE},
)  # fmt: skip
def a_class_that_holds_itself(n: Node): ...


T = TypeVar("T")
Number = TypeVar("Number", bound=float)


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]
    after: str | None = None


@dataclasses.dataclass
class Orders(Page[Order]):
    total: int = 0


def page(title, item):
    items = {"type": "array", "items": item}
    return obj(title, {"items": items, "after": {"anyOf": [STRING, NULL], "default": None}}, required=["items"])


@signature(
    {"p": {"$ref": "#/$defs/Page_int"}}, {"p": {"items": [1]}}, {"p": Page([1])}, {"p": {"items": ["1"]}},
    "p.items.0 must be of type integer, not string.", defs={"Page_int": page("Page_int", INTEGER)},
)  # fmt: skip
def a_generic_class(p: Page[int]): ...


@signature(
    {"p": {"$ref": "#/$defs/Orders"}}, {"p": {"items": [{"sku": "a"}]}}, {"p": Orders([Order("a")])},
    {"p": {"items": [{}]}},
    "Missing: p.items.0.sku.",
    defs={"Order": ORDER, "Orders": obj("Orders", {
        "items": {"type": "array", "items": {"$ref": "#/$defs/Order"}},
        "after": {"anyOf": [STRING, NULL], "default": None},
        "total": {**INTEGER, "default": 0},
    }, required=["items"])},
)  # fmt: skip
def a_class_with_a_generic_base(p: Orders): ...


@signature({"x": NUMBER}, {"x": 1}, {"x": 1.0}, {"x": "1"}, "x must be of type number, not string.")
def a_bounded_type_variable(x: Number): ...


UserId = NewType("UserId", int)


@signature({"u": INTEGER}, {"u": 1}, {"u": 1}, {"u": "1"}, "u must be of type integer, not string.")
def a_new_type(u: UserId): ...


# --- unions that msgspec alone does not take -----------------------------------------------------------------------


@dataclasses.dataclass
class Cat:
    kind: Literal["cat"]
    lives: int = 9


@attrs.frozen
class Dog:
    kind: Literal["dog"]
    good: bool = True


CAT = obj("Cat", {"kind": {"enum": ["cat"]}, "lives": {**INTEGER, "default": 9}}, required=["kind"])
DOG = obj("Dog", {"kind": {"enum": ["dog"]}, "good": {**BOOLEAN, "default": True}}, required=["kind"])
PETS = {"Cat": CAT, "Dog": DOG}


@signature(
    {"p": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}}, {"p": {"kind": "dog"}}, {"p": Dog("dog")},
    {"p": {"kind": "dog", "good": "yes"}},
    "p fits none of its forms: as Cat, kind must be one of \"cat\", not 'dog'; "
    "as Dog, good must be of type boolean, not string.",
    defs=PETS,
)  # fmt: skip
def several_classes(p: Cat | Dog): ...


@signature(
    {"ps": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}, NULL]}}},
    {"ps": [{"kind": "cat"}, None]}, {"ps": [Cat("cat"), None]}, {"ps": [{"kind": "cat"}, {"kind": "cow"}]},
    "ps.1 fits none of its forms: as Cat, kind must be one of \"cat\", not 'cow'; "
    "as Dog, kind must be one of \"dog\", not 'cow'.",
    defs=PETS,
)  # fmt: skip
def several_classes_in_a_list(ps: list[Optional[Union[Cat, Dog]]]): ...  # noqa: UP045


@signature(
    {"d": {"anyOf": [{"type": "string", "format": "date"}, STRING]}}, {"d": "2024-01-01"}, {"d": dt.date(2024, 1, 1)},
    {"d": 1},
    "d fits none of its forms: as date, the value must be of type string with a date, not integer; "
    "as str, the value must be of type string, not integer.",
)  # fmt: skip
def a_date_or_text(d: dt.date | str): ...


@signature(
    {"d": {"anyOf": [STRING, {"type": "string", "format": "date"}]}}, {"d": "2024-01-01"}, {"d": "2024-01-01"},
    {"d": None},
    "d fits none of its forms: as str, the value must be of type string, not null; "
    "as date, the value must be of type string with a date, not null.",
)  # fmt: skip
def text_or_a_date(d: str | dt.date): ...


@signature(
    {"p": {"anyOf": [{"type": "string", "format": "path"}, INTEGER]}}, {"p": "a"}, {"p": pathlib.Path("a")}, {"p": []},
    "p fits none of its forms: as Path, the value must be of type string; "
    "as int, the value must be of type integer, not array.",
)  # fmt: skip
def a_path_or_a_number(p: pathlib.Path | int): ...


@signature(
    {"x": {"anyOf": [INTEGER, NUMBER]}},
    {"x": 1},
    {"x": 1},
    {"x": "1"},
    "x must be of type integer or number, not string.",
)
def integer_or_number(x: int | float): ...


@signature(
    {"d": {"anyOf": [{"$ref": "#/$defs/Order"}, {"type": "object", "additionalProperties": INTEGER}]}},
    {"d": {"a": 1}}, {"d": {"a": 1}},
    {"d": {"a": "x"}},
    "d fits none of its forms: as Order, Unknown argument a. Allowed: sku, qty; "
    "as dict[str, int], a must be of type integer, not string.",
    defs={"Order": ORDER},
)  # fmt: skip
def a_class_or_a_dict(d: Order | dict[str, int]): ...


# --- pydantic by its own means ---------------------------------------------------------------------------------------


class Address(pydantic.BaseModel):
    street: str
    zip: int = pydantic.Field(ge=1000, description="Four digits.")


ADDRESS = {
    "type": "object", "title": "Address", "additionalProperties": False, "required": ["street", "zip"],
    "properties": {
        "street": {"type": "string", "title": "Street"},
        "zip": {"type": "integer", "title": "Zip", "description": "Four digits.", "minimum": 1000},
    },
}  # fmt: skip
BERN = {"street": "Gasse", "zip": 3011}


@signature(
    {"a": ADDRESS},
    {"a": BERN},
    {"a": Address(**BERN)},
    {"a": {**BERN, "zip": "3011"}},
    "a.zip: Input should be a valid integer.",
)
def a_pydantic_model(a: Address): ...


@signature(
    {"xs": {"type": "array", "items": ADDRESS}}, {"xs": [BERN]}, {"xs": [Address(**BERN)]},
    {"xs": [BERN, {**BERN, "canton": "BE"}]},
    "xs.1.canton: Extra inputs are not permitted.",
)  # fmt: skip
def pydantic_models_closed(xs: list[Address]): ...


class Tree(pydantic.BaseModel):
    value: int
    left: Optional["Tree"] = None


@signature(
    {"t": {"$ref": "#/$defs/Tree"}}, {"t": {"value": 1, "left": {"value": 2}}},
    {"t": Tree(value=1, left=Tree(value=2))},
    {"t": {"value": 1, "left": {"value": True}}}, "t.left.value: Input should be a valid integer.",
    defs={"Tree": {
        "type": "object", "title": "Tree", "additionalProperties": False, "required": ["value"],
        "properties": {
            "value": {"type": "integer", "title": "Value"},
            "left": {"anyOf": [{"$ref": "#/$defs/Tree"}, NULL], "default": None},
        },
    }},
)  # fmt: skip
def a_pydantic_model_that_holds_itself(t: Tree): ...


@signature(
    {"p": {"anyOf": [{**STRING, "format": "date"}, NULL]}}, {"p": None}, {"p": None}, {"p": 5},
    "p must be of type string with a date or null, not integer.",
)  # fmt: skip
def optional_date(p: dt.date | None): ...


# --- contexts ------------------------------------------------------------------------------------------


@signature({"n": INTEGER}, {"n": 1}, {"n": 1}, {"n": 1, "context": {}}, "Unknown argument context. Allowed: n.")
def with_a_call_context(context: CallContext, n: int): ...


@signature({"n": INTEGER}, {"n": 1}, {"n": 1}, {"n": 1, "turn": 2}, "Unknown argument turn. Allowed: n.")
def with_both_contexts(n: int, turn: TurnContext[object], *, call: CallContext[object]): ...


@signature({"n": INTEGER}, {"n": 1}, {"n": 1}, {"n": None}, "n must be of type integer, not null.")
async def asynchronous(n: int): ...


class Mailbox:
    def send(self, to: str) -> None: ...

    @classmethod
    def open(cls, name: str) -> None: ...

    @staticmethod
    def count(of: str) -> None: ...

    def __call__(self, n: int) -> None: ...


signature({"to": STRING}, {"to": "a"}, {"to": "a"}, {}, "Missing: to.")(Mailbox().send)
signature({"name": STRING}, {"name": "a"}, {"name": "a"}, {}, "Missing: name.")(Mailbox.open)
signature({"of": STRING}, {"of": "a"}, {"of": "a"}, {}, "Missing: of.")(Mailbox.count)


def test_more_than_eighty_signatures_are_tried():
    assert len(CASES) >= 80


@pytest.mark.parametrize("case", CASES)
def test_the_model_is_told_the_signature(case: Case):
    assert tool(case.function).parameters == case.schema


@pytest.mark.parametrize("case", CASES)
def test_the_schema_is_valid_json_schema_2020_12(case: Case):
    Draft202012Validator.check_schema(tool(case.function).parameters)


@pytest.mark.parametrize("case", CASES)
def test_a_document_that_fits_becomes_the_keywords(case: Case):
    made = tool(case.function)
    assert Draft202012Validator(made.parameters).is_valid(case.good)
    keywords = made.decode(case.good)
    assert keywords == case.gives
    assert [type(value) for value in keywords.values()] == [type(value) for value in case.gives.values()]


@pytest.mark.parametrize("case", CASES)
def test_a_document_that_does_not_fit_is_refused_in_words(case: Case):
    made = tool(case.function)
    assert Draft202012Validator(made.parameters).is_valid(case.bad) is not case.seen
    with pytest.raises(InvalidArguments) as refused:
        made.decode(case.bad)
    assert str(refused.value) == case.words
