"""Whatever the trace, policy and placement: nothing is oversubscribed and every job ends."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.cluster.cluster import Cluster
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.loans import LoanStep
from support.extent import LONG, spread, times
from support.validate import validate

DATA = Path(__file__).parents[1] / "data" / "traces"
PLACEMENTS = ("count", "consolidate", "spread")
LAS = (
    ("tiresias-las", "thresholds=60"),
    ("tiresias-las", "thresholds=60", "preempt=free"),
    ("tiresias-las", "thresholds=40,90", "preempt=free", "order=first-start"),
    (
        "tiresias-las",
        "thresholds=40,90",
        "order=first-start",
        "term_s=60",
        "save_s=7",
        "resume_s=0",
    ),
    ("tiresias-las", "thresholds=60", "preempt=free", "promote_knob=2"),
    ("tiresias-las", "thresholds=60", "promote_knob=2", "term_s=60", "save_s=10", "resume_s=25"),
    ("tiresias-las", "thresholds=60", "starve_limit_s=120", "term_s=60", "save_s=9", "resume_s=5"),
)
BY_KEY = (
    ("sf",),
    ("lf", "term_s=60", "save_s=7", "resume_s=5"),
    ("lf", "preempt=free"),
    ("srtf", "preempt=free"),
    ("srtf", "term_s=60", "save_s=7", "resume_s=5"),
    ("srsf", "preempt=free"),
    ("timeslice", "term_s=60", "save_s=7", "resume_s=5"),
    ("themis", "term_s=60", "save_s=7", "resume_s=5"),
    ("themis", "preempt=free", "fairness=0.5"),
)
BY_DEADLINE = (
    ("edf", "term_s=60", "save_s=7", "resume_s=5"),
    ("edf-preemptive", "preempt=free"),
    ("edf-preemptive", "term_s=60", "save_s=7", "resume_s=5"),
    ("3sigma", "term_s=60", "save_s=7", "resume_s=5"),
    ("3sigma", "know=profiled", "profile_s=20", "preempt=free"),
    ("genie", "preempt=free"),
    ("genie", "term_s=60", "save_s=7", "resume_s=5"),
)
GITTINS = (
    ("tiresias-gittins", "thresholds=60,200", "preempt=free", "refresh=2"),
    ("tiresias-gittins", "thresholds=60", "preempt=free", "refresh=1", "index=sup", "last=index"),
    ("tiresias-gittins", "thresholds=q0.4,q0.8", "refresh=3", "term_s=60", "save_s=7"),
    ("tiresias-gittins", "thresholds=60", "preempt=free", "refresh=3", "promote_knob=2"),
)
QUOTAS = (("yarn-cs",), ("yarn-cs", "quota=be:0.5", "preempt=free"))
CHOICES: list[tuple[str, ...]] = [
    (*choice, f"place={place}")
    for choice, place in product(
        (("fifo",), ("best-effort",), *QUOTAS, *BY_KEY, *BY_DEADLINE, *LAS, *GITTINS), PLACEMENTS
    )
] + [
    ("best-effort", "place=halving"),
    ("tiresias-las", "thresholds=60", "place=halving"),
    ("tiresias-las", "thresholds=60", "place=pattern", "term_s=60", "save_s=7", "resume_s=5"),
    ("srtf", "place=pattern", "preempt=free"),
    ("yarn-cs", "place=local-search", "search=2000"),
    ("chronus", "know=profiled", "profile_s=40", "term_s=60", "save_s=7", "resume_s=5"),
    ("chronus", "know=profiled", "profile_s=90", "submit_gpus=4", "profile_floor=0"),
]


def no_gpu_is_held_twice(cluster: Cluster, *_: object) -> None:
    """Counted from the attempts alone, beside the core's own full check."""
    held: dict[tuple[str, int], int] = {}
    for attempt in cluster.attempts.values():
        if attempt.live:
            asked = cluster.jobs[attempt.key.job_id].gpus_now
            assert attempt.lease.allocation.width == asked, "all or nothing"
            for slot in attempt.lease.allocation.slots:
                for gpu in slot.gpu_indices:
                    held[slot.node_id, gpu] = held.get((slot.node_id, gpu), 0) + 1
                    assert gpu < len(cluster.nodes[slot.node_id].gpus)
    assert all(holders == 1 for holders in held.values()), held
    validate(cluster)


def run(trace: Trace, cluster: ClusterSpec, choice: tuple[str, ...]) -> Result:
    (chosen,) = read_settings(choice[:1], choice[1:])
    return replay(trace, cluster, chosen, watch=no_gpu_is_held_twice)


def every_job_ends_whole(result: Result, trace: Trace, cluster: ClusterSpec) -> None:
    """All that some GPU type can hold as a whole; the others are refused, not forgotten."""
    by_type: dict[str, int] = {}
    for group in cluster.groups:
        by_type[group.gpu_type] = by_type.get(group.gpu_type, 0) + group.count * group.gpus
    possible = {
        job.job_id
        for job in trace.jobs
        if job.num_gpus <= max(by_type.get(kind, 0) for kind in job.gpu_types or by_type)
    }
    assert result.metrics.refused == len(trace.jobs) - len(possible)
    assert {outcome.job.job_id for outcome in result.outcomes} == possible
    for outcome in result.outcomes:
        job = outcome.job
        assert outcome.start_s >= job.submit_time_s
        assert outcome.jct_s >= job.duration_s - 1e-6
        assert outcome.queue_s >= -1e-6
        assert outcome.overhead_s >= 0
        assert outcome.jct_s == pytest.approx(outcome.queue_s + outcome.overhead_s + job.duration_s)


