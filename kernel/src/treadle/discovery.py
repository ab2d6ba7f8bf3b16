"""Which plugins are installed, and loading them by name. The only module that reads installed metadata.

Listing imports none of them. A plugin that fails to load disables itself alone and is reported, unless it was named.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import attrs

from .errors import CompositionError, SettingsError, UsageError
from .messages import Json
from .settings import Source, build_settings, environment_source

GROUP = "treadle"
STACKS = "treadle.stacks"
SPECS = "treadle.hookspecs"


@attrs.frozen(kw_only=True)
class Found:
    """One installed plugin, as its distribution declares it; nothing of it is imported."""

    name: str
    value: str
    distribution: str
    version: str

    @property
    def origin(self) -> str:
        """Its distribution and version."""
        return f"{self.distribution} {self.version}"

    def load(self) -> Any:
        """Import what the entry point names."""
        from importlib.metadata import EntryPoint

        return EntryPoint(self.name, self.value, GROUP).load()


@attrs.frozen
class Broken:
    """A plugin that could not be loaded, and why."""

    found: Found
    cause: BaseException

    def __str__(self) -> str:
        return f'plugin "{self.found.name}" ({self.found.origin}): {type(self.cause).__name__}: {self.cause}'


@attrs.frozen(kw_only=True)
class StackSpec:
    """A stack as data: plugin names in order, default settings, the default store."""

    name: str
    plugins: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Json]] = attrs.field(factory=dict)
    store: str = "memory:"


@attrs.frozen(kw_only=True)
class Loaded:
    """A plugin made from its class and settings."""

    name: str
    plugin: object
    version: str
    origin: str
    requires: tuple[str, ...]


def installed(group: str = GROUP, found: Iterable[Distribution] | None = None) -> tuple[Found, ...]:
    """All that is installed in a group, sorted by name. A name that two distributions declare is an error.

    The same distribution seen twice on the path counts once: the first, which is the one Python would import.
    """
    by_name: dict[str, Found] = {}
    seen: set[str] = set()
    faults: list[str] = []
    for distribution in found if found is not None else distributions():
        name = distribution.metadata["Name"]
        if name is None or name.lower() in seen:
            continue
        seen.add(name.lower())
        for point in distribution.entry_points:
            if point.group != group:
                continue
            this = Found(name=point.name, value=point.value, distribution=name, version=distribution.version)
            other = by_name.setdefault(point.name, this)
            if other is not this:
                pair = " and ".join(sorted([other.origin, this.origin]))
                faults.append(f'two distributions declare the plugin "{point.name}": {pair}; uninstall one')
    if faults:
        raise CompositionError(sorted(faults))
    return tuple(by_name[name] for name in sorted(by_name))


def find_stack(name: str) -> StackSpec:
    """An installed stack by name."""
    known = {each.name: each for each in installed(STACKS)}
    if name not in known:
        raise UsageError(f'There is no stack "{name}". Installed: {", ".join(known) or "none"}.')
    data = known[name].load()
    return StackSpec(
        name=name,
        plugins=tuple(data["plugins"]),
        settings=data.get("settings", {}),
        store=data.get("store", "memory:"),
    )


def read_config(path: Path) -> Mapping[str, Json]:
    """The table of `treadle.toml`, or `[tool.treadle]` of a `pyproject.toml`."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    table = data.get("tool", {}).get("treadle", {}) if path.name == "pyproject.toml" else data
    unknown = set(table) - {"plugins", "stack", "store", "model", "profiles"}
    if unknown:
        raise UsageError(f"{path}: unknown key {min(unknown)}. Known: model, plugins, profiles, stack, store.")
    return dict(table)


def nearest_config(folder: Path) -> Path | None:
    """`treadle.toml`, or a `pyproject.toml` with `[tool.treadle]`, in this folder or one above."""
    for place in (folder, *folder.parents):
        if (file := place / "treadle.toml").is_file():
            return file
        file = place / "pyproject.toml"
        if file.is_file() and "[tool.treadle" in file.read_text(encoding="utf-8", errors="replace"):
            return file
    return None


def make(found: Found, sources: Sequence[Source], environ: Mapping[str, str], plugins: Iterable[str] = ()) -> Loaded:
    """Load one plugin and make it with its settings; `plugins` are the names of all that are installed."""
    cls = found.load()
    settings_class = getattr(cls, "Settings", None)
    env = environment_source(found.name, environ, plugins)
    settings = build_settings(found.name, settings_class, [env, *sources])
    plugin = cls(settings) if settings_class is not None else cls()
    _mark(plugin, found)
    return Loaded(
        name=found.name,
        plugin=plugin,
        version=found.version,
        origin=found.origin,
        requires=tuple(getattr(cls, "requires", ())),
    )


def _mark(plugin: object, found: Found) -> None:
    """Leave distribution and version where the host's fault texts find them; a slotted class does without."""
    try:
        plugin.__treadle_origin__ = found.origin  # type: ignore[attr-defined]
    except AttributeError:
        return


def resolve(
    names: Sequence[str],
    *,
    settings: Sequence[Source] | None = None,
    config: Mapping[str, Mapping[str, Json]] | None = None,
    defaults: Mapping[str, Mapping[str, Json]] | None = None,
    environ: Mapping[str, str],
    required: bool = True,
    known: Sequence[Found] | None = None,
) -> tuple[list[Loaded], list[Broken]]:
    """Plugins by name, in order. A named one that is absent or broken fails the composition; else it is reported."""
    table = {each.name: each for each in (known if known is not None else installed())}
    out: list[Loaded] = []
    broken: list[Broken] = []
    faults: list[str] = []
    for name in names:
        found = table.get(name)
        if found is None:
            faults.append(
                f'there is no plugin "{name}". Installed: {", ".join(table) or "none"}. '
                f"Install one, for example: pip install treadle-{name}"
            )
            continue
        sources = [
            Source("file", (config or {}).get(name, {})),
            Source("stack default", (defaults or {}).get(name, {})),
        ]
        try:
            loaded = make(found, sources, environ, table)
        except Exception as error:
            if required and isinstance(error, SettingsError):
                raise
            broken.append(Broken(found, error))
            if required:
                faults.append(str(broken[-1]))
            continue
        out.append(loaded)
    if faults:
        raise CompositionError(faults)
    return out, broken
