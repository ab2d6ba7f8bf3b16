"""Writers, rivals and posters are real processes, stopped and killed at random; nothing that was promised is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from stores.worker import LEASE_SECONDS, store_of

from treadle.errors import NoSuchSession
from treadle_postgres.testing import installed, running

SECONDS = 20
ALONE = [f"s{number}" for number in range(8)]
SHARED = "shared"
JOBS = [("write", name) for name in ALONE] + [("write", SHARED)] * 4 + [("post", SHARED, *ALONE)] * 2


class Crew:
    """The processes, and the files in which they say what was promised to them."""

    def __init__(self, ref, folder, luck):
        self.ref, self.folder, self.luck = ref, folder, luck
        self.living = {}  # job number: process
        self.said = {}  # job number: file of its process
        self.files = []
        self.kills = self.stops = 0

    def start(self, job):
        said = self.folder / f"said-{len(self.files)}"
        self.files.append(said)
        self.said[job] = said
        backend = self.luck.choice(["asyncio", "trio"])
        worker = Path(__file__).with_name("worker.py")
        command = [sys.executable, "-B", "-W", "error", worker, backend, self.ref, *JOBS[job]]
        with said.open("wb") as out, (self.folder / "errors").open("ab") as err:
            env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            self.living[job] = subprocess.Popen(command, stdout=out, stderr=err, env=env)

    def has_spoken(self, job):
        return self.said[job].stat().st_size > 0

    def has_refused(self):
        return self.ref.startswith("jsonl") or any(line[0] == "refused" for line in self.lines())

    def kill(self, job):
        process = self.living.pop(job)
        process.kill()
        process.wait()
        self.kills += 1

    def stop_one_rival(self):
        """Stop a process that fights for the shared session for longer than its lease, and let it go on."""
        rivals = [number for number, each in enumerate(JOBS) if each[:2] == ("write", SHARED)]
        holder = self.living[max(rivals, key=lambda job: self.said[job].stat().st_mtime_ns)]  # spoke last
        holder.send_signal(signal.SIGSTOP)
        time.sleep(2 * LEASE_SECONDS)
        holder.send_signal(signal.SIGCONT)
        self.stops += 1

    def end(self):
        for job in list(self.living):
            self.kill(job)

    def lines(self):
        # A line is one write; what a kill cut off before its newline was never said.
        for file in self.files:
            yield from (line.split(" ", 3) for line in file.read_text().split("\n")[:-1])


@pytest.fixture(params=["sqlite", "jsonl", *(f"postgres {version}" for version in installed() or ["none"])])
def ref(request, tmp_path):
    kind, _, version = request.param.partition(" ")
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/kill.db"
    elif kind == "jsonl":
        yield f"jsonl:{tmp_path}/kill"
    elif version == "none":
        pytest.skip("There is no PostgreSQL on this machine. Install one: apt-get install postgresql")
    else:
        with running(installed()[version]) as uri:
            yield uri


def drive(crew):
    """Kill and stop at random until the time is up."""
    for job in range(len(JOBS)):
        crew.start(job)
    until = time.monotonic() + SECONDS
    # Whether a stopped process was in the middle of its work is luck: go on until one was.
    while (now := time.monotonic()) < until or (now < until + SECONDS and not crew.has_refused()):
        time.sleep(crew.luck.uniform(0.1, 0.4))
        for process in crew.living.values():
            assert process.poll() is None, "\n".join(" ".join(line) for line in crew.lines() if line[0] == "error")
        if crew.luck.random() < 0.25:
            crew.stop_one_rival()
        else:
            # One that was promised something: killing what only just begins would test the interpreter's start.
            job = crew.luck.choice([each for each in range(len(JOBS)) if crew.has_spoken(each)] or [0])
            crew.kill(job)
            crew.start(job)


async def contents(ref):
    """What each session holds at the end, and the posts that still wait."""
    store = store_of(ref)
    found, waiting = {}, {}
    for name in (SHARED, *ALONE):
        with anyio.fail_after(10 * LEASE_SECONDS + 5):
            log = await opened(store, name)
        found[name] = [(event.seq, event.data.value) for event in await log.read()]
        waiting[name] = []
        posts = log.posted()
        with anyio.move_on_after(0.5):
            async for post in posts:
                waiting[name].append(post.id)
        await posts.aclose()
        await log.close()
    await store.close()
    return found, waiting


async def opened(store, name):
    from treadle.errors import SessionBusy

    while True:
        try:
            return await store.open(name, write=True)
        except (SessionBusy, NoSuchSession):  # a lease of the killed still runs
            await anyio.sleep(0.05)


@pytest.mark.slow
def test_of_what_killed_processes_were_promised_nothing_is_lost_doubled_or_mixed(ref, tmp_path, capsys):
    seed = int(os.environ.get("TREADLE_SEED") or random.randrange(10**6))
    with ExitStack() as exits:
        crew = Crew(ref, tmp_path, random.Random(seed))
        exits.callback(crew.end)
        drive(crew)
    found, waiting = anyio.run(contents, ref)
    said = list(crew.lines())
    counts = Counter(line[0] for line in said)
    with capsys.disabled():
        kind = ref.partition(":")[0]
        events = sum(map(len, found.values()))
        print(f"\n{kind}, seed {seed}: {crew.kills} kills, {crew.stops} stops, {events} events, {dict(counts)}")
    assert (tmp_path / "errors").read_text() == ""
    assert counts["error"] == 0
    for name, events in found.items():
        assert [seq for seq, _ in events] == list(range(1, len(events) + 1)), f"{name}: a gap"
        assert len({value for _, value in events}) == len(events), f"{name}: a double"
    for word, name, *rest in said:
        if word == "synced":
            seq, value = int(rest[0]), rest[1]
            assert found[name][seq - 1] == (seq, value), f"{name}: event {seq} was synced and is not there"
    for word, name, *rest in said:
        if word == "posted":
            arrived = sum(value == rest[0] for _, value in found[name])
            assert arrived == 1 or (arrived == 0 and rest[0] in waiting[name]), f"{name}: a post was lost"
    assert counts["synced"] > 100 and counts["posted"] > 20
    if not ref.startswith("jsonl"):  # a stopped process keeps its lock there
        assert counts["refused"] >= 1
