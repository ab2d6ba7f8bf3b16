"""The commands and their options. What they do is imported when they are called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .group import Commands, with_traceback

if TYPE_CHECKING:
    from .composition import Acting, Composing
    from .screen import Form, Screen

F = TypeVar("F", bound=Callable[..., Any])

EPILOG = (
    "`treadle PROMPT` is `treadle run PROMPT`. "
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 waiting for approval, 4 a limit is used up, 130 Ctrl-C."
)


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


composing_options = _options(
    click.option("--store", metavar="REF", help="Where the session lives, for example sqlite:///app.db"),
    click.option("--db", metavar="FILE", help="As --store, with the file of a SQLite store."),
    click.option("-p", "plugins", metavar="NAME", multiple=True, help="Add a plugin; no:NAME leaves one out."),
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A treadle.toml; else the nearest one, or [tool.treadle] of a pyproject.toml.",
    ),
    click.option("--stack", metavar="NAME", help="Compose an installed stack."),
    with_traceback,
)

acting_options = _options(
    click.option("-m", "--model", metavar="REF", help="The model, for example openai:gpt-5 or local:smollm2"),
    click.option("-s", "--system", metavar="TEXT", default="", help="Instructions."),
    click.option(
        "-t", "--tool", "tools", metavar="TOOL", multiple=True, help="module:function, file.py:function or file.py"
    ),
    click.option(
        "-o", "--option", "params", nargs=2, metavar="KEY VALUE", multiple=True, help="A model parameter; JSON or text."
    ),
    click.option("--session", metavar="NAME", help="The session to go on with, or to begin; NAME or REF#NAME."),
    click.option("-c", "--continue", "go_on", is_flag=True, help="Go on with the store's last session."),
    click.option("-n", "--no-log", is_flag=True, help="Keep nothing."),
    click.option("--user", metavar="NAME", help="Whose memory and budgets apply."),
    click.option("--max-steps", type=click.IntRange(min=1), metavar="N", help="At most so many steps a turn."),
    click.option("--tokens", type=click.IntRange(min=0), metavar="N", help="At most so many tokens a turn."),
    click.option("--seconds", type=click.FloatRange(min=0), metavar="N", help="At most so long a turn."),
    click.option("--no-stream", is_flag=True, help="Show each reply when it is whole."),
    click.option("-q", "--quiet", is_flag=True, help="No steps and tool calls on stderr."),
)

json_options = _options(
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
    click.option("--jsonl", "as_jsonl", is_flag=True, help="Print one JSON object a line."),
)


def _form(as_json: bool, as_jsonl: bool) -> Form:
    if as_json and as_jsonl:
        raise click.UsageError("--json and --jsonl are two forms of the output. Give one.")
    return "json" if as_json else "jsonl" if as_jsonl else "text"


def _composing(given: dict[str, Any]) -> Composing:
    from .composition import Composing

    names = ("plugins", "config", "stack", "store", "db", "no_log")
    return Composing(**{name: given.pop(name) for name in names if name in given})


def _acting(given: dict[str, Any]) -> Acting:
    from .composition import Acting

    names = ("model", "system", "tools", "params", "session", "go_on", "user", "max_steps", "tokens", "seconds")
    return Acting(**{name: given.pop(name) for name in names})


def _ended(main: Callable[..., Any], *args: Any, **named: Any) -> None:
    """Run an async function to its exit code, and end with that."""
    import anyio

    click.get_current_context().exit(anyio.run(partial(main, *args, **named)))


@click.group(cls=Commands, epilog=EPILOG)
@click.version_option(version("treadle-cli"), package_name="treadle-cli", prog_name="treadle")
def treadle() -> None:
    """Run agents, talk to them, and look at sessions and plugins."""


@treadle.command()
@click.argument("prompt", required=False)
@acting_options
@json_options
@click.option("--schema", metavar="SCHEMA", help="Answer in JSON: fields such as 'name, age int', a schema, a file.")
@click.option("--schema-multi", metavar="SCHEMA", help="As --schema, for several of them.")
@click.option("--approve", "allow", metavar="CALL", multiple=True, help="Allow a call that waits: id, tool or all.")
@click.option("--deny", metavar="CALL", multiple=True, help="Deny a call that waits: id, tool or all.")
@composing_options
def run(
    prompt: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    as_json: bool,
    as_jsonl: bool,
    schema: str | None,
    schema_multi: str | None,
    **given: Any,
) -> None:
    """Say PROMPT to an agent and print its answer. Piped input is read as the prompt, or added below it.

    The answer goes to stdout, steps and tool calls to stderr. With --schema it is one JSON document. Without a prompt,
    --approve and --deny decide about the calls that wait in the --session.
    """
    from .composition import compose
    from .turns import Asked, run_once

    output = _output(schema, schema_multi)
    form = "answer" if output is not None and not (as_json or as_jsonl) else _form(as_json, as_jsonl)
    may_ask = sys.stdin.isatty() and sys.stderr.isatty()
    text = _whole_prompt(prompt, decides=bool(allow or deny))
    screen = _screen(given, form)
    acting, composed = _acting(given), compose(_composing(given))
    _warn(composed.notes, screen)
    asked = Asked(prompt=text, allow=allow, deny=deny, may_ask=may_ask, output=output)
    _ended(run_once, asked, acting, composed, screen)


def _output(schema: str | None, schema_multi: str | None) -> object:
    """The type of the structured answer that is asked for; None is words."""
    if schema is not None and schema_multi is not None:
        raise click.UsageError("--schema and --schema-multi are two forms of the answer. Give one.")
    if schema is None and schema_multi is None:
        return None
    from .schemas import read_schema

    return read_schema(schema or schema_multi or "", several=schema is None)


def _whole_prompt(prompt: str | None, *, decides: bool) -> str | None:
    """The argument and what was piped in, a blank line between them."""
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read().rstrip("\n")
    if prompt == "-":
        prompt = None
    whole = "\n\n".join(part for part in (prompt or "", piped) if part.strip())
    if not whole and not decides:
        raise click.UsageError("There is no prompt. Write one, pipe one in, or talk: treadle chat")
    return whole or None


def _screen(given: dict[str, Any], form: Form = "text") -> Screen:
    from .screen import Screen

    return Screen(form=form, stream=not given.pop("no_stream", False), quiet=given.pop("quiet", False))


def _warn(notes: tuple[str, ...], screen: Screen) -> None:
    for note in notes:
        screen.tell(screen.ink.asks(f"Note: {note}"))


@treadle.command()
@acting_options
@click.option(
    "--steer/--queue",
    default=None,
    help="What a line does that comes while a turn runs: steer it (at a terminal), or wait for the next turn.",
)
@composing_options
def chat(steer: bool | None, **given: Any) -> None:
    """Talk to an agent. What you type while it works steers it; Ctrl-C ends the turn, at the prompt it leaves."""
    from .chat import chat as talk
    from .composition import compose

    interactive = sys.stdin.isatty()
    screen = _screen(given)
    acting, composed = _acting(given), compose(_composing(given))
    _warn(composed.notes, screen)
    busy = "steer" if steer or (steer is None and interactive) else "queue"
    _ended(talk, acting, composed, screen, busy=busy, interactive=interactive)


@treadle.group()
def sessions() -> None:
    """Look at the sessions of a store; branch, name, move and remove them."""


@sessions.command("list")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many; 0 is all.")
@click.option("--archived", is_flag=True, help="Those that were put away.")
@json_options
@composing_options
def list_(limit: int, archived: bool, as_json: bool, as_jsonl: bool, **given: Any) -> None:
    """List sessions, the last used first."""
    from .composition import compose
    from .sessions import list_sessions

    composed = compose(_composing(given))
    screen = _screen(given, _form(as_json, as_jsonl))
    _ended(list_sessions, composed, screen, limit=limit or None, archived=archived)


@sessions.command()
@click.argument("name", required=False)
@json_options
@composing_options
def show(name: str | None, as_json: bool, as_jsonl: bool, **given: Any) -> None:
    """Print the session NAME (or REF#NAME), or the last one: who said what, and what its tools did."""
    from .composition import compose
    from .sessions import show_session

    composed = compose(_composing(given))
    _ended(show_session, composed, _screen(given, _form(as_json, as_jsonl)), name)


@sessions.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many; 0 is all.")
@json_options
@composing_options
def search(words: tuple[str, ...], limit: int, as_json: bool, as_jsonl: bool, **given: Any) -> None:
    """Find messages that have all the WORDS, or words that begin with them, newest first."""
    from . import keeping
    from .composition import compose

    composed, screen = compose(_composing(given)), _screen(given, _form(as_json, as_jsonl))
    _ended(keeping.search, composed, screen, " ".join(words), limit=limit or None)


@sessions.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@composing_options
def tree(name: str | None, as_json: bool, **given: Any) -> None:
    """Show which session was forked from which; with NAME, those that descend from it."""
    from . import keeping
    from .composition import compose

    _ended(keeping.tree, compose(_composing(given)), _screen(given, _form(as_json, False)), name)


@sessions.command()
@click.argument("name")
@click.argument("new", required=False)
@click.option("--at", "at_seq", type=click.IntRange(min=1), metavar="SEQ", help="Up to this event; else to the end.")
@composing_options
def fork(name: str, new: str | None, at_seq: int | None, **given: Any) -> None:
    """Make a session NEW that begins with the events of NAME, and print its name. The two then go their own ways."""
    from . import keeping
    from .composition import compose

    _ended(keeping.fork, compose(_composing(given)), _screen(given), name, new, at_seq=at_seq)


@sessions.command()
@click.argument("name")
@click.option("--turns", type=click.IntRange(min=1), default=1, show_default=True, help="How many of the last turns.")
@composing_options
def rewind(name: str, turns: int, **given: Any) -> None:
    """Hide the last turns of NAME from the model. The log keeps them, and what its tools did stays done."""
    from . import keeping
    from .composition import compose

    _ended(keeping.rewind, compose(_composing(given)), _screen(given), name, turns=turns)


@sessions.command()
@click.argument("name")
@click.argument("labels", nargs=-1)
@click.option("--remove", metavar="LABEL", multiple=True, help="Take a label away; may be repeated.")
@click.option("--title", metavar="TEXT", help="What lists call it.")
@composing_options
def label(name: str, labels: tuple[str, ...], remove: tuple[str, ...], title: str | None, **given: Any) -> None:
    """Add LABELS to NAME, and print all it has."""
    from . import keeping
    from .composition import compose

    composed = compose(_composing(given))
    _ended(keeping.label, composed, _screen(given), name, labels, remove=remove, title=title)


@sessions.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Take them back.")
@composing_options
def archive(names: tuple[str, ...], undo: bool, **given: Any) -> None:
    """Put sessions away: lists leave them out, and they can still be read."""
    from . import keeping
    from .composition import compose

    _ended(keeping.archive, compose(_composing(given)), names, archived=not undo)


@sessions.command()
@click.argument("names", nargs=-1)
@click.option("-o", "--output", metavar="FILE", help="Where to; else stdout.")
@click.option("--whole", is_flag=True, help="Each fork with the events it inherited, so that it stands alone.")
@click.option("--messages", is_flag=True, help="Only what was said. This cannot be imported.")
@composing_options
def export(names: tuple[str, ...], output: str | None, whole: bool, messages: bool, **given: Any) -> None:
    """Write sessions as lines of JSON, which `import` reads; without NAMES all of the store."""
    from . import keeping
    from .composition import compose

    composed, screen = compose(_composing(given)), _screen(given)
    _ended(keeping.export, composed, screen, names, output=output, whole=whole, messages=messages)


@sessions.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--name", metavar="NAME", help="What to call it, if it is one session.")
@composing_options
def import_(file: str, name: str | None, **given: Any) -> None:
    """Read what `export` wrote, from FILE or from stdin (-): all sessions of it, or none. Prints their names."""
    from . import keeping
    from .composition import compose

    _ended(keeping.import_, compose(_composing(given)), _screen(given), file, name=name)


@sessions.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--forks", "with_forks", is_flag=True, help="With all that was forked from them.")
@click.option("-y", "--yes", "sure", is_flag=True, help="Do not ask.")
@composing_options
def delete(names: tuple[str, ...], with_forks: bool, sure: bool, **given: Any) -> None:
    """Delete sessions for good."""
    from . import keeping
    from .composition import compose

    _ended(keeping.delete, compose(_composing(given)), _screen(given), names, with_forks=with_forks, sure=sure)


@treadle.command()
@click.option("--all", "details", is_flag=True, help="With what each declares, and where it lies.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@with_traceback
def plugins(details: bool, as_json: bool) -> None:
    """List installed plugins, stacks and commands. Imports none of them."""
    from .inventory import print_inventory

    print_inventory(_screen({}, _form(as_json, False)), details=details)


@treadle.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--markdown", is_flag=True, help="Print a page for the documentation.")
@with_traceback
def hooks(name: str | None, as_json: bool, markdown: bool) -> None:
    """Print the reference of all hooks, or of NAME."""
    from .reference import print_reference

    print_reference(_screen({}, _form(as_json, False)), name, markdown=markdown)


@treadle.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A treadle.toml.")
@click.option("--stack", metavar="NAME", help="Look at this installed stack.")
@with_traceback
def doctor(as_json: bool, config: Path | None, stack: str | None) -> None:
    """Look for what is broken: imports, conflicts, hooks, settings. Each plugin is loaded in a process of its own."""
    from .doctor import examine

    code = examine(_screen({}, _form(as_json, False)), config=config, stack=stack)
    click.get_current_context().exit(code)
