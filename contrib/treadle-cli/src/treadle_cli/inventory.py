"""What is installed: plugins, stacks and commands, as their distributions declare them. Nothing is imported.

What a plugin class offers is read from its source text, without running it, so that a broken plugin is listed too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path

import attrs

from treadle.plugin import Json

from .ink import Ink, wants_colour
from .screen import Screen
from .sessions import print_table

PLUGINS, STACKS, COMMANDS = "treadle", "treadle.stacks", "treadle.commands"
SEAMS = {"open_model": "models", "open_store": "stores", "provide_tools": "tools"}


@attrs.frozen(kw_only=True)
class Declared:
    """One entry point of one distribution."""

    name: str
    value: str
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """Its distribution and version."""
        return f"{self.distribution} {self.version}"


@attrs.frozen(kw_only=True)
class Outline:
    """What a plugin's source says of it. `hooks` is None where the source cannot be read."""

    hooks: tuple[str, ...] | None = None
    ambient: bool = False
    requires: tuple[str, ...] = ()
    about: str = ""
    file: str = ""

    @property
    def seams(self) -> str:
        """What it is for, in one or two words."""
        if self.hooks is None:
            return "?"
        named = [seam for hook, seam in SEAMS.items() if hook in self.hooks]
        others = [hook for hook in self.hooks if hook not in SEAMS and hook != "lifespan"]
        return ", ".join([*named, *(["hooks"] if others else [])]) or "-"


def declared(group: str = PLUGINS, found: Sequence[Distribution] | None = None) -> tuple[Declared, ...]:
    """Everything that is declared in a group, sorted by name, duplicates included.

    A distribution that stands on the path twice counts once: the first, which is the one Python would import.
    """
    out: list[Declared] = []
    seen: set[str] = set()
    for distribution in found if found is not None else distributions():
        name = distribution.metadata["Name"]
        key = re.sub(r"[-_.]+", "-", name or "").lower()  # PEP 503, "Normalized Names"
        if name is None or key in seen:
            continue
        seen.add(key)
        for point in distribution.entry_points:
            if point.group == group:
                made = Declared(name=point.name, value=point.value, distribution=name, version=distribution.version)
                out.append(made)
    return tuple(sorted(out, key=lambda each: (each.name, each.distribution)))


def conflicts(group: str = PLUGINS) -> tuple[str, ...]:
    """Each name that several distributions declare, as a sentence."""
    by_name: dict[str, list[str]] = {}
    for each in declared(group):
        by_name.setdefault(each.name, []).append(each.origin)
    kind = {PLUGINS: "plugin", STACKS: "stack", COMMANDS: "command"}[group]
    return tuple(
        f'{len(origins)} distributions declare the {kind} "{name}": {", ".join(origins)}. Uninstall all but one.'
        for name, origins in by_name.items()
        if len(origins) > 1
    )


# --- reading source ------------------------------------------------------------------------------------------


def outline(value: str) -> Outline:
    """What the source of `module:Class` says. Follows a class that its module imports from beside it."""
    module, _, name = value.partition(":")
    file = _file_of(module)
    for _ in range(4):
        tree = _tree_of(file)
        if file is None or tree is None:
            return Outline()
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return _outline(node, file)
        file, name = _followed(tree, file, name)
    return Outline()


def _file_of(module: str) -> Path | None:
    """The file of a module, found without importing the packages above it."""
    path: Sequence[str] | None = None
    for part in module.split("."):
        try:
            spec = PathFinder.find_spec(part, path)
            if spec is None:
                spec = _by_other_finders(part) if path is None else None
        except Exception:  # an import hook of somebody else
            return None
        if spec is None or spec.origin is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec is not None and spec.origin else None


def _by_other_finders(name: str) -> Json:
    # Some editable installs put a finder of their own on sys.meta_path.
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, None) if find is not None else None
        if spec is not None:
            return spec
    return None


def _tree_of(file: Path | None) -> ast.Module | None:
    try:
        return ast.parse(file.read_text(encoding="utf-8")) if file is not None and file.suffix == ".py" else None
    except (OSError, SyntaxError, ValueError):
        return None


def _followed(tree: ast.Module, file: Path, name: str) -> tuple[Path | None, str]:
    """Where a name that is imported relatively comes from."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    place = file.parent.joinpath(*node.module.split("."))
                    return next(
                        (p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None
                    ), alias.name
    return None, name


def _outline(node: ast.ClassDef, file: Path) -> Outline:
    constants = dict(_constants(node))
    hooks = tuple(
        each.name
        for each in node.body
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(map(_is_hookimpl, each.decorator_list))
    )
    requires = constants.get("requires", ())
    return Outline(
        hooks=hooks,
        ambient=bool(constants.get("ambient", False)),
        requires=tuple(requires) if isinstance(requires, (tuple, list)) else (),
        about=(ast.get_docstring(node) or "").split("\n")[0],
        file=str(file),
    )


def _constants(node: ast.ClassDef) -> Iterator[tuple[str, Json]]:
    for each in node.body:
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        )
        value = getattr(each, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                try:
                    yield target.id, ast.literal_eval(value)
                except ValueError:
                    continue


def _is_hookimpl(decorator: ast.expr) -> bool:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return (decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")) == "hookimpl"


# --- printing --------------------------------------------------------------------------------------------------


def print_inventory(screen: Screen, *, details: bool) -> None:
    """Print plugins, and with `details` their hooks and files; then stacks and commands."""
    found = [(each, outline(each.value)) for each in declared()]
    others = {"stacks": declared(STACKS), "commands": declared(COMMANDS)}
    if screen.form == "json":
        plugins = [{**attrs.asdict(each), "seams": seen.seams, **_plain(seen)} for each, seen in found]
        rest = {kind: [attrs.asdict(each) for each in rows] for kind, rows in others.items()}
        screen.document({"plugins": plugins, **rest})
        return
    if not found:
        screen.tell("No plugins are installed. For example: pip install treadle-starter")
    elif details:
        ink = Ink(wants_colour(screen.out))
        for kind, points in others.items():
            found += [(each, Outline(about=f"one of the {kind}")) for each in points]
        screen.out.write("\n\n".join(_block(each, seen, ink) for each, seen in found) + "\n")
    else:
        print_table(("plugin", "version", "distribution", "offers", "joins"), [_row(*each) for each in found], screen)
    for group in (PLUGINS, STACKS, COMMANDS):
        for conflict in conflicts(group):
            screen.tell(screen.ink.bad(conflict))


def _plain(seen: Outline) -> Mapping[str, Json]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in attrs.asdict(seen).items()}


def _row(each: Declared, seen: Outline) -> tuple[str, ...]:
    return each.name, each.version, each.distribution, seen.seams, _joins(seen)


def _joins(seen: Outline) -> str:
    return "when named" if seen.ambient else "by itself" if seen.hooks is not None else "?"


def _block(each: Declared, seen: Outline, ink: Ink) -> str:
    """Everything of one entry point, a line for each thing that is known."""
    lines = {
        "": seen.about,
        "offers": seen.seams if seen.hooks is not None else "",
        "joins": _joins(seen) if seen.hooks is not None else "",
        "hooks": ", ".join(seen.hooks or ()),
        "needs": ", ".join(seen.requires),
        "names": each.value,
        "file": seen.file,
    }
    known = [f"  {key + ': ' if key else ''}{text}" for key, text in lines.items() if text]
    return "\n".join([f"{ink.name(each.name)} {each.version}  ({each.distribution})", *known])
