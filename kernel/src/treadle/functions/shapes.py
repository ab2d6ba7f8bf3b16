"""Types into JSON Schema and strict decoders, both by msgspec, from one source.

msgspec generates the schema and checks the data. What it would do otherwise than people mean is put before it in a
form that it does right, and turned back afterwards:

- A record class becomes a struct that refuses unknown keys; its own constructor then makes the value, so that
  validators, converters and `__post_init__` run, and a missing field gets the class's own default.
- A union that msgspec does not take (several classes, `str | date`) is tried form by form, in the order written.
- Floats are finite. `Path`, `Decimal` and whatever pydantic owns decode by their own means.

Imported on first use of `functions`; needs treadle[tools]. Knows nothing of tools or calls.
"""

from __future__ import annotations

import collections.abc
import contextlib
import datetime
import decimal
import enum
import functools
import inspect
import json
import keyword
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeVar, Union, get_args, get_origin

import attrs
import msgspec
from msgspec import UNSET, Meta, ValidationError, convert

from treadle.errors import UsageError
from treadle.messages import Json

from .builders import (
    Build,
    Supply,
    decimal_of,
    each_by_place,
    each_item,
    each_value,
    finite,
    keywords_of,
    making,
    text_of,
)  # fmt: skip
from .docstrings import read_docs
from .records import ABSENT, Field, is_record, is_typed_dict, own_doc, record_fields
from .refusals import Refusal, refusal, rules_at, whole_numbers
from .settling import MOST, STANDS_FOR, Settling, schemas_in, self_contained


@attrs.frozen
class Fit:
    """How values of one annotation are decoded.

    `type` is what msgspec is given, `build` what makes the value out of msgspec's (None: it is the value). `kinds`
    are the JSON types it may come from; a union of fits that share one is not msgspec's to decide. `parts` are the
    fits of a union's members.
    """

    type: Json
    kinds: frozenset[str]
    build: Build | None = None
    parts: tuple[Fit, ...] = ()


@attrs.frozen
class Shape:
    """A type's self-contained JSON Schema (2020-12), and its decoder, which raises `Refusal`."""

    schema: Json
    decode: Callable[[Json], object]


def shape_of_fields(fields: Sequence[Field], where: str, names: Mapping[str, object], supply: Supply) -> Shape:
    """The shape of an object with these fields, decoded into a dict. `supply` makes what is missing but has no owner.

    `where` begins the text of each `UsageError`: a type that has no JSON form, or none that msgspec takes.
    """
    shapes = _Shapes(where, names)
    record = shapes.record("arguments", fields, dict, supply=supply)
    return shapes.finish(Fit(record, frozenset({"object"}), shapes.builds[record]))


def shape_of(hint: object, where: str, names: Mapping[str, object]) -> Shape | None:
    """The shape of a type whose JSON form is an object; None for any other type, which needs an object around it."""
    shapes = _Shapes(where, names)
    shape = shapes.finish(shapes.fit(hint))
    return shape if shape.schema.get("type") == "object" else None


_SCALARS: Mapping[object, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", bytes: "string",
    bytearray: "string", datetime.datetime: "string", datetime.date: "string", datetime.time: "string",
    datetime.timedelta: "string", uuid.UUID: "string",
}  # fmt: skip
# msgspec tells the format only where a time zone is a must; a model should know it anyway.
_FORMATS: Mapping[object, str] = {datetime.datetime: "date-time", datetime.time: "time"}
_SEQUENCES: Mapping[object, type] = {
    list: list, set: set, frozenset: frozenset, collections.abc.Sequence: list, collections.abc.Set: set,
    collections.abc.MutableSequence: list, collections.abc.MutableSet: set, collections.abc.Collection: list,
    collections.abc.Iterable: list,
}  # fmt: skip
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_QUALIFIERS = ("Required", "NotRequired", "ReadOnly", "Final", "Unpack")
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_MEANT_FOR: Mapping[str, frozenset[str]] = {
    "number": frozenset(("gt", "ge", "lt", "le", "multiple_of")),
    "integer": frozenset(("gt", "ge", "lt", "le", "multiple_of")),
    "string": frozenset(("min_length", "max_length", "pattern", "tz")),
    "array": frozenset(("min_length", "max_length")),
    "object": frozenset(("min_length", "max_length")),
}


