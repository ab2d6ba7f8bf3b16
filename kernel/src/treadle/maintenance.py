"""Work between turns: what `driver.maintain` gives its function."""

from __future__ import annotations

from collections.abc import Sequence

from .agent import Agent
from .context import plugin_data
from .errors import UsageError
from .events import ContextEdit
from .messages import Json, Part, as_parts
from .session import Note, Session
from .view import View


class Maintenance:
    """What may be done between turns. Edits and notes become one append at the end."""

    def __init__(self, session: Session, agent: Agent, user: str | None) -> None:
        self._session = session
        self.agent, self.user = agent, user
        self.session = session.state.session
        self.queued: list[Note] = []

    @property
    def view(self) -> View:
        """The conversation as of now."""
        return self._session.state.view

    def note(self, plugin: str, name: str, data: Json = None) -> None:
        """Queue an event `<plugin>/<name>`."""
        self.queued.append(Note(plugin_data(plugin, name, data), plugin))

    def edit(
        self, first: int, last: int, put: str | Part | Sequence[Part] | None = None, *, plugin: str = "app"
    ) -> None:
        """Queue a `context/edit`. Raises `UsageError` where the grammar does not allow it."""
        edit = ContextEdit(first=first, last=last, put=None if put is None else as_parts(put), plugin=plugin)
        if not any(isinstance(note.data, ContextEdit) for note in self.queued) and (
            reason := self._session.state.check_edit(edit)
        ):
            raise UsageError(f"context.edit({first}, {last}): {reason}.")
        self.queued.append(Note(edit, plugin))
