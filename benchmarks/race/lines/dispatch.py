"""Many jobs of one GPU that run `true`: from the first submit until the last one has ended.

Both sides have real agents on this host, and real processes. Each takes its jobs by its quickest
door: libslurm in C, one call after another; SubmitJobs of dlq.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.race.dlq_side import ALIVE, DlqSide
from benchmarks.race.pairs import Goals, Row, Turn
from benchmarks.race.running import Race, Side, Wanted
from benchmarks.race.slurm_side import SlurmSide
from benchmarks.support.conditions import percentile
from dlq.v1 import event_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_client.jobs import Jobs

LOOK_S = 0.2
BEATEN, CHAIN_MS, SOON_S = 2.0, 9.0, 1.0
RUNNING = "attempt_running"


def run(race: Race) -> None:
    """The rate, the CPU of the whole chain, and the delays of dlq's starts."""
    nodes, jobs = (8, 150) if race.short else (32, 600)
    slurm, dlq = race.sides(Wanted(nodes, many_short_jobs=True))
    slowest_s: list[float] = []
    cursors: list[int] = []

    def before() -> None:
        with dlq.line() as line:
            cursors.append(Jobs(line).list().cursor)

    def after() -> None:
        slowest_s.append(percentile(start_delays_s(dlq, cursors[-1], jobs), 0.99))

    row = race.pairs(
        f"dispatch of true, {nodes} nodes", "jobs/s",
        (
            Side(lambda: slurm_rate(slurm, jobs), after=slurm.clear),
            Side(lambda: dlq_rate(dlq, jobs), before, after),
        ),
        jobs,
        f"{jobs} jobs of 1 GPU from the first submit to the end of the last; {nodes} slurmd and "
        f"{nodes} dlq-nodeagent with real processes; Slurm with its settings for many short jobs",
        more_is_better=True, goals=Goals(ahead=BEATEN),
    )  # fmt: skip
    race.tell(chain(row))
    race.alone(
        "assigned to running in the storm, p99", "s",
        zip(row.dlq, slowest_s, strict=True), Goals(at_most=SOON_S),
    )  # fmt: skip


def chain(row: Row) -> Row:
    """The CPU of all that took part, for each job."""

    def whole(turns: Sequence[Turn]) -> list[Turn]:
        return [replace(turn, value=turn.controller_ms + turn.beside_ms) for turn in turns]

    return Row(
        row.line, "CPU of the whole chain for each job", "ms",
        "controllers, agents, clients and jobs of the row before",
        goals=Goals(at_most=CHAIN_MS if row.goals.ahead else None), with_cpu=False,
        peer=row.peer, slurm=whole(row.slurm), dlq=whole(row.dlq),
    )  # fmt: skip


def slurm_rate(slurm: SlurmSide, jobs: int) -> float:
    """Jobs a second."""
    with slurm.clients(1, jobs) as clients:
        begin_s = time.perf_counter()
        clients.go()
        while slurm.count("PENDING,CONFIGURING,RUNNING,COMPLETING"):
            time.sleep(LOOK_S)
        return jobs / (time.perf_counter() - begin_s)


def dlq_rate(dlq: DlqSide, jobs: int) -> float:
    """Jobs a second."""
    with dlq.clients(1, jobs, at_once=True) as clients, dlq.line() as line:
        begin_s = time.perf_counter()
        clients.go()
        while Jobs(line).list(states=ALIVE).jobs:
            time.sleep(LOOK_S)
        return jobs / (time.perf_counter() - begin_s)


def start_delays_s(dlq: DlqSide, cursor: int, jobs: int) -> list[float]:
    """From assigned to running, of the jobs since a cursor of the journal."""
    request = wire.WatchEventsRequest(
        cursor=cursor, filter=event_pb2.EventFilter(kinds=["attempt_assigned", RUNNING])
    )
    assigned_s: dict[str, float] = {}
    found: list[float] = []
    with dlq.line() as line:
        watch = Jobs(line).stub.WatchEvents(request, timeout=60.0)
        for answer in watch:
            event = answer.event
            at_s = event.event_time.ToNanoseconds() / 1e9
            if event.kind == RUNNING and event.job_id in assigned_s:
                found.append(at_s - assigned_s.pop(event.job_id))
            elif event.kind == "attempt_assigned":
                assigned_s[event.job_id] = at_s
            if len(found) == jobs:
                break
        watch.cancel()
    return found