class _Anything(type):
    # msgspec checks that a hook's answer is of the asked type. A stand-in's hook answers with the real value, so
    # everything counts as an instance of a stand-in.
    def __instancecheck__(cls, instance: object) -> bool:
        return True


@attrs.define(eq=False)
class _Decoder:
    """Decodes one form. What is not known before the whole schema is there is filled in by `finish`.

    `convert` is msgspec's, with the options that this schema needs: passing one costs more than a small conversion.
    """

    type: Json
    build: Build | None
    convert: Callable[[Json, Json], Json] = convert
    schema: Json = None
    defs: Json = None

    def __call__(self, given: Json) -> object:
        try:
            try:
                value = self.convert(given, self.type)
            except ValidationError as error:
                value = self._again(given, error)
            build = self.build
            return build(value) if build else value
        except RecursionError:
            raise Refusal((), " is nested too deeply") from None

    def _again(self, given: Json, error: ValidationError) -> Json:
        # JSON Schema counts 5.0 as an integer (2020-12 validation, 6.1.1), and some servers send all numbers so.
        if "got `float`" in str(error):
            with contextlib.suppress(ValidationError):
                return self.convert(whole_numbers(given), self.type)
        rules = functools.partial(rules_at, self.schema, self.defs)
        raise refusal(given, error, lambda value: self.convert(value, self.type), rules) from None


