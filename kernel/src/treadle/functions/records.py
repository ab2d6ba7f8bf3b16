"""Which fields a class or a function has: their names, types, defaults and texts.

Knows dataclasses, attrs classes, TypedDict, NamedTuple, msgspec structs and signatures; nothing of schemas.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Generic, NotRequired, Protocol, Required, TypeVar, get_args, get_origin

import attrs

from treadle.errors import UsageError
from treadle.messages import Json

from .docstrings import read_docs

ABSENT = object()
"""No default, or one that is made anew each time."""


@attrs.frozen(kw_only=True)
class Field:
    """One field: `name` for its owner, `key` in JSON. `text` describes it where its annotation does not.

    `default` is only shown; the owner itself fills in what is missing.
    """

    name: str
    key: str
    hint: object
    required: bool
    default: object = ABSENT
    text: str = ""


def is_record(kind: object) -> bool:
    """Whether `kind` is a class with named, typed fields that are set by its constructor."""
    if not isinstance(kind, type):
        return False
    return (
        dataclasses.is_dataclass(kind)
        or attrs.has(kind)
        or hasattr(kind, "__struct_fields__")
        or is_typed_dict(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def is_typed_dict(kind: type) -> bool:
    """As `typing.is_typeddict`, for that of typing_extensions too."""
    return issubclass(kind, dict) and hasattr(kind, "__required_keys__")


def record_fields(hint: object, names: Mapping[str, object]) -> tuple[Field, ...]:
    """The fields of a record class, or of a generic one with arguments, in order.

    `names` resolve what the class's module does not know. Raises `UsageError` for an annotation that stays unknown.
    """
    kind = typing.cast(type, get_origin(hint) or hint)
    hints = {name: _bind(each, _bindings(hint)) for name, each in _class_hints(kind, names).items()}
    texts = read_docs(own_doc(kind)).parameters
    if is_typed_dict(kind):
        found = _typed_dict(kind, hints)
    elif hasattr(kind, "__struct_fields__"):
        found = _struct(kind, hints)
    else:
        found = _constructor(kind, hints)
    return tuple(attrs.evolve(field, text=texts.get(field.name, "")) for field in found)


def own_doc(kind: type) -> str:
    """The docstring that somebody wrote for this class, not one that was generated or inherited."""
    doc = kind.__dict__.get("__doc__") or ""
    return "" if doc.startswith(f"{kind.__name__}(") else doc


def _typed_dict(kind: type, hints: Mapping[str, object]) -> Iterator[Field]:
    always: frozenset[str] = getattr(kind, "__required_keys__", frozenset())
    for key, hint in hints.items():
        required = key in always
        inner, notes = (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())
        # Under postponed annotations the class itself cannot see these two in its own annotations.
        if get_origin(inner) in (Required, NotRequired):
            required = get_origin(inner) is Required
            inner = get_args(inner)[0]
            hint = Annotated[(inner, *notes)] if notes else inner
        yield Field(name=key, key=key, hint=hint, required=required)


def _struct(kind: type, hints: Mapping[str, object]) -> Iterator[Field]:
    from msgspec import NODEFAULT
    from msgspec.structs import fields

    for each in fields(typing.cast(Json, kind)):
        default = ABSENT if each.default is NODEFAULT else each.default
        yield Field(
            name=each.name, key=each.encode_name, hint=hints[each.name], required=each.required, default=default
        )


def _constructor(kind: type, hints: Mapping[str, object]) -> Iterator[Field]:
    of_attrs: Iterable[Json] = getattr(kind, "__attrs_attrs__", ())
    names = {each.alias: each.name for each in of_attrs}
    for name, parameter in inspect.signature(kind).parameters.items():
        hint = hints.get(names.get(name, name), typing.Any)
        if isinstance(hint, dataclasses.InitVar):
            hint = hint.type
        yield from_parameter(parameter, hint)


def from_parameter(parameter: Parameter, hint: object) -> Field:
    """A field for one parameter of a signature."""
    required = parameter.default is Parameter.empty
    default = ABSENT if required or parameter.default is attrs.NOTHING else parameter.default
    return Field(name=parameter.name, key=parameter.name, hint=hint, required=required, default=default)


# --- annotations -------------------------------------------------------------------------------------------


def parameter_hints(
    call: Callable[..., object], signature: Signature, names: Mapping[str, object], skipped: Iterable[str]
) -> dict[str, object]:
    """What each parameter's annotation means, but for the `skipped` ones.

    Each is resolved alone, so that a return type or a context that only type checkers import does no harm.
    """
    home = innermost(call)
    known = {each.__name__: each for each in getattr(home, "__type_params__", ())}
    names = {**names, **_closure(home), **known}
    hints: dict[str, object] = {}
    for name, parameter in signature.parameters.items():
        if name in skipped:
            continue
        annotation = typing.Any if parameter.annotation is Parameter.empty else parameter.annotation
        hints[name] = _resolved(annotation, getattr(home, "__globals__", {}), names, f'parameter "{name}"')
    return hints


def innermost(call: Json) -> Json:
    """The plain function under partials, wrappers, methods and callable objects."""
    while True:
        if hasattr(call, "__wrapped__"):
            call = call.__wrapped__
        elif isinstance(getattr(call, "func", None), Callable):  # type: ignore[arg-type]
            call = call.func
        elif hasattr(call, "__func__"):
            call = call.__func__
        elif inspect.isclass(call):
            call = call.__init__
        elif inspect.isroutine(call):
            return call
        else:
            call = type(call).__call__


def _closure(home: Json) -> dict[str, object]:
    if not inspect.isfunction(home):
        return {}
    return dict(inspect.getclosurevars(home).nonlocals)


def _resolved(annotation: object, space: dict[str, Json], names: Mapping[str, object], what: str) -> object:
    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(holder, space, dict(names), include_extras=True)["it"]
    except NameError as error:
        raise UsageError(f"{what}: {unknown_name(annotation, error)}") from error
    except (TypeError, SyntaxError, AttributeError) as error:
        raise UsageError(f"{what}: the annotation {annotation!r} is not a type ({error}).") from error


def unknown_name(annotation: object, error: NameError) -> str:
    """What to do about an annotation with a name that is not known at run time."""
    return (
        f'the annotation {annotation!r} names "{error.name}", which is not known at run time. Import it outside of '
        f"TYPE_CHECKING, move a class out of its function, or decorate with @tool where the name is known."
    )


def _class_hints(kind: type, names: Mapping[str, object]) -> dict[str, object]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except NameError:
        pass
    try:  # a class inside of a function: what that function knows, and the class itself
        return typing.get_type_hints(kind, None, {**names, kind.__name__: kind}, include_extras=True)
    except NameError as error:
        raise UsageError(f"class {kind.__qualname__}: {unknown_name(kind.__annotations__, error)}") from error


def _bindings(hint: object) -> dict[object, object]:
    """What each type variable of a generic class and of its bases stands for."""
    kind: Json = get_origin(hint) or hint
    bound: dict[object, object] = dict(zip(getattr(kind, "__parameters__", ()), get_args(hint), strict=False))
    for base in getattr(kind, "__orig_bases__", ()):
        if get_origin(base) in (None, Generic, Protocol):
            continue
        for variable, meaning in _bindings(_bind(base, bound)).items():
            if bound.setdefault(variable, meaning) != meaning:
                raise UsageError(
                    f"class {kind.__qualname__} uses the type variable {variable} for two types. Give its base another."
                )
    return bound


def _bind(hint: Json, bound: Mapping[object, object]) -> object:
    if isinstance(hint, TypeVar):
        return bound.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if not variables or isinstance(hint, type):
        return hint
    return hint[tuple(bound.get(variable, variable) for variable in variables)]
