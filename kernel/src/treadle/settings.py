"""Where a plugin's settings come from: code, then the environment, then a file, then the stack's default.

A plugin's `Settings` is an attrs class of plain fields. Unknown keys fail; values are never printed.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from .errors import SettingsError
from .messages import Json


@attrs.frozen
class Source:
    """One place that says something of a plugin's settings; `name` is what a person calls it."""

    name: str
    values: Mapping[str, Json]


def environment_source(plugin: str, environ: Mapping[str, str], plugins: Iterable[str] = ()) -> Source:
    """What `TREADLE_<PLUGIN>_<FIELD>` says, as text. A variable belongs to the longest plugin name that fits it."""
    longer = [_prefix(other) for other in plugins if _prefix(other).startswith(_prefix(plugin)) and other != plugin]
    found = {
        key[len(_prefix(plugin)) :].lower(): value
        for key, value in environ.items()
        if key.startswith(_prefix(plugin)) and not any(key.startswith(other) for other in longer)
    }
    return Source("environment", found)


def _prefix(plugin: str) -> str:
    return f"TREADLE_{plugin.upper().replace('-', '_')}_"


def build_settings(plugin: str, settings: type | None, sources: list[Source]) -> Any:
    """The settings value of a plugin; of several sources that name a field the first wins. None without a class."""
    given = {key for source in sources for key in source.values}
    if settings is None:
        if given:
            raise SettingsError(plugin, min(given), "this plugin takes no settings", sources[0].name)
        return None
    fields = {field.name: field for field in attrs.fields(settings) if field.init}
    hints = get_type_hints(settings)
    chosen: dict[str, Any] = {}
    for source in reversed(sources):
        for key, value in source.values.items():
            if key not in fields:
                known = ", ".join(sorted(fields)) or "none"
                raise SettingsError(plugin, key, f"there is no such setting. Known: {known}.", source.name)
            chosen[key] = _typed(plugin, key, value, hints[key], source.name)
    try:
        return settings(**chosen)
    except (TypeError, ValueError) as error:
        raise SettingsError(plugin, ", ".join(sorted(chosen)) or "?", f"{error}") from error


def _typed(plugin: str, key: str, value: Json, wanted: Any, source: str) -> Any:
    """`value` as `wanted`; text from the environment is read as the field's type."""
    options = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    for option in options:
        kind = get_origin(option) or option
        if kind is Any or (inspect.isclass(kind) and isinstance(value, kind) and not _is_bool_as_number(value, kind)):
            return value
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if kind is tuple and isinstance(value, list):
            return tuple(value)
        if isinstance(value, str) and source == "environment":
            read = _read(value, kind)
            if read is not None:
                return read
    names = " or ".join(getattr(option, "__name__", str(option)) for option in options)
    raise SettingsError(plugin, key, f"must be {names}, not {type(value).__name__}", source)


def _is_bool_as_number(value: Json, kind: type) -> bool:
    return isinstance(value, bool) and kind is not bool


def _read(text: str, kind: Any) -> Any:
    """Text of an environment variable as a simple type; None if it is not one."""
    if kind is bool:
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower())
    if kind is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return None
    return None