class _Shapes:
    """The types of one schema under construction."""

    def __init__(self, where: str, names: Mapping[str, object]) -> None:
        self.where, self.names = where, names
        self.builds: dict[type, Build | None] = {}
        self._at: list[str] = []
        self._records: dict[object, type] = {}
        self._aliases: list[object] = []
        self._hooks: dict[type, Callable[[Json], object]] = {}
        self._schemas: dict[type, Json | tuple[_Decoder, ...]] = {}
        self._forms: list[_Decoder] = []
        self._keyed = False  # whether a dict has keys that are made from text

    def refused(self, reason: str) -> UsageError:
        at = ".".join(self._at)
        return UsageError(f"{self.where}: {f'{at}: ' if at else ''}{reason}")

    # --- annotations ---

    def fit(self, hint: Json, limits: Mapping[str, Json] = types.MappingProxyType({})) -> Fit:
        """How to decode an annotation, within `limits` that stand around it."""
        origin, args = _origin(hint), get_args(hint)
        if not isinstance(hint, collections.abc.Hashable):
            raise self.refused(f"{hint!r} is not a type.")
        if hint in (typing.Any, object) or isinstance(hint, TypeVar):
            return self._variable(hint)
        if origin is Annotated:
            return self._annotated(hint, limits)
        if origin in (Union, types.UnionType):
            return self._union(args, limits)
        if origin is Literal:
            self._unlimited(hint, limits)
            return Fit(hint, frozenset(_SCALARS.get(type(value), "other") for value in args))
        if hint is None or hint in _SCALARS:
            return self._scalar(type(None) if hint is None else hint, limits)
        if getattr(origin, "_name", "") in _QUALIFIERS or getattr(hint, "_name", "") in _QUALIFIERS:
            return self.fit(args[0] if args else typing.Any, limits)
        if hasattr(hint, "__supertype__"):  # NewType
            return self.fit(hint.__supertype__, limits)
        if type(origin or hint).__name__ == "TypeAliasType":
            return self._alias(hint, limits)
        return self._container(hint, origin or hint, args, limits)

    def _variable(self, hint: Json) -> Fit:
        bound = getattr(hint, "__bound__", None)
        choices = getattr(hint, "__constraints__", ())
        if bound is not None or choices:
            return self.fit(_union_of(choices) if choices else bound)
        return Fit(typing.Any, frozenset({"any"}), finite)

    def _scalar(self, hint: Json, limits: Mapping[str, Json]) -> Fit:
        if hint is float:  # a limit on both sides refuses NaN and Infinity; `finish` takes it out of the schema
            low = {} if {"gt", "ge"} & set(limits) else {"ge": -MOST}
            high = {} if {"lt", "le"} & set(limits) else {"le": MOST}
            limits = {**limits, **low, **high}
        if hint in _FORMATS:
            limits = {**limits, "extra_json_schema": {"format": _FORMATS[hint]}}
        return Fit(_within(hint, limits), frozenset({_SCALARS[hint]}))

    def _alias(self, hint: Json, limits: Mapping[str, Json]) -> Fit:
        if hint in self._aliases:
            raise self.refused(f"the type alias {hint} contains itself. Use a class with fields instead.")
        self._aliases.append(hint)
        alias, args = _origin(hint) or hint, get_args(hint)
        fit = self.fit(alias.__value__[args] if args else alias.__value__, limits)
        self._aliases.pop()
        return fit

    def _container(self, hint: Json, origin: Json, args: tuple[Json, ...], limits: Mapping[str, Json]) -> Fit:
        if origin in _SEQUENCES:
            return self._sequence(_SEQUENCES[origin], args[0] if args else typing.Any, limits)
        if origin is tuple and (not args or args[1:] == (...,)):
            return self._sequence(tuple, args[0] if args else typing.Any, limits)
        if origin in _MAPPINGS:
            return self._mapping(args or (str, typing.Any), limits)
        self._unlimited(hint, limits)
        if origin is tuple:
            return self._tuple(args)
        if _is_pydantic(origin):
            return self._pydantic(hint)
        if is_record(origin):
            return self._record(hint, origin)
        if isinstance(origin, type) and issubclass(origin, enum.Enum):
            return Fit(origin, self._enum_kind(origin))
        if origin is decimal.Decimal:
            either = {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}
            return Fit(self._stand_in("Decimal", decimal_of, either), frozenset({"custom"}))
        if isinstance(origin, type) and issubclass(origin, pathlib.PurePath):
            schema = {"type": "string", "format": "path"}
            return Fit(self._stand_in("Path", lambda given: origin(text_of(given)), schema), frozenset({"custom"}))
        name = getattr(hint, "__qualname__", None) or str(hint)
        raise self.refused(_WHY_NOT.get(name, f"{name} has no JSON form.") + " " + _INSTEAD)

    def _unlimited(self, hint: Json, limits: Mapping[str, Json]) -> None:
        if limits:
            raise self.refused(f"{', '.join(limits)} cannot be checked of {_name(hint)}. Check it in the function.")

    def _enum_kind(self, kind: type[enum.Enum]) -> frozenset[str]:
        kinds = {_SCALARS.get(next((t for t in (bool, int, str) if isinstance(m.value, t)), None), "") for m in kind}
        if issubclass(kind, enum.Flag):
            raise self.refused(f"{kind.__qualname__} has combinations that no list names. Use a list of an Enum.")
        if kinds not in ({"string"}, {"integer"}):
            raise self.refused(
                f"the values of {kind.__qualname__} are not all text and not all integers, so that they have no one "
                f"JSON form. Give it such values, or use Literal."
            )
        return frozenset(kinds)

    # --- containers ---

    def _item(self, hint: Json, mark: str) -> Fit:
        self._at.append(mark)
        fit = self.fit(hint)
        self._at.pop()
        return fit

    def _sequence(self, made: Json, item: Json, limits: Mapping[str, Json]) -> Fit:
        fit = self._item(item, "[]")
        if fit.build is None:
            held = _of(made, fit.type, *((...,) if made is tuple else ()))
            return Fit(_within(held, limits), frozenset({"array"}))
        # What msgspec makes of the items need not be hashable; what the builder makes is the class's own business.
        unique = {"extra_json_schema": {"uniqueItems": True}} if made in (set, frozenset) else {}
        return Fit(_within(_of(list, fit.type), {**limits, **unique}), frozenset({"array"}), each_item(made, fit.build))

    def _tuple(self, args: tuple[Json, ...]) -> Fit:
        fits = [self._item(hint, f"[{index}]") for index, hint in enumerate(args)]
        build = each_by_place([fit.build for fit in fits]) if any(fit.build for fit in fits) else None
        return Fit(_of(tuple, *(fit.type for fit in fits)), frozenset({"array"}), build)

    def _mapping(self, args: tuple[Json, ...], limits: Mapping[str, Json]) -> Fit:
        key, value = (str if args[0] is typing.Any else args[0]), args[1]
        of_key, of_value = self._item(key, "{key}"), self._item(value, "{}")
        if of_key.build or not of_key.kinds <= {"string", "integer"}:
            raise self.refused(f"JSON has only text for keys, and {key} is not made from it. Use dict[str, ...].")
        if of_key.kinds == {"integer"}:
            limits = {**limits, "extra_json_schema": {"propertyNames": {"pattern": "^-?[0-9]+$"}}}
        self._keyed = self._keyed or key is not str
        build = each_value(of_value.build) if of_value.build else None
        return Fit(_within(_of(dict, of_key.type, of_value.type), limits), frozenset({"object"}), build)

    # --- records ---

    def _record(self, hint: Json, origin: type) -> Fit:
        config = getattr(origin, "__struct_config__", None)
        kinds = frozenset({"array" if config is not None and config.array_like else "object"})
        if config is not None and config.tag is not None and not config.array_like:
            kinds = frozenset({f"tagged {config.tag_field} {config.tag!r}"})
        known = self._records.get(hint)
        if known is None:
            name = origin.__name__ if hint is origin else "_".join([origin.__name__, *map(_name, get_args(hint))])
            tags = {} if config is None else {
                "tag": config.tag, "tag_field": config.tag_field, "array_like": config.array_like,
            }  # fmt: skip
            make = typing.cast("Callable[..., object]", dict if is_typed_dict(origin) else hint)
            known = self.record(name, lambda: record_fields(hint, self.names), make, origin, hint, **tags)
        # In a class that contains itself the build is not there yet, so it is looked up when it is used.
        build = self.builds.get(known) or (lambda value: typing.cast(Build, self.builds[known])(value))
        return Fit(known, kinds, build)

    def record(
        self,
        name: str,
        fields: Sequence[Field] | Callable[[], Sequence[Field]],
        make: Callable[..., object],
        owner: type | None = None,
        hint: object = None,
        supply: Supply = types.MappingProxyType({}),
        **config: Json,
    ) -> type:
        """A struct with these fields, whose build hands them to `make` as keywords."""
        try:
            fields = fields() if callable(fields) else fields
        except UsageError as error:
            raise self.refused(str(error)) from error
        # Keys of a TypedDict need not be identifiers; a struct's own fields must be.
        inner = {each.name: each.name if _is_name(each.name) else f"_{at}" for at, each in enumerate(fields)}
        struct = msgspec.defstruct(
            name,
            [(inner[each.name], typing.Any, *_struct_default(each)) for each in fields],
            rename={inner[field.name]: field.key for field in fields if inner[field.name] != field.key},
            namespace={"__doc__": read_docs(own_doc(owner)).text if owner else ""},
            module=owner.__module__ if owner else "treadle",
            kw_only=True,
            forbid_unknown_fields=True,
            **config,
        )
        self._records[struct if hint is None else hint] = struct
        nested: dict[str, Build] = {}
        for field in fields:
            fit = self._field(field)
            struct.__annotations__[inner[field.name]] = fit.type
            if fit.build:
                nested[field.name] = fit.build
        keywords = keywords_of(fields, inner, nested, struct, supply)
        self.builds[struct] = keywords if make is dict else making(make, keywords)
        return struct

    def _field(self, field: Field) -> Fit:
        self._at.append(field.key)
        hint: Json = field.hint
        metadata = hint.__metadata__ if _origin(hint) is Annotated else ()
        notes = _notes(metadata, self.refused)
        if notes.foreign:
            fit = self.fit(hint)
        else:
            hint = hint.__origin__ if metadata else hint
            # A default of None says that None is meant, whatever the annotation forgot.
            fit = self.fit(hint if field.default is not None else _union_of((hint, None)), notes.limits)
        text = {"description": notes.text or field.text} if notes.text or field.text else {}
        shown = _plain_default(field.default)  # msgspec shows only what stands in the struct
        extra = {**notes.extra, **({} if shown is ABSENT else {"default": shown})}
        self._at.pop()
        return attrs.evolve(fit, type=_within(fit.type, {**text, **({"extra_json_schema": extra} if extra else {})}))

    # --- what stands beside a type ---

    def _annotated(self, hint: Json, limits: Mapping[str, Json]) -> Fit:
        notes = _notes(hint.__metadata__, self.refused)
        if notes.foreign:
            return self._pydantic(hint)
        fit = self.fit(hint.__origin__, {**limits, **notes.limits})
        text = {"description": notes.text} if notes.text else {}
        extra = {"extra_json_schema": dict(notes.extra)} if notes.extra else {}
        return attrs.evolve(fit, type=_within(fit.type, {**text, **extra}))

    def _union(self, members: Sequence[Json], limits: Mapping[str, Json]) -> Fit:
        members = [member for member in members if member is not msgspec.UnsetType]
        if any(member in (typing.Any, object) for member in members):
            return self._variable(typing.Any)
        proper = [member for member in members if member is not type(None)]
        nullable = len(proper) < len(members)
        if len(proper) > 1 and all(_is_pydantic(_origin(member) or member) for member in proper):
            fits = [self._pydantic(_union_of(proper))]
        else:
            fits = [self._member(member, limits) for member in proper]
            self._unlimited("its type", {name: limits[name] for name in limits if not _meant(name, fits)})
        if len(fits) > 1 and not _for_msgspec(fits):
            fits = [self._choice(proper, fits)]
        if not fits:
            return Fit(type(None), frozenset({"null"}))
        held = _union_of([*(fit.type for fit in fits), *((None,) if nullable else ())])
        kinds = frozenset[str]().union(*(fit.kinds for fit in fits), {"null"} if nullable else ())
        parts = tuple(part for fit in fits for part in fit.parts or (fit,))
        return Fit(held, kinds, _by_class(parts), parts)

    def _member(self, member: Json, limits: Mapping[str, Json]) -> Fit:
        plain = self.fit(member)
        apt = {name: limit for name, limit in limits.items() if _meant(name, [plain])}
        return self.fit(member, apt) if apt else plain

    def _choice(self, members: Sequence[Json], fits: Sequence[Fit]) -> Fit:
        forms = tuple(_Decoder(fit.type, fit.build) for fit in fits)
        self._forms.extend(forms)
        named = [(_name(member), form) for member, form in zip(members, forms, strict=True)]
        return Fit(self._stand_in("Choice", lambda given: _first(named, given), forms), frozenset({"custom"}))

    # --- stand-ins ---

    def _stand_in(self, name: str, decode: Callable[[Json], object], schema: Json) -> type:
        made = _Anything(name, (), {})
        self._hooks[made], self._schemas[made] = decode, schema
        return made

    def _hook(self, kind: type, given: Json) -> object:
        return self._hooks[kind](given)

    def _pydantic(self, hint: Json) -> Fit:
        try:
            decode, schema = _by_pydantic(hint)
        except Exception as error:  # pydantic has many, and each is about the type
            raise self.refused(f"pydantic does not take {_name(hint)} ({type(error).__name__}: {error}).") from error
        return Fit(self._stand_in(_name(hint), decode, schema), frozenset({"custom"}))

    # --- the schema ---

    def finish(self, root: Fit) -> Shape:
        """The schema of `root` with all that it refers to, and its decoder."""
        decoder = _Decoder(root.type, root.build)
        forms = [decoder, *self._forms]
        try:
            schemas, defs = msgspec.json.schema_components(
                [form.type for form in forms], schema_hook=lambda kind: {STANDS_FOR: kind}
            )
        except (TypeError, ValueError, NotImplementedError) as error:
            raise self.refused(f"msgspec does not take it: {error}") from error
        options = {**({"dec_hook": self._hook} if self._hooks else {}), **({"str_keys": True} if self._keyed else {})}
        for form, schema in zip(forms, schemas, strict=True):
            form.schema, form.defs = schema, defs
            form.convert = functools.partial(convert, **options) if options else convert
        settled = Settling(self._schemas, defs)
        for name in list(defs):
            defs[name] = settled(defs[name])
        for form in forms:
            form.schema = settled(form.schema)
        self.names = {}  # the caller's variables, which must not live as long as the tool
        return Shape(self_contained(decoder.schema, defs), decoder)


