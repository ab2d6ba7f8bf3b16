"""Builders: what msgspec made into what the annotation says.

A builder takes what msgspec decoded (structs, lists, plain data) and returns the value. Each raises `Refusal` for what
does not fit, with the path from where it stands; outer builders put their own place before it.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import UNSET, ValidationError
from msgspec.structs import asdict
from msgspec.structs import fields as struct_fields

from treadle.messages import Json

from .records import Field
from .refusals import Refusal

Build: TypeAlias = Callable[[Json], object]
Supply: TypeAlias = Mapping[str, Callable[[], object]]


def each_item(made: Callable[[list[object]], object], build: Build) -> Build:
    """A list, or what `made` makes of one, each item built."""

    def each(values: Sequence[Json]) -> object:
        try:
            built = [build(value) for value in values]
        except Refusal:
            raise _found(enumerate(values), build) from None
        return built if made is list else made(built)

    return each


def each_value(build: Build) -> Build:
    """A dict, each value built."""

    def each(values: Mapping[Json, Json]) -> object:
        try:
            return {key: build(value) for key, value in values.items()}
        except Refusal:
            raise _found(values.items(), build) from None

    return each


def each_by_place(builds: Sequence[Build | None]) -> Build:
    """A tuple, each place built in its own way."""

    def each(values: Sequence[Json]) -> object:
        out = []
        for index, (value, build) in enumerate(zip(values, builds, strict=True)):
            try:
                out.append(build(value) if build else value)
            except Refusal as refused:
                raise refused.under(index) from None
        return tuple(out)

    return each


def _found(values: Iterable[tuple[Json, Json]], build: Build) -> Refusal:
    """The refusal of the first value that is refused, with its place."""
    for place, value in values:
        try:
            build(value)
        except Refusal as refused:
            return refused.under(place)
    return Refusal((), " was refused once and not again")


def making(make: Callable[..., object], keywords: Build) -> Build:
    """Hands a struct's values to the constructor of the class that it stands for."""

    def build(struct: Json) -> object:
        values: Json = keywords(struct)
        try:
            return make(**values)
        except (ValueError, TypeError, AssertionError, ValidationError) as error:  # what validators raise
            raise Refusal((), f" was refused: {error or type(error).__name__}") from error

    return build


def keywords_of(
    fields: Sequence[Field], inner: Mapping[str, str], nested: Mapping[str, Build], struct: type, supply: Supply
) -> Build:
    """A struct's values by the owner's names, built where they must be. What did not come is left for the owner."""
    optional = tuple(each.name for each in struct_fields(struct) if each.default is UNSET)
    to_build = tuple((inner[field.name], field.key, nested[field.name]) for field in fields if field.name in nested)
    renamed = tuple((hidden, name) for name, hidden in inner.items() if hidden != name)
    supplied = tuple(supply.items())
    if not (optional or to_build or renamed or supplied):
        return asdict

    def build(struct: Json) -> object:
        values = asdict(struct)
        for name in optional:
            if values[name] is UNSET:
                del values[name]
        for name, key, of_field in to_build:
            if name in values:
                try:
                    values[name] = of_field(values[name])
                except Refusal as refused:
                    raise refused.under(key) from None
        for hidden, name in renamed:
            if hidden in values:
                values[name] = values.pop(hidden)
        for name, anew in supplied:
            if name not in values:
                values[name] = anew()
        return values

    return build


def finite(value: Json) -> object:
    """The value as it is, if no number in it is NaN or Infinity."""
    if isinstance(value, (float, list, dict)):
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            raise Refusal((), " must hold finite numbers only, no NaN and no Infinity") from None
    return value


def text_of(given: Json) -> str:
    """The value, if it is text."""
    if not isinstance(given, str):
        raise Refusal((), " must be of type string")
    return given


def decimal_of(given: Json) -> decimal.Decimal:
    """A finite decimal out of a number or of text."""
    if isinstance(given, (str, int, float)) and not isinstance(given, bool):
        try:
            # By way of its text, so that 0.1 is a tenth.
            value = decimal.Decimal(str(given))
        except decimal.InvalidOperation:
            value = decimal.Decimal("nan")
        if value.is_finite():
            return value
    raise Refusal((), ' must be a finite decimal number, such as 1.5 or "1.5"')
