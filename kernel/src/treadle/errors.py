"""What went wrong, and whose fault it was.

Every error of treadle is a `TreadleError`. Each keeps its facts as attributes and makes its text from
them: what happened, where, what to do. This module knows no other module but `messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .messages import Part, Usage

ProviderFault = Literal[
    "auth",
    "not_found",
    "context_overflow",
    "bad_request",
    "rate_limit",
    "quota",
    "overloaded",
    "server",
    "tool_use_failed",
    "interrupted",
    "timeout",
    "cancelled",
]
"""Why a model call failed. `timeout` and `cancelled` are the loop's own; the rest a provider may report."""


class TreadleError(Exception):
    """The one root of all errors that treadle raises on purpose."""


# --- the caller's fault ------------------------------------------------------------------------------------


class UsageError(TreadleError):
    """A call that cannot be answered as it stands; the text says what to change."""


class CompositionError(TreadleError):
    """A stack could not be composed. `faults` holds every reason, found in one pass."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        if len(self.faults) == 1:
            return f"The stack was not composed: {self.faults[0]}"
        lines = "".join(f"\n  - {fault}" for fault in self.faults)
        return f"The stack was not composed, for {len(self.faults)} reasons:{lines}"


class SettingsError(TreadleError):
    """A setting is unknown, missing or of the wrong kind."""

    def __init__(self, plugin: str, field: str, reason: str, source: str = "code") -> None:
        self.plugin, self.field, self.reason, self.source = plugin, field, reason, source
        super().__init__(plugin, field, reason, source)

    def __str__(self) -> str:
        return f'Setting "{self.field}" of plugin "{self.plugin}" ({self.source}): {self.reason}'


class UnknownReference(TreadleError):
    """No plugin of the stack, or more than one, opens a reference such as `openai:gpt-5`."""

    def __init__(
        self, what: str, ref: str, plugins: Sequence[str], claimants: Sequence[str] = (), hint: str = ""
    ) -> None:
        self.what, self.ref, self.hint = what, ref, hint
        self.plugins, self.claimants = tuple(plugins), tuple(claimants)
        super().__init__(what, ref, self.plugins, self.claimants, hint)

    def __str__(self) -> str:
        if self.claimants:
            named = ", ".join(self.claimants)
            return (
                f'Several plugins open the {self.what} "{self.ref}": {named}. '
                f"Leave out all but one, or order them with tryfirst."
            )
        installed = ", ".join(self.plugins) or "none"
        hint = self.hint or "Add a plugin that opens it to the stack."
        return f'No plugin opens the {self.what} "{self.ref}". In this stack: {installed}. {hint}'


class MissingExtra(TreadleError):
    """A function needs an optional part of treadle that is not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        self.extra, self.purpose = extra, purpose
        super().__init__(extra, purpose)

    def __str__(self) -> str:
        return f"{self.purpose} needs treadle[{self.extra}]. Install it: pip install 'treadle[{self.extra}]'"


class Reentrant(TreadleError):
    """A hook or tool awaited its own session, which would wait for itself."""

    def __init__(self, session: str, method: str) -> None:
        self.session, self.method = session, method
        super().__init__(session, method)

    def __str__(self) -> str:
        return (
            f'{self.method} of session "{self.session}" was awaited inside that session\'s own turn, which would '
            f"wait for itself. Use steer, follow_up or inject without awaiting the fate, or another session."
        )


class Closed(TreadleError):
    """The driver or stack is closed; `cause` says why if it was a fault."""

    def __init__(self, what: str, cause: BaseException | None = None) -> None:
        self.what, self.cause = what, cause
        super().__init__(what, cause)

    def __str__(self) -> str:
        why = f" after {type(self.cause).__name__}: {self.cause}" if self.cause else ""
        return f"{self.what} is closed{why}. Open it again to go on."


class Parked(TreadleError):
    """The message is kept, but the session stands still until it is woken."""

    def __init__(self, session: str, message_id: str, ending: str, detail: str = "") -> None:
        self.session, self.message_id, self.ending, self.detail = session, message_id, ending, detail
        super().__init__(session, message_id, ending, detail)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return (
            f'Message {self.message_id} of session "{self.session}" waits: the last turn ended {self.ending}{detail}. '
            f"nudge() or any new message goes on; withdraw() takes it back."
        )


class Dropped(TreadleError):
    """The message left the inbox without entering a turn; `why` is withdrawn, cancelled or rejected."""

    def __init__(self, message_id: str, why: str, detail: str = "") -> None:
        self.message_id, self.why, self.detail = message_id, why, detail
        super().__init__(message_id, why, detail)

    def __str__(self) -> str:
        return f"Message {self.message_id} was {self.why}" + (f": {self.detail}" if self.detail else ".")


class TurnNotCompleted(TreadleError):
    """`Result.check()` found a turn that ended otherwise than completed."""

    def __init__(self, session: str, reason: str, detail: str) -> None:
        self.session, self.reason, self.detail = session, reason, detail
        super().__init__(session, reason, detail)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f'The turn of session "{self.session}" ended {self.reason}{detail}.'