_INSTEAD = (
    "Use JSON's own types, datetime, UUID, Decimal, Path, Enum, Literal, lists, dicts and tuples of them, a "
    "dataclass, attrs class, TypedDict, NamedTuple, msgspec struct or pydantic model; or take text and parse it."
)
_WHY_NOT: Mapping[str, str] = {
    "CallContext": "a context is given to a parameter annotated CallContext itself, not within another type.",
    "TurnContext": "a context is given to a parameter annotated TurnContext itself, not within another type.",
}


def _name(hint: Json) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


# Forms made at run time, which a type checker cannot follow.


def _origin(hint: Json) -> Json:
    return get_origin(hint)


def _of(generic: Json, *args: Json) -> Json:
    return generic[args]


def _union_of(members: Sequence[Json]) -> Json:
    return typing.cast(Json, Union)[tuple(members)]


def _within(held: Json, notes: Mapping[str, Json]) -> Json:
    return Annotated[held, Meta(**notes)] if notes else held


# --- metadata -------------------------------------------------------------------------------------------------


@attrs.define
class Notes:
    """What stands beside a type in `Annotated`. `foreign`: only pydantic knows what it does."""

    text: str = ""
    limits: dict[str, Json] = attrs.field(factory=dict)
    extra: dict[str, Json] = attrs.field(factory=dict)
    foreign: bool = False


