"""The indexed core against a scheduler so naive that it can be checked by reading.

It re-plans from an empty cluster at every instant, with plain lists, after section 2.3 of the facts
on the Tiresias simulator, demotion corrected to the exact crossing (the released program takes two
jobs that cross within one second in the order of its list). It shares no code with the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.policy.order.gittins import ServiceDistribution
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from support.extent import times

pytestmark = pytest.mark.long(
    "unit/master/policy/order/test_las.py",
    "unit/master/policy/order/test_gittins.py",
)

Row = tuple[int, int, int]  # submit, GPUs, duration
Due = tuple[int, int, int, int]  # and the deadline, from submission; 0: none


@dataclass(eq=False)
class Naive:
    """One job; `done` counts its executed seconds."""

    number: int
    submit: int
    gpus: int
    duration: int
    deadline: int = 0  # from its submission; 0: best effort
    done: int = 0
    running: bool = False
    start: int = -1
    finish: int = -1
    preemptions: int = 0


def naive_las(rows: list[Row], gpus: int, limits: tuple[int, ...], order: str) -> list[Naive]:
    """Every job's history under free preemption and GPU counting."""
    jobs = [Naive(number, *row) for number, row in enumerate(sorted(rows, key=lambda r: r[0]))]
    arriving = list(jobs)
    queues: list[list[Naive]] = [[] for _ in range(len(limits) + 1)]
    now = 0
    while arriving or any(queues):
        then = min(_instants(now, arriving, queues, limits))
        for job in (job for queue in queues for job in queue if job.running):
            job.done += then - now
        now = then
        _finish(now, queues)
        while arriving and arriving[0].submit == now:
            queues[0].append(arriving.pop(0))
        _demote(queues, limits)
        _serve(now, queues, gpus, order)
    return jobs


def _instants(
    now: int, arriving: list[Naive], queues: list[list[Naive]], limits: tuple[int, ...]
) -> list[int]:
    instants = [job.submit for job in arriving[:1]]
    for level, queue in enumerate(queues):
        for job in (job for job in queue if job.running):
            instants.append(now + job.duration - job.done)
            if level < len(limits):
                instants.append(now + -(-(limits[level] - job.done * job.gpus) // job.gpus))
    return instants


def _finish(now: int, queues: list[list[Naive]]) -> None:
    for queue in queues:
        for job in [job for job in queue if job.running and job.done == job.duration]:
            job.finish, job.running = now, False
            queue.remove(job)


def _demote(queues: list[list[Naive]], limits: tuple[int, ...]) -> None:
    """One level a pass, who crossed first within this second goes first."""
    while True:
        crossed = [
            (Fraction(limit, job.gpus) - job.done, job.number, job, level)
            for level, limit in enumerate(limits)
            for job in queues[level]
            if job.done * job.gpus >= limit
        ]
        if not crossed:
            return
        for _, _, job, level in sorted(crossed):
            queues[level].remove(job)
            queues[level + 1].append(job)


def _serve(now: int, queues: list[list[Naive]], gpus: int, order: str) -> None:
    left = gpus
    for queue in queues:
        if order == "first-start":
            queue.sort(key=lambda job: (job.start < 0, job.start, job.number))
        for job in queue:
            fits = job.gpus <= left
            left -= job.gpus if fits else 0
            job.preemptions += job.running and not fits
            job.running = fits
            if fits and job.start < 0:
                job.start = now
        if order == "requeue":
            queue.sort(key=lambda job: not job.running)


NaiveKey = Callable[[Naive, int], tuple[int, ...]]  # of a job, now
KEYS: dict[str, NaiveKey] = {
    "sf": lambda job, now: (job.gpus,),
    "lf": lambda job, now: (-job.gpus,),
    "srtf": lambda job, now: (job.duration - job.done,),
    "srsf": lambda job, now: ((job.duration - job.done) * job.gpus,),
}


def _late(job: Naive, now: int) -> bool:
    return now + job.duration - job.done > job.submit + job.deadline


def _settled(job: Naive) -> tuple[int, ...]:
    return (0,) if job.deadline and job.running else (2,) if job.running else (3,)


WITH_DEADLINES: dict[str, NaiveKey] = {
    "edf": lambda job, now: (
        (1, job.submit + job.deadline) if job.deadline and not job.running else _settled(job)
    ),
    "edf-preemptive": lambda job, now: (
        (1, job.submit + job.deadline) if job.deadline else _settled(job)
    ),
    "genie": lambda job, now: (
        (1, job.submit + job.deadline - (job.duration - job.done))
        if job.deadline and not job.running
        else _settled(job)
    ),
    "3sigma": lambda job, now: (
        (1, job.gpus * (job.duration - job.done))
        if job.deadline and not job.running and not _late(job, now)
        else _settled(job)
    ),
}


def naive_by_key(rows: Sequence[Row | Due], gpus: int, key: NaiveKey) -> list[Naive]:
    """Likewise: at every arrival and every end, everybody by key; who fits into the rest runs."""
    jobs = [Naive(number, *row) for number, row in enumerate(sorted(rows, key=lambda r: r[0]))]
    arriving, now = list(jobs), 0
    queue: list[Naive] = []
    while arriving or queue:
        then = min(_instants(now, arriving, [queue], ()))
        for job in (job for job in queue if job.running):
            job.done += then - now
        now = then
        _finish(now, [queue])
        while arriving and arriving[0].submit == now:
            queue.append(arriving.pop(0))
        queue.sort(key=lambda job: (key(job, now), job.number))
        _serve(now, [queue], gpus, "")
    return jobs


def naive_gittins(
    rows: list[Row], gpus: int, limits: tuple[int, ...], known: ServiceDistribution
) -> list[Naive]:
    """Likewise: in levels, in each but the last by the index of what a job has had, its quantum the
    bound of the level; ties by submission."""
    jobs = [Naive(number, *row) for number, row in enumerate(sorted(rows, key=lambda r: r[0]))]
    arriving, now = list(jobs), 0
    queues: list[list[Naive]] = [[] for _ in range(len(limits) + 1)]
    while arriving or any(queues):
        then = min(_instants(now, arriving, queues, limits))
        for job in (job for queue in queues for job in queue if job.running):
            job.done += then - now
        now = then
        _finish(now, queues)
        while arriving and arriving[0].submit == now:
            queues[0].append(arriving.pop(0))
        _demote(queues, limits)
        for queue, limit in zip(queues, limits, strict=False):
            index = {job.number: known.fixed_index(job.done * job.gpus, limit) for job in queue}
            queue.sort(key=lambda job: (-index[job.number], job.submit, job.number))
        _serve(now, queues, gpus, "requeue")
    return jobs


ROWS = st.lists(
    st.tuples(st.integers(0, 120), st.integers(1, 6), st.integers(1, 150)),
    min_size=1,
    max_size=14,
)
LIMITS = st.sets(st.integers(1, 300), min_size=1, max_size=3).map(lambda s: tuple(sorted(s)))


@given(
    rows=ROWS,
    nodes=st.integers(3, 5),
    limits=LIMITS,
    order=st.sampled_from(["requeue", "first-start"]),
)
@settings(max_examples=times(100, 300), deadline=None)
def test_las_gives_every_job_the_history_of_the_naive_scheduler(
    rows: list[Row], nodes: int, limits: tuple[int, ...], order: str
) -> None:
    words = ",".join(map(str, limits))
    found = histories(rows, nodes, "tiresias-las", f"order={order}", f"thresholds={words}")
    assert found == [
        (job.start, job.finish, job.preemptions)
        for job in naive_las(rows, nodes * 2, limits, order)
    ]


@given(rows=ROWS, nodes=st.integers(3, 5), policy=st.sampled_from(sorted(KEYS)))
@settings(max_examples=times(100, 300), deadline=None)
def test_orders_by_a_key_give_every_job_the_history_of_the_naive_scheduler(
    rows: list[Row], nodes: int, policy: str
) -> None:
    assert histories(rows, nodes, policy) == [
        (job.start, job.finish, job.preemptions)
        for job in naive_by_key(rows, nodes * 2, KEYS[policy])
    ]


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 120), st.integers(1, 6), st.integers(1, 150),
            st.sampled_from([0, 0, 20, 80, 200, 400]),
        ),
        min_size=1,
        max_size=14,
    ),
    nodes=st.integers(3, 5),
    policy=st.sampled_from(sorted(WITH_DEADLINES)),
)  # fmt: skip
@settings(max_examples=times(100, 300), deadline=None)
def test_orders_by_deadline_give_every_job_the_history_of_the_naive_scheduler(
    rows: list[Due], nodes: int, policy: str
) -> None:
    found = histories(rows, nodes, policy)
    assert found == [
        (job.start, job.finish, job.preemptions)
        for job in naive_by_key(rows, nodes * 2, WITH_DEADLINES[policy])
    ]


