"""The least cost of a command, beside the commands of dlq.

    python -m benchmarks.commands.floors [--count N] [--rounds N] [--json]

A static C program that does nothing is the floor of every program. One that speaks to the least
helper (`floor_helper.py`) is the floor of a front with a helper. That helper makes no call, or one
call to an empty gRPC server. A call of dlq does all of that, and decides something. They take
turns, each in a loop of the shell. CPU is that of the calls, their helpers and their servers.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.commands.sbatch_loop import used_s
from benchmarks.live.grpc_floor import floor_server
from benchmarks.race.dlq_side import DlqSide
from benchmarks.race.lines.calls import loop_ms, warm
from benchmarks.support.living import cpu_s
from benchmarks.support.report import Report
from dlq_client.jobs import Jobs
from dlq_client.line.identity import save_identity

SOURCE = Path(__file__).with_name("floor_call.c")
WAITING = 20
SUBMIT = ("dlq", "submit", "-J", "race", "--", "true")
PATIENCE_S = 30.0


class Call(NamedTuple):
    """One line of the table, and where its CPU time goes beside the calls themselves."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    beside_s: Callable[[], float]


class Cost(NamedTuple):
    """Of one call, in milliseconds."""

    wall: float
    cpu: float


def main() -> None:
    """Measure all in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=100, help="calls of a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    report = Report.begin("commands.floors", parser)
    root = Path(tempfile.mkdtemp(prefix="dlqb", dir="/tmp"))  # a socket's address is short
    try:
        with ExitStack() as opened:
            calls = [*_floors(root, opened), *_commands(root / "d", opened)]
            took: dict[str, list[Cost]] = {call.name: [] for call in calls}
            for _ in range(report.options.rounds):
                for call in calls:
                    took[call.name].append(_cost(call, report.options.count))
            report.disk(root)
    finally:
        shutil.rmtree(root)
    for name, costs in took.items():
        wall_ms, cpu_ms = (median(each) for each in zip(*costs, strict=True))
        report.figure(f"{name}, wall", wall_ms, "ms")
        report.figure(f"{name}, CPU", cpu_ms, "ms")
    report.end()


def _cost(call: Call, count: int) -> Cost:
    before_s, used = call.beside_s(), resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_ms = loop_ms(call.words, call.environment, count)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return Cost(wall_ms, 1e3 * (own_s + call.beside_s() - before_s) / count)


def _floors(root: Path, opened: ExitStack) -> Iterator[Call]:
    program = root / "call"
    compiler = shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-O2", "-static", "-o", str(program), str(SOURCE)], check=True)
    here = dict(os.environ)
    yield Call("a C program that does nothing", (str(program),), here, lambda: 0.0)
    server, identity = opened.enter_context(floor_server(root))
    save_identity(root / "home", identity)
    for name, words in (
        ("C and a helper in Python", ()),
        ("the same with a call of grpc", (str(root / "home"), "sync")),
        ("the same with a call of grpc.aio", (str(root / "home"), "aio")),
    ):
        path = root / f"{len(words)}{words[-1:]}.s"
        pids = (server, opened.enter_context(_helper(path, words)))
        yield Call(name, (str(program), str(path)), here, partial(_used_s, pids))


def _used_s(pids: Sequence[int]) -> float:
    return sum(map(cpu_s, pids))


@contextmanager
def _helper(path: Path, words: tuple[str, ...]) -> Iterator[int]:
    helper = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.commands.floor_helper", str(path), *words]
    )
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < until_s, "the helper did not start"
            time.sleep(0.05)
        yield helper.pid
    finally:
        helper.kill()
        helper.wait()


def _commands(root: Path, opened: ExitStack) -> Iterator[Call]:
    """As in the race: few nodes, which are full, and few jobs that wait."""
    root.mkdir()
    dlq = opened.enter_context(DlqSide(root, 4))
    dlq.fill(8)
    dlq.submit(WAITING)
    with dlq.line() as line:
        waits = Jobs(line).list(states=("queued",)).jobs[0].job_id
    (master,) = dlq.controllers()

    def beside_s() -> float:
        return used_s(root / "x") + cpu_s(master)

    for words in (
        ("dlq", "--help"), ("dlq", "status"), ("dlq", "why", waits), ("squeue",), SUBMIT,
    ):  # fmt: skip
        warm(dlq, words)
        yield Call(" ".join(words[:2]), words, dlq.environment, beside_s)


if __name__ == "__main__":
    main()