def _notes(metadata: Iterable[Json], refused: Callable[[str], UsageError]) -> Notes:
    """Text, `msgspec.Meta`, annotated-types and pydantic's `Field`; the rest is for others, says PEP 593."""
    notes = Notes()
    for each in metadata:
        package = type(each).__module__.split(".")[0]
        if isinstance(each, str) or hasattr(each, "documentation"):  # typing_extensions.Doc
            notes.text = each if isinstance(each, str) else each.documentation
        elif package == "pydantic" and (type(each).__name__ != "FieldInfo" or each.discriminator is not None):
            notes.foreign = True
        elif package in ("msgspec", "annotated_types", "pydantic"):
            _take(each, notes, refused)
    return notes


def _take(each: Json, notes: Notes, refused: Callable[[str], UsageError]) -> None:
    if getattr(each, "description", None):
        notes.text = each.description
    for name in ("title", "examples"):
        if getattr(each, name, None):
            notes.extra[name] = getattr(each, name)
    notes.extra.update(getattr(each, "extra_json_schema", None) or {})
    inner = getattr(each, "metadata", ())
    for part in inner:  # pydantic's Field holds its limits as annotated-types and values of its own
        notes.foreign = notes.foreign or hasattr(part, "func")
        _take(part, notes, refused)
    limits = {name: value for name in _LIMITS if (value := getattr(each, name, None)) is not None}
    if not limits and type(each).__module__.split(".")[0] == "annotated_types":
        raise refused(f"{each!r} cannot be said in JSON Schema and would go unchecked. Check it in the function.")
    if limits.get("min_length") == 0:
        del limits["min_length"]
    notes.limits.update(limits)


