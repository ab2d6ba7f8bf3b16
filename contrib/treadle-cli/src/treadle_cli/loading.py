"""Tools named on the command line: `module:function`, `file.py:function`, or all tools of a module or file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from treadle import Tool, tool
from treadle.plugin import UsageError


def load_tools(names: Sequence[str]) -> tuple[Tool, ...]:
    """The tools of all names, in order. Raises `UsageError` naming the one that cannot be loaded, and why."""
    return tuple(each for name in names for each in load(name))


def load(name: str) -> Sequence[Tool]:
    """The tools of one name. A plain function becomes a tool; a name without `:` means every `Tool` in there."""
    place, colon, attribute = name.rpartition(":")
    if not colon or attribute.endswith(".py"):
        place, attribute = name, ""
    module = _module(place, name, "--tool")
    if not attribute:
        found = list(dict.fromkeys(each for each in vars(module).values() if isinstance(each, Tool)))
        if not found:
            raise UsageError(f"--tool {name}: there is no @tool in it. Name a function: {place}:FUNCTION.")
        return found
    target = _found(module, attribute, place, name, "--tool")
    made = target if isinstance(target, (list, tuple)) else [target]
    return [_as_tool(each, name) for each in made]


def load_object(name: str, option: str) -> object:
    """What `module:name` or `file.py:name` names, for an option. Raises `UsageError`."""
    place, _, attribute = name.rpartition(":")
    return _found(_module(place, name, option), attribute, place, name, option)


def _found(module: ModuleType, attribute: str, place: str, name: str, option: str) -> object:
    target: object = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            known = ", ".join(key for key, value in vars(module).items() if _own(value, module)) or "none"
            what = "Functions" if option == "--tool" else "Names"
            raise UsageError(f"{option} {name}: {place} has no {attribute}. {what} in it: {known}.")
        target = getattr(target, part)
    return target


def _as_tool(value: object, name: str) -> Tool:
    if isinstance(value, Tool):
        return value
    if not callable(value):
        raise UsageError(f"--tool {name}: that is {type(value).__name__}, neither a function nor a Tool.")
    made: Callable[..., object] = value
    return tool(made)


def _own(value: object, module: ModuleType) -> bool:
    return isinstance(value, Tool) or (callable(value) and getattr(value, "__module__", "") == module.__name__)


def _module(place: str, name: str, option: str) -> ModuleType:
    """Import a module or run a file, with the folder it belongs to on the path, as `python` does."""
    path = Path(place)
    is_file = place.endswith(".py")
    folder = str(path.absolute().parent if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if is_file and not path.is_file():
        raise UsageError(f"{option} {name}: there is no file {path.absolute()}.")
    try:
        return _run_file(path) if is_file else importlib.import_module(place)
    except Exception as error:
        raise UsageError(f"{option} {name}: it cannot be loaded: {type(error).__name__}: {error}.") from error


def _run_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # classes defined in it look their module up by name
    spec.loader.exec_module(module)
    return module
