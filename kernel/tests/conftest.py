"""Every kernel test runs on asyncio and trio, and every log it makes is checked as a whole and in all its prefixes."""

from collections.abc import Iterator, Sequence

import pytest

from treadle.events import Event
from treadle.grammar import State, fold
from treadle.session import Session
from treadle.testing import faults_of, prefix_faults, summary


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def checked_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the live driver had at each append is kept, and compared with the fold of that prefix afterwards."""
    kept: dict[int, tuple[Session, list[Event], list[dict]]] = {}
    write, started = Session._write, Session.__init__

    def begin(self: Session, log, state: State, **given) -> None:
        started(self, log, state, **given)
        kept[id(self)] = (self, [], [])

    async def recorded(self: Session, build, loop) -> Sequence[Event]:
        events = await write(self, build, loop)
        if events:
            kept[id(self)][2].append(summary(self.state))
        return events

    monkeypatch.setattr(Session, "__init__", begin)
    monkeypatch.setattr(Session, "_write", recorded)
    yield
    for session, _, live in kept.values():
        events = stored(session)
        if session.fault is None:
            assert faults_of(events) == []
        assert prefix_faults(events) == []
        for had in live:
            if had["seq"] <= len(events):
                assert summary(fold(events[: had["seq"]])) == had


def stored(session: Session) -> list[Event]:
    """The events of a session in memory, read without awaiting."""
    reading = session.log.read()
    try:
        reading.send(None)
    except StopIteration as done:
        return list(done.value)
    raise AssertionError("a log in memory never suspends")