def _plain_default(default: object) -> object:
    """A default as JSON, or `ABSENT` if it has no plain form."""
    if default is ABSENT or isinstance(default, tuple):
        return ABSENT
    try:
        plain = msgspec.to_builtins(default, str_keys=True, enc_hook=_path_text)
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError, NotImplementedError):
        return ABSENT
    return plain


def _path_text(value: object) -> str:
    if isinstance(value, pathlib.PurePath):
        return str(value)
    raise NotImplementedError


# --- decoding what msgspec leaves to us -------------------------------------------------------------------------


def _first(named: Sequence[tuple[str, _Decoder]], given: Json) -> object:
    """The first form that `given` fits. A refusal says of each why not."""
    whys = []
    for name, form in named:
        try:
            return form(given)
        except Refusal as refused:
            whys.append(f"as {name}, {refused.words}")
    raise Refusal((), f" fits none of its forms: {'; '.join(whys)}")


def _by_pydantic(hint: Json) -> tuple[Callable[[Json], object], Json]:
    """pydantic's own decoder and schema of a type, strict and closed to unknown keys.

    Its JSON mode is strict about scalars, and takes text for dates, UUIDs and enums, which its Python mode does not
    (https://docs.pydantic.dev/latest/concepts/strict_mode/). A model that allows extra keys keeps to that.
    """
    from pydantic import TypeAdapter
    from pydantic import ValidationError as Invalid

    adapter = TypeAdapter(hint)
    schema = adapter.json_schema()
    options: dict[str, Json] = {"strict": True}
    opened = any(each.get("additionalProperties") is True for each in schemas_in(schema) if "properties" in each)
    if not opened and "extra" in inspect.signature(adapter.validate_json).parameters:
        options["extra"] = "forbid"
        for each in schemas_in(schema):
            if "properties" in each:
                each.setdefault("additionalProperties", False)

    def decode(given: Json) -> object:
        try:
            return adapter.validate_json(json.dumps(finite(given)), **options)
        except Invalid as error:
            first = error.errors(include_url=False)[0]
            raise Refusal(first["loc"], f": {first['msg']}") from None

    return decode, schema


