"""Prints the reference pages that come from the code: hooks, log, errors.

`python docs/generate.py` writes them; `--check` changes nothing and fails where a page is out of date.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from treadle import errors
from treadle.events import CORE_TYPES
from treadle.grammar import ANYWHERE, TABLE
from treadle.hooks import JOINS, Join, Specs

FOLDER = Path(__file__).resolve().parent / "reference"
NOTE = "<!-- Written by docs/generate.py from the code. Change it there. -->"

HOW = {
    "nested": "each wraps those after it, like `with` blocks; every one must be entered and left",
    "first": "the first answer, in order, is the one that counts",
    "gather": "every one is called, and their answers are put together",
    "waterfall": "each gets what the one before it returned",
    "guards": "every one is called; `Deny` beats `Defer` beats `Answer` beats None",
    "notify": "every one is called; answers are ignored",
}
NONE = {
    "nested": "is no answer: return what the signature says",
    "first": "leaves it to the next plugin",
    "gather": "adds nothing",
    "waterfall": "changes nothing",
    "guards": "lets the call pass this guard",
    "notify": "is all there is to return",
}
FAULT = {
    "raise": "is raised to the caller, and names the plugin",
    "fail_turn": "fails the turn; the batch stays pending",
    "fail_step": "fails the step, and the turn with it",
    "deny": "is a denial of the call",
    "error_result": "becomes an error result that the model reads",
    "contain": "is contained and reported to `on_hook_error`; the others are called all the same",
    "silent": "is dropped",
}


def hooks_page() -> str:
    """Every hook: its signature, its docstring, how answers are joined, what None and a fault mean."""
    out = [NOTE, "# Hooks", "", *_intro(), "", "| hook | joined | a fault |", "|---|---|---|"]
    out += [f"| [`{name}`](#{name}) | {_joined(join)} | {FAULT[join.fault]} |" for name, join in JOINS.items()]
    for name, join in JOINS.items():
        out += ["", f"## {name}", "", *_signature(name), "", inspect.getdoc(getattr(Specs, name)) or "", ""]
        out += [f"- Joined: {_joined(join)}: {HOW[join.joined]}.", f"- None {NONE[join.joined]}."]
        out.append(f"- A fault, or a time-out where the hook is awaited, {FAULT[join.fault]}.")
    return "\n".join(out) + "\n"


def _intro() -> Iterator[str]:
    yield "A plugin's method that is marked `@hookimpl` and named like one of these is called with the arguments that"
    yield "it names; leave out those that you do not use. Implementations may be sync or async, except where *sync* is"
    yield "said. Their order is the order of the stack's plugin list, then `tryfirst` and `trylast`. Hooks return"
    yield "values; only the loop writes to the log."


def _joined(join: Join) -> str:
    return join.joined + (", sync" if join.sync else "") + (", in reverse order" if join.reverse else "")


def _signature(name: str) -> Iterator[str]:
    parameters = [each for each in inspect.signature(getattr(Specs, name)).parameters.values() if each.name != "self"]
    returns = inspect.signature(getattr(Specs, name)).return_annotation
    yield "```python"
    yield f"def {name}("
    yield from (f"    {each.name}: {each.annotation}," for each in parameters)
    yield f") -> {returns}"
    yield "```"


def log_page() -> str:
    """The grammar: which event is lawful in which phase, and the data of each core type."""
    out = [NOTE, "# The log", "", "A session is a sequence of events without gaps. In each phase these are lawful:", ""]
    out += ["| phase | event | next phase |", "|---|---|---|"]
    for phase, row in TABLE.items():
        out += [f"| {phase.value} | `{_type(data)}` | {after.value} |" for data, after in row.items()]
    anywhere = ", ".join(sorted(f"`{_type(data)}`" for data in ANYWHERE))
    out += ["", f"In every phase but {next(iter(TABLE)).value} also: {anywhere}. The phase stays."]
    out += ["", "A `step/start` that resumes calls leads to ACTING instead of READY.", "", "## Core types"]
    for name, data in CORE_TYPES.items():
        out += ["", f"### {name}", "", inspect.getdoc(data) or "", ""]
        out += [f"- `{each.name}`: `{each.annotation}`" for each in inspect.signature(data).parameters.values()]
    return "\n".join(out) + "\n"


def _type(data: type) -> str:
    names = {each: name for name, each in CORE_TYPES.items()}
    return names.get(data, "<plugin>/<name>")


def errors_page() -> str:
    """Every error: what it is, and the facts that it holds."""
    out = [NOTE, "# Errors", "", "Every error that treadle raises on purpose is a `TreadleError`. Each holds its facts"]
    out += ["as attributes, and its text says what happened, where, and what to do."]
    for error in vars(errors).values():
        if inspect.isclass(error) and issubclass(error, errors.TreadleError):
            base = error.__bases__[0].__name__
            out += ["", f"## {error.__name__}", "", inspect.getdoc(error) or "", "", f"- Is a: `{base}`"]
            if "__init__" in vars(error):
                facts = [f"`{name}`" for name in inspect.signature(error).parameters]
                out.append(f"- Facts: {', '.join(facts)}")
    return "\n".join(out) + "\n"


PAGES: dict[str, Callable[[], str]] = {"hooks.md": hooks_page, "log.md": log_page, "errors.md": errors_page}


def main(arguments: list[str]) -> int:
    """Write the pages, or with `--check` name those that differ."""
    stale = []
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.is_file() or path.read_text("utf-8") != text:
            stale.append(name)
            if arguments != ["--check"]:
                path.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"docs/reference/{name} {'is out of date' if arguments == ['--check'] else 'is written'}\n")
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
