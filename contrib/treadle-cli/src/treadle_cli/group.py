"""The group of commands: which ones there are, the default one, and how errors become a message and an exit code.

It knows nothing of what a command does. Commands of other distributions are imported only when they are called, so
that a broken one breaks nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import click

from .exits import FAILED, USAGE

GROUP = "treadle.commands"
DEFAULT = "run"

F = TypeVar("F", bound=Callable[..., Any])


def with_traceback(function: F) -> F:
    """Give a command the option `--traceback`."""

    def keep(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            context.find_root().meta["treadle.traceback"] = True

    return click.option(
        "--traceback", is_flag=True, expose_value=False, callback=keep, help="Show where an error came from."
    )(function)


class Failure(click.ClickException):
    """One clear message on stderr, and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click declares it for the class and reads it of the instance

    def show(self, file: Any = None) -> None:
        click.echo(f"Error: {self.format_message()}", err=True, file=file)


class Commands(click.Group):
    """Our own commands, those of installed distributions, and `run` for whatever is none of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not sys.stdin.isatty():
            args = [DEFAULT]
        elif args and args[0] not in ("--help", "--version") and args[0] not in self.list_commands(ctx):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *(point.name for point in _points() if point.name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = self.commands.get(cmd_name)
        if own is not None:
            return own
        found = [point for point in _points() if point.name == cmd_name]
        if not found:
            return None
        if len(found) > 1:
            pair = " and ".join(sorted(_origin(point) for point in found))
            raise Failure(f'Two distributions declare the command "{cmd_name}": {pair}. Uninstall one.')
        return _loaded(found[0])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List our own with their help; of the others only the names, which needs no import."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(60)) for name, command in self.commands.items()])
        others = [(point.name, f"from {_origin(point)}") for point in _points() if point.name not in self.commands]
        if others:
            with formatter.section("Commands of installed packages"):
                formatter.write_dl(others)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except (Exception, BaseExceptionGroup) as error:
            raise _said(ctx, error) from None


def _points() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: point.name))


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def _loaded(point: EntryPoint) -> click.Command:
    try:
        command = point.load()
    except Exception as error:
        raise Failure(
            f'The command "{point.name}" of {_origin(point)} cannot be loaded: {type(error).__name__}: {error}. '
            f"Repair or uninstall that package; all other commands work."
        ) from error
    if not isinstance(command, click.Command):
        raise Failure(f'The command "{point.name}" of {_origin(point)} is no click command but {command!r}.')
    return command


def _said(ctx: click.Context, error: BaseException) -> BaseException:
    """The error as click shows it, or as it is if it is a bug and not ours to soften."""
    from treadle import plugin as kernel  # not above, so that help and completion load no kernel

    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, kernel.TreadleError):
        return error
    if ctx.find_root().meta.get("treadle.traceback"):
        import traceback

        traceback.print_exception(error)
    callers = (
        kernel.UsageError,
        kernel.SettingsError,
        kernel.CompositionError,
        kernel.UnknownReference,
        kernel.NoSuchSession,
        kernel.MissingExtra,
    )
    return Failure(f"{error}", USAGE if isinstance(error, callers) else FAILED)
