"""`treadle run`: one prompt, one turn, an exit code."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import attrs

from treadle import Agent, Driver, Receipt, Result
from treadle.plugin import Call, Dropped, Json, Parked

from .approvals import by_asking, by_options, check_names
from .composition import Acting, Composed, find_session, make_agent, make_folder
from .exits import BUDGET, FAILED, OK, WAITING
from .interrupts import Interrupts, listening
from .lines import read_lines
from .screen import Screen
from .showing import Show, showing


@attrs.frozen(kw_only=True)
class Asked:
    """What one `treadle run` was asked. `prompt` of None goes on with decisions about calls that wait.

    `output` is the type of the structured answer that is wanted; None is words.
    """

    prompt: str | None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    may_ask: bool = False
    output: object = None


def exit_code(result: Result) -> int:
    """The exit code that says how a turn ended. Without the structured answer that was asked for it failed."""
    if result.output_error:
        return FAILED
    return {"completed": OK, "waiting": WAITING, "limit": BUDGET}.get(result.reason, FAILED)


@asynccontextmanager
async def opened(
    agent: Agent,
    acting: Acting,
    composed: Composed,
    screen: Screen,
    interrupts: Interrupts,
    output: object = None,
) -> AsyncIterator[tuple[Driver, Show, str | None]]:
    """A driver of the session that the options name, shown on the screen; and the session's reference."""
    async with AsyncExitStack() as exits:
        await exits.enter_async_context(composed.stack)
        reference = await find_session(acting, composed)
        make_folder(composed)
        driver = await exits.enter_async_context(composed.stack.open(agent, reference, user=acting.user, output=output))
        interrupts.closed = lambda: driver.status == "closed"
        yield driver, await exits.enter_async_context(showing(screen, driver)), reference


async def run_once(asked: Asked, acting: Acting, composed: Composed, screen: Screen) -> int:
    """Run one turn, and those that decisions open; say how it went; return the exit code.

    Ctrl-C cancels the turn. What closes the log is written whatever comes after it.
    """
    agent = make_agent(acting, composed)
    code = OK
    async with (
        listening() as interrupts,
        opened(agent, acting, composed, screen, interrupts, asked.output) as (driver, show, reference),
    ):
        interrupts.asked = partial(cancel, driver, interrupts, screen)
        result = await converse(asked, driver, show)
        code = FAILED if show.broken else finish(result, driver, reference, composed, screen)
    return interrupts.code or code


def cancel(driver: Driver, interrupts: Interrupts, screen: Screen) -> None:
    """What Ctrl-C asks for: the end of the turn, or of an idle session. Later ones only hear that it is under way."""
    if interrupts.times > 1:
        screen.tell(screen.ink.dim("Closing the log; one moment."))
    elif driver.cancel("all", cause="Ctrl-C"):
        screen.say_cancelling()
    else:
        interrupts.scope.cancel()


async def converse(asked: Asked, driver: Driver, show: Show) -> Result | None:
    """The last turn's result; None if the prompt was taken back before it entered one."""
    if asked.prompt is None:
        check_names(driver.waiting, [*asked.allow, *asked.deny], driver.session_id)
        result = await decided(asked, driver, show)
    else:
        result = await awaited(await driver.follow_up(asked.prompt), show)
    while result is not None and result.reason == "waiting":
        after = await decided(asked, driver, show)
        if after is None:
            return result
        result = after
    return result


async def decided(asked: Asked, driver: Driver, show: Show) -> Result | None:
    """Decide about calls that wait, and the result of the turn in which they resume. None if nobody decided."""
    decisions = by_options(driver.waiting, asked.allow, asked.deny)
    left = [call for call in driver.waiting if call.id not in decisions]
    if left and asked.may_ask:
        async with read_lines(sys.stdin) as lines:
            decisions |= await by_asking(left, lines, show.screen)
    return await awaited(await driver.decide(decisions), show) if decisions else None


async def awaited(receipt: Receipt, show: Show) -> Result | None:
    """The result of the turn that a message entered, when all of it was shown; None if it entered none."""
    try:
        return await receipt.result()
    except (Dropped, Parked) as error:
        show.screen.tell(f"{error}")
        return None
    finally:
        await show.caught_up()


def finish(result: Result | None, driver: Driver, reference: str | None, composed: Composed, screen: Screen) -> int:
    """Write what comes after a turn: the document, what waits, the session's name."""
    if result is not None and screen.form == "answer":
        give_answer(result, screen)
    elif result is not None and screen.form != "text":
        made = document(result, reference)
        screen.document(made) if screen.form == "json" else screen.line({"type": "result", **made})
    if driver.waiting and result is not None and result.reason == "waiting":
        tell_waiting(driver.waiting, composed, reference, screen)
    if reference is not None:
        tell_session(composed, reference, screen)
    return FAILED if result is None else exit_code(result)


def tell_waiting(waiting: Sequence[Call], composed: Composed, reference: str | None, screen: Screen) -> None:
    """Say which calls wait, and how to decide about them."""
    for call in waiting:
        screen.tell(f"  {call.name} waits as {call.id}")
    if reference is not None:
        where = session_option(composed, reference)
        screen.tell(screen.ink.dim(f"Decide with: treadle run {where} --approve NAME (or --deny NAME)"))


def give_answer(result: Result, screen: Screen) -> None:
    """Write the structured answer to stdout; if there is none, what the model said instead to stderr."""
    if result.output_error:
        said = f" It said: {result.text}" if result.text else ""
        screen.tell(screen.ink.bad(f"The model gave no answer of that form: {result.output_error}{said}"))
    elif result.reason == "completed":
        screen.document(plain_output(result))


def plain_output(result: Result) -> Json:
    """The structured answer as plain data."""
    import json

    from treadle.context import to_json

    return json.loads(to_json(result.output))


def tell_session(composed: Composed, reference: str, screen: Screen) -> None:
    """Say what the session is called."""
    screen.progress(screen.ink.dim(f"session {name_of(composed, reference)}"))


def name_of(composed: Composed, reference: str) -> str:
    """How the person names this session: bare in the default store, else with its store."""
    from urllib.parse import unquote

    store, _, name = reference.rpartition("#")
    return unquote(name) if store == composed.store and not composed.named else reference


def session_option(composed: Composed, reference: str) -> str:
    """The option that names this session, as a shell reads it."""
    import shlex

    return f"--session {shlex.quote(name_of(composed, reference))}"


def document(result: Result, reference: str | None) -> dict[str, Json]:
    """A result as plain data: what `--json` prints."""
    from treadle.codec import converter

    plain = converter().unstructure
    return {
        "text": result.text,
        "output": plain_output(result),
        "reason": result.reason,
        "detail": result.detail,
        "finish": result.finish,
        "session": reference,
        "turn": result.turn,
        "steps": result.steps,
        "usage": {**attrs.asdict(result.usage), "tokens": result.usage.tokens},
        "waiting": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in result.waiting],
        "messages": [plain(message) for message in result.messages],
    }
