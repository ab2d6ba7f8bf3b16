"""Print what a step costs, beside a loop written by hand, measured in the same run.

    python tests/benchmarks/run.py                    everything, some minutes
    python tests/benchmarks/run.py --tasks C,F        only these tasks
    python tests/benchmarks/run.py --quick            smaller and once: to see that it works

Each measurement is a process of its own; floor and treadle take turns, and the table shows medians over the rounds.
Where the processor is the limit, its time is shown: on a shared machine that is far steadier than the clock. Nothing
here fails for being slow. A worker fails if the model was not asked exactly as often as the script says, or if a
character did not arrive, so that stopping early never looks fast.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FLOOR, TREADLE, TRIO = "floor", "treadle", "treadle, trio"
Numbers = dict[str, Any]


# --- in a worker: one task, once -------------------------------------------------------------------------------


def worker(side: str, task: str, params: Mapping[str, Any]) -> Numbers:
    """Measure one task of one side in this fresh process."""
    module = importlib.import_module("floor" if side == FLOOR else "subject")
    work = TASKS[task]
    if side == FLOOR:
        return asyncio.run(work(module, **params))
    import anyio

    async def main() -> Numbers:
        return await work(module, **params)

    return anyio.run(main, backend="trio" if side == TRIO else "asyncio")


async def timed(run: Callable[[], Awaitable[object]], repeats: int) -> Numbers:
    clock, cpu = [], []
    for _ in range(repeats):
        gc.collect()
        clock_before, cpu_before = time.perf_counter(), time.process_time()
        await run()
        clock.append(time.perf_counter() - clock_before)
        cpu.append(time.process_time() - cpu_before)
    return {"clock": statistics.median(clock), "cpu": statistics.median(cpu)}


def must(seen: int, wanted: int, what: str) -> None:
    if seen != wanted:
        raise RuntimeError(f"{seen} {what}, not {wanted}: the work was not done as written")


async def one_turn(
    module: Any, steps: int, repeats: int, calls: int = 1, tool: str = "add", plugins: int = 0
) -> Numbers:
    warm, _ = module.turns(3, calls, tool, plugins)
    await warm()
    run, asked = module.turns(steps, calls, tool, plugins)
    numbers = await timed(run, repeats)
    must(asked(), steps * repeats, "questions to the model")
    return numbers


async def streaming(module: Any, deltas: int, repeats: int) -> Numbers:
    await module.deltas(10)()
    run, seen = module.deltas(deltas), 0

    async def whole() -> None:
        nonlocal seen
        seen += await run()

    numbers = await timed(whole, repeats)
    must(seen, 4 * deltas * repeats, "characters")
    return numbers


async def many_turns(module: Any, turns: int) -> Numbers:
    must(await module.many(1), 2, "questions to the model")
    before, asked = memory("VmRSS"), 0

    async def at_once() -> None:
        nonlocal asked
        asked = await module.many(turns)

    numbers = await timed(at_once, 1)
    must(asked, 2 * turns, "questions to the model")
    return numbers | {"peak": memory("VmHWM") - before}


async def on_disk(module: Any, path: str, turns: int) -> Numbers:
    clock, began = [], time.process_time()
    at = time.perf_counter()
    async for _ in module.session(path, turns):
        clock.append(time.perf_counter() - at)
        at = time.perf_counter()
    few = max(1, turns // 10)
    size = sum(each.stat().st_size for each in Path(path).parent.iterdir())
    return {
        "clock": sum(clock),
        "cpu": time.process_time() - began,
        "first": statistics.mean(clock[1 : few + 1]),
        "last": statistics.mean(clock[-few:]),
        "bytes": size,
    }


async def resumed(module: Any, path: str, messages: int) -> Numbers:
    at = time.perf_counter()
    must(await module.resume(path), messages, "messages")
    return {"resume": time.perf_counter() - at}


TASKS: Mapping[str, Callable[..., Coroutine[Any, Any, Numbers]]] = {
    "turn": one_turn,
    "stream": streaming,
    "many": many_turns,
    "disk": on_disk,
    "resume": resumed,
}


def memory(field: str) -> float:
    """MB of this process: `VmRSS` now or `VmHWM` at its highest; elsewhere than on Linux always the highest."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


