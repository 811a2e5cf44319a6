"""Who is never taken from whom in whole replays of the deadline baselines."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.attempts.attempt_steps import StopRequested
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.plan import Lapse
from dlq_master.policy.turn import Decided
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster
from support.extent import times

Left = tuple[bool, bool, float]  # whether who leaves, and for whom, has deadlines; how much earlier
GRID = ("term_s=60", "save_s=7", "resume_s=5")


class Watched:
    """Whoever was made to leave in a replay."""

    def __init__(self) -> None:
        self.left: list[Left] = []

    def __call__(self, cluster: Cluster, decided: Decided, _now_s: float) -> None:
        for event, _, _, _, change in decided.happened:
            if isinstance(change, Lapse) and isinstance(event, StopRequested):
                assert change.for_job is not None
                loser, winner = cluster.jobs[change.key.job_id], cluster.jobs[change.for_job]
                due_s = [
                    job.submit_time_s + job.steps[0][0] if job.steps else float("inf")
                    for job in (loser, winner)
                ]
                self.left.append((bool(loser.steps), bool(winner.steps), due_s[0] - due_s[1]))


def replayed(
    jobs: list[TraceJob], policy: str, *words: str
) -> tuple[list[ReplayOutcome], list[Left]]:
    (chosen,) = read_settings([policy], words)
    watched = Watched()
    result = replay(Trace.of("random", jobs), read_cluster("2x4"), chosen, watch=watched)
    return list(result.outcomes), watched.left


def a_row(number: int, at_s: int, gpus: int, runs_s: int, slack: float, *, soft: bool) -> TraceJob:
    """`slack` 0: best effort."""
    due_s = slack * runs_s
    steps = ((due_s, 100.0), (1.5 * due_s, 20.0)) if soft and slack else ()
    kind = "be" if not slack else "soft" if soft else "strict"
    return TraceJob(
        job_id=str(number),
        submit_time_s=at_s,
        num_gpus=gpus,
        duration_s=runs_s,
        kind=kind,
        deadline_s=due_s or None,
        soft_steps=steps,
    )


ROWS = st.lists(
    st.builds(
        partial(a_row, 0),
        st.integers(0, 600),
        st.integers(1, 8),
        st.integers(1, 400),
        st.sampled_from([0.0, 0.8, 1.2, 1.6, 3.0]),
        soft=st.booleans(),
    ),
    min_size=2,
    max_size=16,
).map(lambda jobs: [replace(job, job_id=str(n)) for n, job in enumerate(jobs)])
WORLDS = st.sampled_from(
    [GRID, ("preempt=free",), (*GRID, "place=spread"), ("preempt=free", "place=count")]
)


@given(jobs=ROWS, policy=st.sampled_from(["edf", "genie", "3sigma"]), words=WORLDS)
@settings(max_examples=times(60, 200), deadline=None)
def test_an_slo_job_never_leaves_and_others_leave_for_slo_jobs_only(
    jobs: list[TraceJob], policy: str, words: tuple[str, ...]
) -> None:
    outcomes, left = replayed(jobs, policy, *words)
    assert not [outcome for outcome in outcomes if outcome.job.kind != "be" and outcome.preemptions]
    assert all(winner and not loser for loser, winner, _ in left)


@given(jobs=ROWS, words=WORLDS)
@settings(max_examples=times(30, 100), deadline=None)
def test_under_edf_preemptive_everybody_leaves_for_an_earlier_deadline(
    jobs: list[TraceJob], words: tuple[str, ...]
) -> None:
    _, left = replayed(jobs, "edf-preemptive", *words)
    assert all(winner and earlier_s >= 0 for _, winner, earlier_s in left)


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        ("edf", [100, 210, 110, 215]),  # nothing is taken from the first, then by deadline
        ("edf-preemptive", [210, 120, 20, 215]),
        ("genie", [100, 200, 210, 215]),  # they have to start by 130, 200 and 1095 s
        ("3sigma", [100, 215, 115, 105]),  # the same reward in 5, 10 and 100 s
    ],
)
def test_four_jobs_by_hand(policy: str, ends: list[int]) -> None:
    # Each wants all GPUs; they are due at 1000, 230, 210 and 1100 s.
    jobs = [
        a_row(0, 0, 8, 100, 10.0, soft=False),
        a_row(1, 10, 8, 100, 2.2, soft=False),
        a_row(2, 10, 8, 10, 20.0, soft=False),
        a_row(3, 10, 8, 5, 218.0, soft=False),
    ]
    outcomes, _ = replayed(jobs, policy, "preempt=free")
    assert [outcome.finish_s for outcome in outcomes] == ends
