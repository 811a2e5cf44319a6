"""AFS: the next GPUs go to the job for which the sum of the completion times gains most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId
from dlq_master.model.resources import Request
from dlq_master.policy.size.marginal_gain import grow
from dlq_master.policy.size.opportunistic import grow as grow_shrink
from dlq_master.policy.size.sizing import Candidate, Grow
from support.builders import a_waiting_job


def elastic(
    number: int, left_s: float, *sizes: int, speeds: tuple[float, ...] = (), held: int = 0
) -> Candidate:
    """A job that asks for its base, on which `left_s` are left of it."""
    request = Request(gpus=sizes[0], sizes=sizes)
    return Candidate(a_waiting_job(number, request=request, speeds=speeds), held, left_s)


def given_out(
    left: int, *candidates: Candidate, short: bool = False, rule: Grow = grow
) -> list[int]:
    sizes = rule(candidates, left, short)
    return [sizes.get(it.job.job_id, it.base) for it in candidates]


def test_aryl_table_2_the_shorter_job_leads_by_two_workers_at_most() -> None:
    """A and B (2 to 6 workers) have 150 s and 60 s left on 2; 4 of 8 workers are left.

    Gains as (p'-p)/p of the shorter, B, and (p'-p)/p' of A: 1/2 > 1/3: B 3.  1/3 = 1/3: B 4.
    1/4 < 1/3: A 3.  1/4 = 1/4: B 5.
    """
    a, b = elastic(1, 150.0, 2, 3, 4, 5, 6), elastic(2, 60.0, 2, 3, 4, 5, 6)
    assert [given_out(left, a, b) for left in range(5)] == [[2, 2], [2, 3], [2, 4], [3, 4], [3, 5]]


def test_aryl_table_4_a_job_gets_no_more_than_it_can_use() -> None:
    a, b = elastic(1, 150.0, 2, 3), elastic(2, 60.0, 2, 3, 4, 5, 6)
    assert given_out(4, a, b) == [3, 5]


def test_a_job_that_scales_badly_gets_less_though_it_is_shorter() -> None:
    bad = elastic(1, 50.0, 1, 2, 3, speeds=(1.0, 1.2, 1.3))
    good = elastic(2, 80.0, 1, 2, 3)
    assert given_out(1, bad, good) == [1, 2]
    assert given_out(3, bad, good) == [2, 3]


def test_a_step_that_gains_nothing_is_not_taken() -> None:
    flat = elastic(1, 50.0, 1, 2, 3, speeds=(1.0, 1.5, 1.5))
    assert given_out(5, flat) == [2]


def test_a_step_of_several_gpus_counts_by_the_gain_of_each_and_waits_for_no_one() -> None:
    wide, narrow = elastic(1, 50.0, 4, 8), elastic(2, 90.0, 1, 2)
    assert given_out(3, wide, narrow) == [4, 2]
    assert given_out(4, wide, narrow) == [4, 2], "narrow gains 1/2 a GPU, wide 1/4"
    assert given_out(5, wide, narrow) == [8, 2]


def test_of_jobs_whose_ends_are_equal_or_unknown_the_first_in_line_leads() -> None:
    ones = [elastic(number, float("inf"), 1, 2) for number in (1, 2, 3)]
    assert given_out(2, *ones) == [2, 2, 1]


JOBS = st.lists(
    st.tuples(st.floats(1, 1000), st.integers(1, 3), st.integers(1, 6), st.floats(0.3, 1.0)),
    min_size=1,
    max_size=6,
).map(
    lambda rows: [
        elastic(
            number,
            left_s,
            *range(base, base * (more + 1), base),
            speeds=tuple((k + 1) ** power for k in range(more)),
        )
        for number, (left_s, base, more, power) in enumerate(rows, start=1)
    ]
)


@given(jobs=JOBS, left=st.integers(0, 20))
def test_for_two_jobs_every_step_is_the_better_of_the_two(jobs: list[Candidate], left: int) -> None:
    """Against the sum of completion times as the paper has it: who ends first keeps its share until
    then; if it had the step, the other has the step from then on."""
    jobs = [job for job in jobs if job.base == jobs[0].base][:2]
    sizes = {job.job.job_id: job.base for job in jobs}
    for _ in range(left // jobs[0].base):
        ways: dict[JobId, float] = {}
        for job in jobs:
            if job.next_size(sizes[job.job.job_id]) is not None:
                ways[job.job.job_id] = _sum_s(jobs, sizes, job)
        if not ways:
            break
        found = grow([_from(job, sizes) for job in jobs], jobs[0].base, False)
        (winner,) = [n for n in ways if found.get(n, 0) > sizes[n]]
        assert ways[winner] <= min(ways.values()) * (1 + 1e-6)
        sizes[winner] = found[winner]


def _from(job: Candidate, sizes: dict[JobId, int]) -> Candidate:
    """The same job as if its present size were its base."""
    request, size = job.job.request, sizes[job.job.job_id]
    at = request.sizes.index(size)
    rest = Request(gpus=size, sizes=request.sizes[at:])
    speeds = tuple(job.job.speed_on(other) / job.job.speed_on(size) for other in rest.sizes)
    left_s = job.takes_s(size)
    return Candidate(job.job._replace(request=rest, speeds=speeds), 0, left_s)


def _sum_s(jobs: list[Candidate], sizes: dict[JobId, int], taker: Candidate) -> float:
    first = min(jobs, key=lambda job: job.takes_s(sizes[job.job.job_id]))
    size = {job.job.job_id: sizes[job.job.job_id] for job in jobs}
    size[taker.job.job_id] = taker.next_size(size[taker.job.job_id]) or 0
    end_s = first.takes_s(size[first.job.job_id])
    total_s = end_s
    for job in jobs:
        if job is first:
            continue
        now = job.job.speed_on(size[job.job.job_id])
        if taker is first:
            step = job.next_size(sizes[job.job.job_id])
            then = job.job.speed_on(step) if step is not None else now
            total_s += end_s + (job.left_s - now * end_s) / then
        else:
            total_s += job.left_s / now
    return total_s


@given(
    jobs=JOBS,
    left=st.integers(0, 30),
    short=st.booleans(),
    rule=st.sampled_from([grow, grow_shrink]),
)
def test_sizes_are_allowed_and_within_what_is_left(
    jobs: list[Candidate], left: int, short: bool, rule: Grow
) -> None:
    sizes = rule(jobs, left, short)
    used = 0
    for job in jobs:
        size = sizes.get(job.job.job_id, job.base)
        assert size in job.job.request.sizes
        used += size - job.base
    assert used <= left
    assert rule(jobs, left, short) == sizes


def test_grow_shrink_fills_in_order_and_only_while_nobody_waits() -> None:
    a, b = elastic(1, 1.0, 2, 3, 4, held=3), elastic(2, 1.0, 2, 4, 6, held=2)
    assert given_out(5, a, b, rule=grow_shrink) == [4, 4]
    assert given_out(5, a, b, short=True, rule=grow_shrink) == [3, 2]
    assert given_out(0, a, b, short=True, rule=grow_shrink) == [2, 2]