# --- in the parent: rounds -------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """A worker's: compiled modules are kept, as they are on anybody's machine."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def started(*arguments: str) -> Numbers:
    """What a fresh interpreter prints as its last line, as JSON. A failed one ends the benchmark with its words."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=HERE, env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"A worker failed: {' '.join(arguments)}\n{done.stderr}")
    numbers: Numbers = json.loads(done.stdout.strip().splitlines()[-1])
    return numbers


def measured(side: str, task: str, **params: Any) -> Numbers:
    return started(str(HERE / "run.py"), "--worker", side, task, json.dumps(params))


def medians(samples: Sequence[Numbers]) -> Numbers:
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


class Bench:
    """The sides, how often they take turns, and the size of the work."""

    def __init__(self, sides: Sequence[str], rounds: int, quick: bool) -> None:
        self.sides, self.rounds, self.quick = sides, rounds, quick

    def interleaved(self, measure: Callable[[str], Numbers]) -> dict[str, Numbers]:
        """Medians by side; each round measures every side once."""
        samples: dict[str, list[Numbers]] = {side: [] for side in self.sides}
        for _ in range(self.rounds):
            for side in self.sides:
                samples[side].append(measure(side))
        return {side: medians(taken) for side, taken in samples.items()}

    def turn(self, **params: Any) -> dict[str, Numbers]:
        return self.interleaved(lambda side: measured(side, "turn", **params))


# --- the tasks, each giving its lines of the table -------------------------------------------------------------


Row = tuple[str, str, dict[str, float]]
"""What was measured, its unit, and the number of each side."""


def scaled(found: Mapping[str, Numbers], name: str, factor: float) -> dict[str, float]:
    return {side: numbers[name] * factor for side, numbers in found.items()}


IMPORTS = {FLOOR: "import floor", TREADLE: "import treadle", TRIO: "import treadle, trio"}
COUNTED = """
import sys, time
before, cpu = len(sys.modules), time.process_time()
{}
cpu, modules = time.process_time() - cpu, len(sys.modules) - before
import resource
try:
    memory = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) / 1024
