"""Calls of commands: their start, their answers, and `true` on a node from call to exit."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.race.dlq_side import DlqSide
from benchmarks.race.pairs import Goals
from benchmarks.race.running import Race, Side, Wanted
from dlq_client.jobs import Jobs

SMALL = Wanted(4)
WAITING = 20
FIRST_MS = 120
_LOOP = """\
count=$1
shift
while [ "$count" -gt 0 ]; do
    "$@" || exit 1
    count=$((count - 1))
done
"""


def loop_ms(words: Sequence[str], environment: Mapping[str, str], count: int) -> float:
    """Milliseconds of one call of `count`, in a loop of the shell."""
    program = shutil.which(words[0], path=environment["PATH"])
    assert program is not None
    begin_s = time.perf_counter()
    done = subprocess.run(
        ["sh", "-c", _LOOP, "sh", str(count), program, *words[1:]],
        env=dict(environment), cwd="/tmp", check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stderr)
    return 1e3 * (time.perf_counter() - begin_s) / count


def warm(dlq: DlqSide, words: Sequence[str]) -> None:
    """The helper of the commands lives, and has run this one."""
    loop_ms(words, dlq.environment, 1)
    dlq.until(dlq.has_helper, "the helper of the commands")
    loop_ms(words, dlq.environment, 3)


def race_calls(
    race: Race,
    name: str,
    slurm: Sequence[str],
    dlq: Sequence[str],
    count: int,
    goals: Goals,
) -> None:
    """A row of two commands, each in a loop of the shell."""
    sides = race.sides_now()
    warm(sides.dlq, dlq)
    race.pairs(
        name, "ms",
        (
            Side(partial(loop_ms, slurm, sides.slurm.environment, count)),
            Side(partial(loop_ms, dlq, sides.dlq.environment, count)),
        ),
        count, f"`{' '.join(slurm)}` beside `{' '.join(dlq)}`, {count} calls in a shell loop",
        goals=goals,
    )  # fmt: skip


def run_first_call(race: Race) -> None:
    """The first call after a login: no helper of the commands lives yet."""
    slurm, dlq = race.sides(SMALL)
    words = ("dlq", "status")
    theirs = partial(loop_ms, ("squeue",), slurm.environment, 1)
    ours = partial(loop_ms, words, dlq.environment, 1)
    warm(dlq, words)  # the files of Python are in memory

    def after() -> None:
        dlq.until(dlq.has_helper, "the helper of the commands")

    race.pairs(
        "first call after login", "ms",
        (Side(theirs), Side(ours, dlq.end_helper, after)), 1,
        "`squeue` beside `dlq status`, one call; dlq has no helper, which starts meanwhile",
        goals=Goals(at_most=FIRST_MS),
    )  # fmt: skip


def run(race: Race) -> None:
    """Help, a list of few jobs, and why one of them waits."""
    count = 50 if race.short else 200
    sides = race.sides(SMALL)
    for side in sides:
        side.fill(8)
        side.submit(WAITING)
    with sides.dlq.line() as line:
        waits = Jobs(line).list(states=("queued",)).jobs[0].job_id
    theirs = sides.slurm.said("squeue", "-h", "-t", "PD", "-o", "%i").split()[-1]
    squeue = ("squeue",)
    race_calls(
        race, "dlq --help", ("squeue", "--help"), ("dlq", "--help"), count, Goals(at_most=60)
    )
    race_calls(race, "dlq status", squeue, ("dlq", "status"), count, Goals(at_most=40))
    one = ("squeue", "-j", theirs)
    race_calls(race, "dlq why", one, ("dlq", "why", waits), count, Goals(at_most=40))
    race_calls(race, "dlq's squeue", squeue, squeue, count, Goals(at_most=40))


def run_round_trip(race: Race) -> None:
    """`true` on a free GPU: from the call to its exit."""
    count = 15 if race.short else 40
    race.sides(SMALL)
    srun = ("srun", "-G1", "true")
    goals = Goals(at_most=60)
    race_calls(race, "dlq run of true", srun, ("dlq", "run", "--", "true"), count, goals)
    race_calls(race, "dlq's srun of true", srun, srun, count, goals)