class BudgetExceeded(TurnNotCompleted):
    """The turn ended `limit`; `detail` names the limit."""


class InvalidArguments(TreadleError):
    """A call's arguments do not fit its tool. The text is written for the model."""


# --- a plugin's fault --------------------------------------------------------------------------------------


class PluginError(TreadleError):
    """A plugin's hook failed where its fault may not be contained."""

    def __init__(self, plugin: str, hook: str, cause: BaseException | str) -> None:
        self.plugin, self.hook, self.cause = plugin, hook, cause
        super().__init__(plugin, hook, cause)

    def __str__(self) -> str:
        cause = self.cause if isinstance(self.cause, str) else f"{type(self.cause).__name__}: {self.cause}"
        return f'Plugin "{self.plugin}" failed in {self.hook}: {cause}'


class ProviderError(TreadleError):
    """A model call failed.

    `status` is the HTTP status if there was one, `retry_after_seconds` the provider's own hint, `partial` the
    parts that had arrived, `usage` what the provider counted so far, `raw` the provider's body, unchanged.
    """

    def __init__(
        self,
        kind: ProviderFault,
        message: str,
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        partial: Sequence[Part] = (),
        usage: Usage | None = None,
        raw: str = "",
        hint: str = "",
    ) -> None:
        self.kind: ProviderFault = kind
        self.message, self.status, self.retry_after_seconds = message, status, retry_after_seconds
        self.partial, self.usage, self.raw, self.hint = tuple(partial), usage, raw, hint
        super().__init__(kind, message)

    def __str__(self) -> str:
        status = f", status {self.status}" if self.status is not None else ""
        return f"The model call failed ({self.kind}{status}): {self.message}" + (f" {self.hint}" if self.hint else "")


# --- the stored data's fault, and the store's --------------------------------------------------------------


class UnlawfulEvent(TreadleError):
    """An event does not fit the grammar at this point of the log."""

    def __init__(self, type: str, phase: str, reason: str, seq: int) -> None:
        self.type, self.phase, self.reason, self.seq = type, phase, reason, seq
        super().__init__(type, phase, reason, seq)

    def __str__(self) -> str:
        return f"Event {self.seq} ({self.type}) is not lawful in phase {self.phase}: {self.reason}"


class UnreadableLog(TreadleError):
    """A stored session cannot be read. `where` names file, table or seq, `remedy` what to do."""

    def __init__(self, where: str, reason: str, remedy: str) -> None:
        self.where, self.reason, self.remedy = where, reason, remedy
        super().__init__(where, reason, remedy)

    def __str__(self) -> str:
        return f"{self.where} cannot be read: {self.reason}. {self.remedy}"


class NoSuchSession(TreadleError):
    """A session that must exist does not."""

    def __init__(self, session: str, store: str) -> None:
        self.session, self.store = session, store
        super().__init__(session, store)

    def __str__(self) -> str:
        return f'There is no session "{self.session}" in {self.store}. List what is there: treadle sessions list'


class Conflict(TreadleError):
    """The log is not where its writer believed: another writer appended."""

    def __init__(self, session: str, expected_seq: int, found_seq: int) -> None:
        self.session, self.expected_seq, self.found_seq = session, expected_seq, found_seq
        super().__init__(session, expected_seq, found_seq)

    def __str__(self) -> str:
        return (
            f'Session "{self.session}" stands at seq {self.found_seq}, not {self.expected_seq}: '
            f"somebody else wrote to it. Open it again to go on from there."
        )


class SessionBusy(TreadleError):
    """Another writer holds the session's lease."""

    def __init__(self, session: str, holder: str) -> None:
        self.session, self.holder = session, holder
        super().__init__(session, holder)

    def __str__(self) -> str:
        return (
            f'Session "{self.session}" is open for writing in {self.holder}. Close it there, attach to that '
            f"driver, or post the message to it (store.post)."
        )


class LeaseLost(TreadleError):
    """The writer's lease was taken by another; nothing more may be written by this one."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(session)

    def __str__(self) -> str:
        return f'The lease of session "{self.session}" was lost to another writer. Open it again to go on.'


class StoreFault(TreadleError):
    """The store failed or fell silent; the driver has stopped and reopening repairs the session."""

    def __init__(self, session: str, cause: BaseException | str) -> None:
        self.session, self.cause = session, cause
        super().__init__(session, cause)

    def __str__(self) -> str:
        cause = self.cause if isinstance(self.cause, str) else f"{type(self.cause).__name__}: {self.cause}"
        return f'The store of session "{self.session}" failed: {cause}. Open the session again; it repairs itself.'


class Unsupported(TreadleError):
    """A store or plugin does not offer what was asked of it, and says so instead of pretending."""

    def __init__(self, what: str, feature: str) -> None:
        self.what, self.feature = what, feature
        super().__init__(what, feature)

    def __str__(self) -> str:
        return f"{self.what} does not offer {self.feature}. Its capabilities say what it does."