except OSError:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)
print('{{"cpu": %f, "modules": %d, "memory": %f}}' % (cpu, modules, memory))
"""


def task_a(bench: Bench) -> Iterator[Row]:
    def probe(side: str) -> Numbers:
        return started("-c", COUNTED.format(IMPORTS[side]))

    for side in bench.sides:
        probe(side)  # the first one writes the compiled modules
    found = bench.interleaved(probe)
    yield "A  cold import", "ms", scaled(found, "cpu", 1e3)
    yield "A  modules it loads", "", scaled(found, "modules", 1)
    yield "A  memory with it", "MB", scaled(found, "memory", 1)


def task_c(bench: Bench) -> Iterator[Row]:
    sizes = {10: 20, 100: 5, 1_000: 1} if bench.quick else {10: 30, 100: 9, 1_000: 3, 10_000: 1}
    costs = {}
    for steps, repeats in sizes.items():
        costs[steps] = scaled(bench.turn(steps=steps, repeats=repeats), "cpu", 1e6 / steps)
        yield f"C  a turn of {steps:,} steps, a call each", "us/step", costs[steps]
    most = max(sizes)
    growth = {side: costs[most][side] / costs[100][side] for side in bench.sides}
    yield f"C  a step of {most:,} against one of 100", "x", growth


def task_d(bench: Bench) -> Iterator[Row]:
    found = bench.turn(steps=2, repeats=5, calls=100, tool="nap")
    yield "D  100 calls of 10 ms at once", "ms", scaled(found, "clock", 1e3)
    yield "D  processor time of it", "us/call", scaled(found, "cpu", 1e4)


def task_e(bench: Bench) -> Iterator[Row]:
    deltas = 2_000 if bench.quick else 10_000
    found = bench.interleaved(lambda side: measured(side, "stream", deltas=deltas, repeats=3))
    yield f"E  {deltas:,} deltas to the caller", "us/delta", scaled(found, "cpu", 1e6 / deltas)


def task_f(bench: Bench) -> Iterator[Row]:
    turns = 200 if bench.quick else 1_000
    found = bench.interleaved(lambda side: measured(side, "many", turns=turns))
    yield f"F  {turns:,} turns of 2 steps at once", "us/turn", scaled(found, "cpu", 1e6 / turns)
    yield "F  memory they need", "MB", scaled(found, "peak", 1)


def task_g(bench: Bench) -> Iterator[Row]:
    if find_spec("treadle_sqlite") is None:
        print("G  not measured: treadle-sqlite is not installed")
        return
    turns = 40 if bench.quick else 200

    def measure(side: str) -> Numbers:
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DISK")) as folder:
            path = f"{folder}/bench.db"
            written = measured(side, "disk", path=path, turns=turns)
            return written | measured(side, "resume", path=path, messages=4 * turns)

    found = bench.interleaved(measure)
    yield f"G  {turns:,} turns of 2 steps on disk", "ms/turn", scaled(found, "clock", 1e3 / turns)
    yield "G  processor time of it", "ms/turn", scaled(found, "cpu", 1e3 / turns)
    last = {side: numbers["last"] / numbers["first"] for side, numbers in found.items()}
    yield "G  the last tenth against the first", "x", last
    yield "G  size on disk", "bytes/turn", scaled(found, "bytes", 1 / turns)
    yield f"G  open again with {4 * turns:,} messages", "ms", scaled(found, "resume", 1e3)


HOOKS = 4  # of each plugin


def task_h(bench: Bench) -> Iterator[Row]:
    steps, levels = 300, (0, 1, 10)
    samples: dict[str, list[Numbers]] = {side: [] for side in bench.sides}
    for _ in range(bench.rounds):
        for side in bench.sides:  # the levels back to back, so that their difference is steady
            taken = {level: measured(side, "turn", steps=steps, repeats=3, plugins=level) for level in levels}
            samples[side].append({str(level): taken[level]["cpu"] * 1e6 / steps for level in levels})
    found = {side: medians(taken) for side, taken in samples.items()}
    for level in levels:
        yield f"H  {level} plugins of {HOOKS} async hooks", "us/step", scaled(found, str(level), 1)
    each = {side: (numbers["10"] - numbers["0"]) / (10 * HOOKS) for side, numbers in found.items()}
    yield "H  a hook in a step, of ten plugins", "us", each
    yield "H  ten plugins against none", "x", {side: numbers["10"] / numbers["0"] for side, numbers in found.items()}


ALL: Mapping[str, Callable[[Bench], Iterator[Row]]] = {
    "A": task_a,
    "C": task_c,
    "D": task_d,
    "E": task_e,
    "F": task_f,
    "G": task_g,
    "H": task_h,
}


# --- the table -------------------------------------------------------------------------------------------------


def line(cells: Sequence[str]) -> str:
    first, unit, *rest = cells
    return f"{first:42}{unit:>11}" + "".join(f"{cell:>16}" for cell in rest)


def header(sides: Sequence[str]) -> str:
    ratios = [name for side in sides[1:] for name in (side, "x floor")]
    return line(["", "", FLOOR, *ratios])


def shown(row: Row, sides: Sequence[str]) -> str:
    label, unit, numbers = row
    floor = numbers[FLOOR]
    cells = [number(floor)]
    for side in sides[1:]:
        ratio = "" if unit == "x" or floor <= 0 else f"{numbers[side] / floor:.2f}"
        cells += [number(numbers[side]), ratio]
    return line([label, unit, *cells])


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def about() -> str:
    """What was measured, on what: the versions, and which floor."""
    named = ["treadle", "pluggy", "attrs", "anyio", "treadle-sqlite"]
    versions = ", ".join(f"{name} {installed(name)}" for name in named)
    sha = hashlib.sha256((HERE / "floor.py").read_bytes()).hexdigest()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python} on {platform.system()} {platform.machine()}, {os.cpu_count()} processors; {versions}\nfloor {sha}"


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(a work tree)" if find_spec(name.replace("-", "_")) else "(absent)"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for and print the table, line by line as it comes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", default=",".join(ALL), help="letters with commas between; all if not given")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, one round")
    parser.add_argument("--rounds", type=int, help="how often floor and treadle take turns; 3, or 1 with --quick")
    parser.add_argument("--trio", action="store_true", help="a column for treadle on trio, too")
    parser.add_argument("--worker", nargs=3, metavar=("SIDE", "TASK", "PARAMS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.worker:
        side, task, params = chosen.worker
        print(json.dumps(worker(side, task, json.loads(params))))
        return
    wanted = chosen.tasks.split(",")
    if odd := [task for task in wanted if task not in ALL]:
        parser.error(f"there is no task {odd[0]}; tasks: {', '.join(ALL)}")
    sides = [FLOOR, TREADLE, TRIO] if chosen.trio else [FLOOR, TREADLE]
    bench = Bench(sides, chosen.rounds or (1 if chosen.quick else 3), chosen.quick)
    print(about())
    print(header(sides))
    for task in wanted:
        for row in ALL[task](bench):
            print(shown(row, sides), flush=True)


if __name__ == "__main__":
    main()