# Each with one of the placements, in turn.
IN_TURN = [choice for number, choice in enumerate(CHOICES) if number % 3 == number // 3 % 3]


@pytest.mark.parametrize(
    "choice",
    spread([(choice,) for choice in (CHOICES if LONG else IN_TURN)], 5),
    ids=" ".join,
)
def test_sixty_jobs_on_eight_gpus_keep_every_invariant(choice: tuple[str, ...]) -> None:
    trace = read_trace(str(DATA / "tiresias_60_job.csv"))
    cluster = ClusterSpec(name="2x4", groups=(NodeGroup(count=2, gpus=4),))
    every_job_ends_whole(run(trace, cluster, choice), trace, cluster)


def a_trace(whole: bool) -> st.SearchStrategy[Trace]:
    times = st.integers(0, 400) if whole else st.floats(0, 400, allow_subnormal=False)
    types = st.sampled_from([None, None, "a", "b", "b|a"])
    due = st.sampled_from([None, None, 100, 700])
    jobs = st.lists(st.tuples(times, st.integers(1, 9), times, types, due), min_size=1, max_size=12)
    return jobs.map(
        lambda rows: Trace.of(
            "random",
            [
                TraceJob(
                    job_id=str(number),
                    submit_time_s=s,
                    num_gpus=g,
                    duration_s=d,
                    gpu_type=t,
                    kind="strict"
                    if due and number
                    else "be",  # of a queue with a quota there is one
                    deadline_s=due if number else None,
                )
                for number, (s, g, d, t, due) in enumerate(rows)
            ],
        )
    )


A_CLUSTER = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.sampled_from("ab")), min_size=1, max_size=2
).map(
    lambda groups: ClusterSpec(
        name="random",
        groups=tuple(
            NodeGroup(name=f"n{number}", count=count, gpus=gpus, gpu_type=gpu_type)
            for number, (count, gpus, gpu_type) in enumerate(groups)
        ),
    )
)


@given(trace=st.booleans().flatmap(a_trace), cluster=A_CLUSTER, choice=st.sampled_from(CHOICES))
@settings(max_examples=times(50, 300), deadline=None)
def test_any_small_trace_ends_under_every_policy_and_placement(
    trace: Trace, cluster: ClusterSpec, choice: tuple[str, ...]
) -> None:
    every_job_ends_whole(run(trace, cluster, choice), trace, cluster)


@given(trace=a_trace(whole=True), cluster=A_CLUSTER, choice=st.sampled_from(CHOICES))
@settings(max_examples=times(20, 50), deadline=None)
def test_the_same_replay_twice_is_the_same_replay(
    trace: Trace, cluster: ClusterSpec, choice: tuple[str, ...]
) -> None:
    first, second = run(trace, cluster, choice), run(trace, cluster, choice)
    assert (first.outcomes, first.metrics) == (second.outcomes, second.metrics)


def a_harder_trace() -> st.SearchStrategy[Trace]:
    row = st.tuples(
        st.integers(0, 400), st.integers(1, 6), st.integers(0, 300), st.booleans(),
        st.sampled_from([None, 0.5, 3.0]), st.sampled_from([None, "a", "t", "t|a"]),
    )  # fmt: skip
    return st.lists(row, min_size=1, max_size=12).map(
        lambda rows: Trace.of(
            "random",
            [
                TraceJob(
                    job_id=str(number),
                    submit_time_s=s,
                    num_gpus=g,
                    duration_s=d,
                    checkpoint=c,
                    rho=r,
                    gpu_type=t,
                )
                for number, (s, g, d, c, r, t) in enumerate(rows)
            ],
        )
    )


STEPS = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(
    lambda lent: tuple(LoanStep(90 * number, servers) for number, servers in enumerate(lent))
)
HARDER = (
    ("fifo",),
    ("best-effort", "place=spread", "overlap=1"),
    ("srtf", "know=profiled", "profile_s=40", "term_s=60", "save_s=7", "resume_s=5"),
    ("chronus", "know=profiled", "profile_s=40", "term_s=60", "save_s=7", "resume_s=5"),
    ("srsf", "know=profiled", "profile_s=20", "preempt=free", "place=spread"),
    ("tiresias-las", "thresholds=60", "place=spread", "term_s=60", "save_s=9", "resume_s=5"),
)


@given(
    trace=a_harder_trace(),
    steps=STEPS,
    speed=st.sampled_from([1, 0.35, 2]),
    choice=st.sampled_from(HARDER),
)
@settings(max_examples=times(25, 150), deadline=None)
def test_every_job_ends_where_servers_come_and_go_and_speeds_differ(
    trace: Trace, steps: tuple[LoanStep, ...], speed: float, choice: tuple[str, ...]
) -> None:
    own = NodeGroup(name="a", count=2, gpus=3, gpu_type="a")
    lent = NodeGroup(name="t", count=2, gpus=3, gpu_type="t", speed=speed, lent=steps)
    result = run(trace, ClusterSpec(name="random", groups=(own, lent)), choice)
    assert result.metrics.jobs + result.metrics.refused == len(trace.jobs)
    for outcome in result.outcomes:
        held_s = sum(span.end_s - span.begin_s for span in outcome.spans)
        assert outcome.queue_s == pytest.approx(outcome.jct_s - held_s, abs=1e-6)
        assert outcome.overhead_s >= -1e-9
        worked_s = held_s - outcome.overhead_s
        longest_s = outcome.job.duration_s * (1 + (outcome.job.rho or 0)) / min(speed, 1)
        assert outcome.job.duration_s / max(speed, 1) - 1e-6 <= worked_s <= longest_s + 1e-6
