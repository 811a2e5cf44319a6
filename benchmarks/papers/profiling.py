"""Trial runs in whole replays: the waits of jobs for their trials, and the effect on deadlines.

    python -m benchmarks.papers.profiling [--jobs N] [--policy NAME] [--choice "KEY=VALUE ..."]...

Chronus' section 5.1 mixes its Short and H_MIX2 workloads (5,735 and 6,599 jobs). Here the long jobs
are the `mix2` ones of `deadline_cases` at 100 %, with its seeds. For each there are 0.87 jobs of
less than T_profile, in bursts of one user as figure 5b shows them. The shape of a figure can be
compared with the paper, not its numbers: the traces are others.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from benchmarks.papers.deadline_cases import JOBS, SEEDS, case, cluster
from dlq_simulator.metrics import Metrics, ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob

SHORT_PER_LONG = 5735 / 6599
USERS = 40
BURSTS = (1, 1, 1, 2, 4, 8)  # jobs that a user submits at once
WIDTHS = (1, 1, 1, 1, 2, 4, 8, 16)
CHOICES: tuple[tuple[str, ...], ...] = (
    ("noise=0",),
    ("noise=0", "profile_floor=1"),
    ("noise=0", "profile_floor=3"),
    ("noise=0", "submit_gpus=24"),
    ("noise=0.2",),
    ("noise=0.4",),
)


def main() -> None:
    """One line for each choice: means over the seeds, and the worst of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=JOBS, help="with deadlines, of each seed")
    parser.add_argument("--policy", default="chronus-paper")
    parser.add_argument("--choice", action="append", help="settings; default: all of the page")
    asked = parser.parse_args()
    choices = [tuple(words.split()) for words in asked.choice] if asked.choice else CHOICES
    print(
        "choice                     pending s: mean  longest  once let in  wDMR    broken  in trial"
    )
    for words in choices:
        runs = [replayed(asked.policy, seed, asked.jobs, words) for seed in SEEDS]
        print(_line(" ".join(words), runs), flush=True)


def workload(seed: int, count: int) -> Trace:
    """Short and long jobs of `USERS` users, the same for all choices."""
    draw = random.Random(f"{seed}:short")
    longs = case("mix2", 100, seed, count).trace.jobs
    rows = [replace(row, user=_user(draw)) for row in longs]
    span_s = max(row.submit_time_s for row in rows)
    shorts: list[TraceJob] = []
    while len(shorts) < round(SHORT_PER_LONG * count):
        at_s, user = round(draw.uniform(0, span_s)), _user(draw)
        gpus = draw.choice(WIDTHS)
        for place in range(draw.choice(BURSTS)):
            row = TraceJob(
                job_id=f"s{len(shorts)}",
                submit_time_s=at_s + place,
                num_gpus=gpus,
                duration_s=draw.randrange(10, 300),
                user=user,
            )
            shorts.append(row)
    return Trace.of(f"short and mix2, seed {seed}", [*rows, *shorts])


def replayed(
    policy: str, seed: int, count: int, words: Sequence[str]
) -> tuple[Metrics, list[ReplayOutcome]]:
    """One seed under one choice."""
    (chosen,) = read_settings([policy], ["know=profiled", *words], seed)
    result = replay(workload(seed, count), cluster(), chosen)
    return result.metrics, list(result.outcomes)


def _user(draw: random.Random) -> str:
    return f"u{draw.randrange(USERS)}"


def _line(words: str, runs: Sequence[tuple[Metrics, list[ReplayOutcome]]]) -> str:
    metrics = [found for found, _ in runs]
    let_in_s = [
        outcome.trial_start_s - outcome.trial_sent_s
        for _, outcomes in runs
        for outcome in outcomes
        if outcome.trial_start_s is not None and outcome.trial_sent_s is not None
    ]
    pending_s = mean([found.avg_profiler_pending_s or 0.0 for found in metrics])
    longest_s = max(found.max_profiler_pending_s or 0.0 for found in metrics)
    missed = sum(found.promises_missed or 0 for found in metrics)
    promised = sum(found.guaranteed or 0 for found in metrics)
    share = mean([found.wdmr or 0.0 for found in metrics])
    ended = mean([found.ended_in_trial_ratio or 0.0 for found in metrics])
    return (
        f"{words:<26} {pending_s:15.0f}  {longest_s:7.0f}  {max(let_in_s):11.0f}  {share:5.1%}  "
        f"{missed:3d}/{promised:<4d}  {ended:5.1%}"
    )


if __name__ == "__main__":
    main()
