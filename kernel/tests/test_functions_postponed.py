"""Tools in a module with postponed annotations: every annotation is text until it is resolved."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, Optional, TypedDict

import attrs
import pydantic
import pytest

from treadle.errors import InvalidArguments
from treadle.functions import decode_output, tool

if TYPE_CHECKING:
    from treadle.context import CallContext


class Address(pydantic.BaseModel):
    street: str


def ship(
    kg: float,
    dest: Address,
    remark: Optional[str] = None,  # noqa: UP045
    out: Path = Path("."),
    speed: Literal["slow", "fast"] = "slow",
) -> Nowhere: ...  # noqa: F821  a return type is not the model's business


def shipped() -> dict[str, object]:
    """The same signature with its annotations evaluated, as in a module without the import."""
    namespace = {"Optional": Optional, "Path": Path, "Literal": Literal, "Address": Address}
    source = (
        "def ship(kg: float, dest: Address, remark: Optional[str] = None, out: Path = Path('.'), "
        "speed: Literal['slow', 'fast'] = 'slow'): ..."
    )
    exec(compile(source, "ship", "exec", dont_inherit=True), namespace)
    return namespace


def test_TC_123_a_postponed_signature_has_the_schema_of_an_evaluated_one():
    assert tool(ship).parameters == tool(shipped()["ship"]).parameters


def test_TC_123_the_call_gives_an_address_a_path_and_slow():
    keywords = tool(ship).decode({"kg": 1.5, "dest": {"street": "Gasse"}, "out": "box"})
    assert keywords == {
        "kg": 1.5, "dest": Address(street="Gasse"), "remark": None, "out": Path("box"), "speed": "slow",
    }  # fmt: skip


def test_a_context_that_only_type_checkers_import_is_no_parameter():
    @tool
    def look(context: CallContext[object], where: str) -> None: ...

    assert list(look.parameters["properties"]) == ["where"]


def test_classes_inside_of_a_function_are_found():
    @dataclasses.dataclass
    class Leaf:
        n: int

    @attrs.frozen
    class Tree:
        leaves: list[Leaf]
        under: Tree | None = None

    @tool
    def grow(tree: Tree) -> None: ...

    given = {"tree": {"leaves": [{"n": 1}], "under": {"leaves": []}}}
    assert grow.decode(given) == {"tree": Tree([Leaf(1)], Tree([]))}


def test_a_local_class_that_holds_itself_may_be_an_output():
    @dataclasses.dataclass
    class Chain:
        n: int
        more: Chain | None = None

    assert decode_output(Chain, '{"n": 1, "more": {"n": 2}}') == Chain(1, Chain(2))


class Movie(TypedDict):
    title: str
    year: NotRequired[Annotated[int, "First shown."]]


def test_not_required_is_seen_through_postponed_annotations():
    @tool
    def show(movie: Movie) -> None: ...

    assert show.parameters["$defs"]["Movie"]["required"] == ["title"]
    assert show.parameters["$defs"]["Movie"]["properties"]["year"]["description"] == "First shown."
    assert show.decode({"movie": {"title": "M"}}) == {"movie": {"title": "M"}}
    with pytest.raises(InvalidArguments):
        show.decode({"movie": {"year": 1931}})