def _is_pydantic(kind: object) -> bool:
    if not isinstance(kind, type):
        return False
    own = hasattr(kind, "__get_pydantic_core_schema__") and not is_record(kind)
    return own or hasattr(kind, "__pydantic_validator__")


def _meant(limit: str, fits: Sequence[Fit]) -> bool:
    return any(limit in _MEANT_FOR.get(kind, ()) for fit in fits for kind in fit.kinds)


# --- unions ----------------------------------------------------------------------------------------------------


def _for_msgspec(fits: Sequence[Fit]) -> bool:
    """Whether msgspec takes these in one union: no two from the same JSON type, and nothing of our own."""
    kinds = [kind for fit in fits for kind in fit.kinds]
    tagged = {kind.split(" ")[1] for kind in kinds if kind.startswith("tagged")}
    if "custom" in kinds or "any" in kinds or len(tagged) > 1 or (tagged and "object" in kinds):
        return False
    return len(set(kinds)) == len(kinds)


def _by_class(fits: Sequence[Fit]) -> Build | None:
    """A build that goes by the class of what msgspec made: a struct's own, or list, dict and the like."""
    builds: dict[object, Build] = {}
    for fit in fits:
        if fit.build:
            held = fit.type.__origin__ if _origin(fit.type) is Annotated else fit.type
            builds[_origin(held) or held] = fit.build
    if not builds:
        return None
    if typing.Any in builds:  # a type variable of no bound, or None
        return finite

    def build(value: Json) -> object:
        of_class = builds.get(type(value))
        return of_class(value) if of_class else value

    return build


def _struct_default(field: Field) -> tuple[()] | tuple[object]:
    """The struct's default: the owner's, if it is as plain as the type, else a mark to leave it to the owner."""
    if field.required:
        return ()
    plain = type(field.default) in (type(None), bool, int, float, str) and _is_plain(field.hint)
    return (field.default,) if plain else (UNSET,)


def _is_plain(hint: Json) -> bool:
    origin = _origin(hint)
    if origin is Annotated:
        return _is_plain(hint.__origin__)
    if origin in (Union, types.UnionType):
        return all(_is_plain(member) for member in get_args(hint))
    return origin is Literal or (isinstance(hint, collections.abc.Hashable) and hint in _SCALARS)


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
