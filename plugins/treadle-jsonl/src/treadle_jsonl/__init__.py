"""Sessions in a folder of JSONL files: the plugin. The store itself is imported when a reference first asks for it."""

from __future__ import annotations

from treadle.plugin import Store, Unsupported, hookimpl

from .settings import JsonlSettings, folder_of


class Jsonl:
    """Opens stores such as `jsonl:sessions` (relative) and `jsonl:/srv/sessions` (absolute)."""

    Settings = JsonlSettings

    def __init__(self, settings: JsonlSettings | None = None) -> None:
        self.settings = settings or JsonlSettings()

    @hookimpl
    def open_store(self, ref: str) -> Store | None:
        """Claim `jsonl:` references. Touches no file: the folder is made by the first write.

        Raises `UsageError` if the reference names no folder, `Unsupported` where the system has no `flock`.
        """
        folder = folder_of(ref)
        if folder is None:
            return None
        try:
            from .store import JsonlStore
        except ModuleNotFoundError as error:
            if error.name != "fcntl":
                raise
            raise Unsupported("treadle-jsonl", "sessions on a system without flock (use treadle-sqlite)") from error
        return JsonlStore(folder, ref=ref, settings=self.settings)


__all__ = ["Jsonl"]
