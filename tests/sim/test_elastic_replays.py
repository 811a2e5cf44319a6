"""Elastic jobs in replays: Aryl's tables by hand, and what holds whatever the trace."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.attempts.attempt_steps import StopRequested
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.plan import Resize
from dlq_master.model.resources import Allocation
from dlq_master.policy.turn import Decided
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup, read_cluster
from support.validate import validate

FREE = ("preempt=free", "place=count")
CHOICES = [
    (policy, f"place={place}", *cost)
    for policy in ("afs", "gandiva-elastic", "aryl", "pollux")
    for place in ("consolidate", "spread", "count")
    for cost in (("preempt=free",), ("term_s=60", "save_s=7", "resume_s=5"))
] + [
    ("aryl", f"size={size}", f"place={place}", *cost)
    for size, place, cost in (
        ("rollout", "consolidate", ("term_s=60", "save_s=7", "resume_s=5")),
        ("knapsack-exact", "groups", ("term_s=60", "save_s=7", "resume_s=5")),
        ("rollout", "groups", ("preempt=free",)),
    )
]


def job(name: str, least: int, most: int, least_s: int, submit_s: int = 0) -> TraceJob:
    """As in Aryl's tables: from `least` to `most` workers, `least_s` on the most."""
    return TraceJob(
        job_id=name,
        submit_time_s=submit_s,
        num_gpus=most,
        duration_s=least_s,
        min_workers=least,
        max_workers=most,
    )


def replayed(policy: str, jobs: list[TraceJob], *more: str, cluster: str = "1x8") -> Result:
    (chosen,) = read_settings([policy], more)
    return replay(Trace.of("elastic", jobs), read_cluster(cluster), chosen)


TABLE_2 = [job("A", 2, 6, 50), job("B", 2, 6, 20)]
TABLE_4 = [job("A", 2, 3, 100), job("B", 2, 6, 20)]


@pytest.mark.parametrize(
    ("policy", "jobs", "sizes", "jct_s"),
    [
        # The knapsack misses the best split of table 2, and has that of table 4.
        ("aryl", TABLE_2, [[5, 6], [3]], [56.666667, 40.0]),
        ("aryl", TABLE_4, [[3], [5]], [100.0, 24.0]),
        ("aryl size=knapsack-exact", TABLE_2, [[5, 6], [3]], [56.666667, 40.0]),
        ("aryl size=knapsack-exact", TABLE_4, [[3], [5]], [100.0, 24.0]),
        # The default of dlq has both.
        ("aryl size=rollout", TABLE_2, [[2, 6], [6]], [63.333333, 20.0]),
        ("aryl size=rollout", TABLE_4, [[3], [5]], [100.0, 24.0]),
        ("aryl size=least-work", TABLE_2, [[2, 6], [6]], [63.333333, 20.0]),
        ("aryl size=least-work", TABLE_4, [[2, 3], [6]], [106.666667, 20.0]),
        # Grow-shrink fills the first in line: solution 1 of table 3.
        ("gandiva-elastic", TABLE_2, [[6], [2, 6]], [50.0, 53.333333]),
        ("gandiva-elastic", TABLE_2[::-1], [[6], [2, 6]], [20.0, 63.333333]),  # solution 2
        ("gandiva-elastic", TABLE_4, [[3], [5]], [100.0, 24.0]),
        ("gandiva-elastic", TABLE_4[::-1], [[6], [2, 3]], [20.0, 106.666667]),
        # AFS: B is shorter and leads 5 to 3 until it ends at 120 / 5; A then has 228 / 6 s left.
        ("afs", TABLE_2, [[3, 6], [5]], [62.0, 24.0]),
        ("afs", TABLE_4, [[3], [5]], [100.0, 24.0]),
    ],
)
def test_the_two_jobs_of_aryl_on_eight_workers(
    policy: str, jobs: list[TraceJob], sizes: list[list[int]], jct_s: list[float]
) -> None:
    name, *words = policy.split()
    found = replayed(name, jobs, *words, *FREE).outcomes
    assert [[span.gpus for span in outcome.spans] for outcome in found] == sizes
    assert [float(outcome.jct_s) for outcome in found] == pytest.approx(jct_s, abs=1e-5)


