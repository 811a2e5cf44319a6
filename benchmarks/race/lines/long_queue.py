"""A queue of 10,000 jobs: lists of it, memory for it, and the restart of the controller with it."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.race import machine
from benchmarks.race.dlq_side import DlqSide
from benchmarks.race.lines.calls import loop_ms, race_calls
from benchmarks.race.pairs import Goals
from benchmarks.race.running import Race, Side, Wanted, steady
from benchmarks.race.slurm_side import SlurmSide

JOBS = 10_000
LONG = Wanted(3, waiting=JOBS)
AGENT_MIB, TOGETHER_MIB, EACH_KIB, SERVING_S = 35, 60, 1.5, 0.8
RESTS_S = 2.0  # without CPU: it has answered


def run_lists(race: Race) -> None:
    """As a table, as JSON, and only the 24 that run."""
    count = 3 if race.short else 7
    sides = race.sides(LONG)
    _tell_twin(race, sides.dlq)
    for name, slurm, dlq, most_ms in (
        ("as a table", ("squeue",), ("dlq", "status"), 150),
        ("as JSON", ("squeue", "--json"), ("dlq", "status", "--json"), 150),
        ("the 24 that run", ("squeue", "-t", "R"), ("dlq", "status", "-t", "running"), 40),
        ("by dlq's squeue", ("squeue",), ("squeue",), 150),
    ):
        goals = Goals(at_most=most_ms, controller_ms=25)
        race_calls(race, f"list {JOBS:,} jobs, {name}", slurm, dlq, count, goals)


def _tell_twin(race: Race, dlq: DlqSide) -> None:
    """Somebody looks at the queue, and the twin foresees its starts. Its CPU is told by itself: the
    lists that follow do without it.
    """
    begin_s = twin_s(dlq)
    loop_ms(("dlq", "status"), dlq.environment, 1)
    dlq.until(lambda: twin_s(dlq) > begin_s, "the twin")
    steady_s = begin_s
    while steady_s < (now_s := twin_s(dlq)):
        steady_s = now_s
        time.sleep(RESTS_S)
    race.alone(
        f"the twin's first look at {JOBS:,} jobs", "s of CPU", [(steady(0.0), steady_s - begin_s)],
        Goals(), "the process that foresees starts, once somebody has looked at waiting jobs",
    )  # fmt: skip


def twin_s(dlq: DlqSide) -> float:
    """CPU of the processes that the master has started."""
    found = machine.processes()
    below = machine.tree(found, dlq.controllers()) - {*dlq.controllers()}
    return sum(found[pid].cpu_s for pid in below)


def run_memory(race: Race) -> None:
    """Resident memory of idle daemons, and for each waiting job: a set-up for each pair."""
    race.sides(LONG)
    while len(race.full_mib) < race.repeat:
        race.close()
        race.sides(LONG)
    empty, full = race.empty_mib, race.full_mib

    def idle(name: str) -> list[float]:
        return [each[name] for each in empty]

    def each_job(name: str) -> list[float]:
        both = zip(empty, full, strict=True)
        return [1024 * (after[name] - before[name]) / JOBS for before, after in both]

    race.steadily(
        "resident, controllers, idle", "MiB", idle("slurm"), idle("dlq"),
        goals=Goals(at_most=TOGETHER_MIB),
        how="munged and slurmctld beside the master, its twin and its planner",
    )  # fmt: skip
    race.steadily(
        "resident, an idle agent", "MiB", idle("slurm agent"), idle("dlq agent"),
        goals=Goals(at_most=AGENT_MIB), how="a slurmd beside a dlq-nodeagent",
    )  # fmt: skip
    race.steadily(
        "memory for each waiting job", "KiB", each_job("slurm holder"), each_job("dlq holder"),
        goals=Goals(at_most=EACH_KIB),
        how=f"growth of slurmctld and of the master alone with {JOBS:,} jobs",
    )  # fmt: skip
    race.steadily(
        "the same with twin and planner", "KiB", each_job("slurm"), each_job("dlq"),
        how="growth of all controllers",
    )  # fmt: skip


def run_restart(race: Race) -> None:
    """From the start of a killed controller to its first answer."""
    sides = race.sides(LONG)
    race.pairs(
        f"restart with {JOBS:,} jobs", "s",
        [Side(starting(side), side.kill_controller, kept(race, side)) for side in sides], 1,
        "SIGKILL, then start; until squeue, or a call of the client, is answered",
        goals=Goals(at_most=SERVING_S),
    )  # fmt: skip


def starting(side: SlurmSide | DlqSide) -> Callable[[], float]:
    """The time of a start, in seconds."""

    def work() -> float:
        begin_s = time.perf_counter()
        side.start_controller()
        return time.perf_counter() - begin_s

    return work


def kept(race: Race, side: SlurmSide | DlqSide) -> Callable[[], None]:
    """Tell if jobs are lost."""
    words = ("PENDING",) if side.name == "slurm" else ("queued",)

    def after() -> None:
        if (count := side.count(*words)) != JOBS:
            race.report.say(f"  after the restart {side.name} has {count} of {JOBS} jobs")

    return after