@given(
    rows=ROWS,
    nodes=st.integers(3, 5),
    limits=LIMITS,
    services=st.lists(st.integers(1, 400), min_size=1, max_size=8),
)
@settings(max_examples=times(100, 300), deadline=None)
def test_gittins_gives_every_job_the_history_of_the_naive_scheduler(
    rows: list[Row], nodes: int, limits: tuple[int, ...], services: list[int]
) -> None:
    words = ",".join(map(str, limits))
    with NamedTemporaryFile("w", suffix=".csv") as file:
        file.write("\n".join(map(str, services)))
        file.flush()
        found = histories(
            rows, nodes, "tiresias-gittins", f"thresholds={words}", f"history={file.name}"
        )
    expected = naive_gittins(rows, nodes * 2, limits, ServiceDistribution(services))
    assert found == [(job.start, job.finish, job.preemptions) for job in expected]


def histories(
    rows: Sequence[Row | Due], nodes: int, policy: str, *words: str
) -> list[tuple[float, ...]]:
    """Start, finish and preemptions of every job, on nodes of two GPUs."""
    (chosen,) = read_settings([policy], ["place=count", "preempt=free", *words])
    trace = Trace.of(
        "random",
        [
            TraceJob(job_id=str(number), submit_time_s=s, num_gpus=g, duration_s=d, **_due(*due))
            for number, (s, g, d, *due) in enumerate(rows)
        ],
    )
    spec = ClusterSpec(name="n", groups=(NodeGroup(count=nodes, gpus=2),), typed=False)
    return [(o.start_s, o.finish_s, o.preemptions) for o in replay(trace, spec, chosen).outcomes]


def _due(deadline: int = 0) -> dict[str, Any]:
    return {"kind": "strict", "deadline_s": deadline} if deadline else {}