def test_a_resize_costs_a_save_and_a_resume_and_is_an_interruption() -> None:
    """A starts on 6 of 8 workers. B comes at 10 and needs 4; terms end at 100, 200, ... A has done
    6 x 95 when it stops to save, at 100 B starts, and A goes on with 4 after 5 s more."""
    jobs = [job("A", 2, 6, 200), job("B", 4, 4, 50, 10)]
    result = replayed("gandiva-elastic", jobs, "term_s=100", "save_s=5", "resume_s=5")
    a, b = result.outcomes
    assert [(span[0], span[1], span.gpus) for span in a.spans][:2] == [(0, 100, 6), (100, 200, 4)]
    assert b.spans[0][:2] == (100, 150)
    # 95 s on 6, 90 on 4 (from 105 to 195), then the rest on 6 from 205.
    assert a.finish_s == pytest.approx(205 + (6 * 200 - 6 * 95 - 4 * 90) / 6)
    assert (result.metrics.preemptions, result.metrics.resizes) == (2, 2)
    assert a.overhead_s == 20


def test_other_policies_give_what_was_asked() -> None:
    (only,) = replayed("fifo", [job("A", 2, 6, 50)]).outcomes
    assert [span.gpus for span in only.spans] == [6]


def test_imperfect_scaling_is_known_to_afs_and_to_the_world() -> None:
    """With 0.5 a doubling nothing is gained: nobody grows."""
    jobs = [
        TraceJob(
            job_id="A", submit_time_s=0, num_gpus=2, duration_s=100, min_workers=2, max_workers=8
        )
    ]
    (only,) = replayed("afs", jobs, *FREE, "scaling=0.5").outcomes
    assert [span.gpus for span in only.spans] == [2]
    (only,) = replayed("afs", jobs, *FREE, "scaling=0.75").outcomes
    assert only.jct_s == pytest.approx(100 / 1.5**2)


# --- whatever the trace ---------------------------------------------------------------------------


class Watch:
    """After every turn: sound state, allowed sizes, and resizes that leave the base where it is."""

    def __init__(self) -> None:
        self.held: dict[int, set[tuple[str, int]]] = {}
        self.bases: dict[int, int] = {}

    def __call__(self, cluster: Cluster, decided: Decided, _now_s: float) -> None:
        validate(cluster)
        for one in decided.happened:
            if isinstance(one.change, Resize) and isinstance(one.event, StopRequested):
                job_id = one.change.key.job_id
                stays = self.held[job_id] & gpus_of(one.change.allocation)
                assert len(stays) >= self.bases[job_id], "its base stays"
        self.held.clear()
        for attempt in cluster.attempts.values():
            job_id, request = attempt.key.job_id, cluster.jobs[attempt.key.job_id].request
            self.held[job_id] = gpus_of(attempt.lease.allocation)
            self.bases[job_id] = request.base
            assert len(self.held[job_id]) in (request.sizes or (request.gpus,)), "an allowed size"


def gpus_of(allocation: Allocation) -> set[tuple[str, int]]:
    return {(str(slot.node_id), gpu) for slot in allocation.slots for gpu in slot.gpu_indices}


ROWS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.integers(1, 4),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(0, 400),
    ),
    min_size=1,
    max_size=10,
)


def a_trace(rows: list[tuple[int, int, int, int, int]]) -> Trace:
    return Trace.of(
        "random",
        [
            TraceJob(
                job_id=str(number),
                submit_time_s=submit_s,
                num_gpus=least * each,
                duration_s=duration_s,
                gpus_per_worker=each,
                min_workers=least,
                max_workers=least * stretch,
            )
            for number, (submit_s, least, each, stretch, duration_s) in enumerate(rows)
        ],
    )


@given(rows=ROWS, nodes=st.integers(1, 3), gpus=st.integers(2, 5), choice=st.sampled_from(CHOICES))
@settings(deadline=None)
def test_every_job_that_could_ever_run_ends_and_nothing_is_ever_wrong(
    rows: list[tuple[int, int, int, int, int]], nodes: int, gpus: int, choice: tuple[str, ...]
) -> None:
    (chosen,) = read_settings(choice[:1], choice[1:])
    cluster = ClusterSpec(name="random", groups=(NodeGroup(count=nodes, gpus=gpus),))
    trace = a_trace(rows)
    result = replay(trace, cluster, chosen, watch=Watch())
    assert result.outcomes == replay(trace, cluster, chosen).outcomes
    possible = {job.job_id for job in trace.jobs if job.num_gpus <= nodes * gpus}
    assert {outcome.job.job_id for outcome in result.outcomes} == possible
    for outcome in result.outcomes:
        fastest_s = (
            outcome.job.duration_s
            * outcome.job.num_gpus
            / ((outcome.job.max_workers or 0) * (outcome.job.gpus_per_worker or 1))
        )
        assert outcome.jct_s >= fastest_s - 1e-6
        assert outcome.queue_s >= -1e-6
        assert outcome.resizes <= outcome.preemptions
