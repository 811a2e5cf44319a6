"""Who ends soonest is filled first, and the forecast that a share is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.ids import JobId
from dlq_master.model.resources import Request
from dlq_master.policy.size import fill, knapsack, marginal_gain
from dlq_master.policy.size.sizing import Candidate
from support.builders import a_waiting_job


def elastic(
    number: int, least: int, most: int, fastest_s: float, *, held: int = 0, price_s: float = 0.0
) -> Candidate:
    """As in Aryl's tables: it asks for its most, on which it takes `fastest_s`."""
    request = Request(gpus=most, sizes=tuple(range(least, most + 1)))
    return Candidate(a_waiting_job(number, request=request), held, fastest_s, price_s)


A2, A4, B = elastic(1, 2, 6, 50.0), elastic(1, 2, 3, 100.0), elastic(2, 2, 6, 20.0)


@pytest.mark.parametrize(
    ("jobs", "sizes", "average_s"),
    [
        ((A2, B), (6, 2), 51.67),
        ((A2, B), (2, 6), 41.67),
        ((A2, B), (4, 4), 45.0),
        ((A4, B), (3, 5), 62.0),
        ((A4, B), (2, 6), 63.33),
    ],
)
def test_tables_2_to_4_are_forecast(
    jobs: tuple[Candidate, Candidate], sizes: tuple[int, int], average_s: float
) -> None:
    """8 workers; when one ends the other grows as far as it can."""
    named = dict(zip((JobId(1), JobId(2)), sizes, strict=True))
    assert fill.total_s(jobs, named, 4) / 2 == pytest.approx(average_s, abs=0.005)


def test_the_rollout_has_the_best_split_of_both_tables() -> None:
    assert fill.rollout([A2, B], 4, False) == {1: 2, 2: 6}
    assert fill.rollout([A4, B], 4, False) == {1: 3, 2: 5}
    assert fill.least_work([A4, B], 4, False) == {1: 2, 2: 6}, "which least work alone has not"


def test_whose_run_time_nobody_knows_comes_last() -> None:
    unknown = elastic(3, 1, 4, inf)
    for rule in (fill.least_work, fill.rollout):
        assert rule([unknown, A2, B], 9, False) == {1: 6, 2: 6, 3: 2}
        assert rule([unknown], 2, False) == {3: 3}


def test_nobody_is_resized_for_less_than_it_costs() -> None:
    """B would gain 1 s of 21 by taking a GPU of A, which would cost each of them 5 s."""
    holds = [
        elastic(1, 2, 6, 50.0, held=3, price_s=5.0),
        elastic(2, 2, 6, 17.5, held=5, price_s=5.0),
    ]
    assert fill.rollout(holds, 4, False) == {1: 3, 2: 5}
    free = [one._replace(price_s=0.0) for one in holds]
    assert fill.rollout(free, 4, False) == {1: 2, 2: 6}


def test_jobs_that_gain_less_and_less_share_as_by_afs() -> None:
    """Of the other shares none gives the shorter jobs a little more, and leaves no job behind."""
    saturating = (1.0, 1.7, 2.2, 2.5, 2.7, 2.8)
    request = Request(gpus=1, sizes=(1, 2, 3, 4, 5, 6))
    jobs = [
        Candidate(a_waiting_job(at, request=request, speeds=saturating), 0, 100.0 + 7.0 * at)
        for at in range(1, 5)
    ]
    shared = fill.rollout(jobs, 6, False)
    assert shared == marginal_gain.grow(jobs, 6, False) == {1: 3, 2: 3, 3: 2, 4: 2}
    for other in (fill.least_work(jobs, 6, False), knapsack.packed(jobs, 6).sizes):
        assert fill.total_s(jobs, shared, 6) < fill.total_s(jobs, other, 6)


def test_of_many_jobs_those_first_who_end_first_at_their_largest_is_tried_too() -> None:
    """With more jobs than are tried one by one; neither least work nor the knapsack has this
    choice.
    """
    ranges = [(2, 6), (2, 6), (1, 4), (2, 6), (2, 3), (3, 5), (2, 3), (1, 5), (1, 3), (3, 7)]
    lasts = [21.0, 8.0, 25.0, 13.0, 17.0, 39.0, 15.0, 10.0, 29.0, 35.0]
    jobs = [
        elastic(number, *sizes, last)
        for number, (sizes, last) in enumerate(zip(ranges, lasts, strict=True), 1)
    ]
    quickest = sorted(jobs, key=lambda one: one.takes_s(one.job.request.sizes[-1]))
    assert fill.rollout(jobs, 4, False) == fill.filled(quickest, 4)
    assert fill.rollout(jobs, 4, False) != fill.least_work(jobs, 4, False)


# --- whatever the jobs ----------------------------------------------------------------------------


@st.composite
def shares(draw: st.DrawFn) -> tuple[list[Candidate], dict[JobId, int], int]:
    """Jobs, sizes that they may have at first, and the GPUs beyond their bases."""
    made = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        least = draw(st.integers(1, 3))
        most = least + draw(st.integers(1, 4))
        made.append(elastic(number, least, most, float(draw(st.integers(1, 40)))))
    left = draw(st.integers(0, 10))
    sizes, spare = {}, left
    for one in made:
        extra = draw(st.integers(0, min(spare, one.job.request.sizes[-1] - one.base)))
        spare -= extra
        sizes[one.job.job_id] = one.base + extra
    return made, sizes, left


def told_step_by_step(ordered: Sequence[Candidate], sizes: dict[JobId, int], left: int) -> float:
    """The same forecast, everybody looked at after every end."""
    gpus = left + sum(one.base for one in ordered)
    work = {one.job.job_id: one.left_s * one.job.request.gpus for one in ordered}
    alive, now_s, total_s = list(ordered), 0.0, 0.0
    while alive:
        took_s = min(work[one.job.job_id] / sizes[one.job.job_id] for one in alive)
        now_s += took_s
        for one in alive:
            work[one.job.job_id] -= took_s * sizes[one.job.job_id]
        total_s += now_s * sum(work[one.job.job_id] <= 1e-6 for one in alive)
        alive = [one for one in alive if work[one.job.job_id] > 1e-6]
        spare = gpus - sum(one.base for one in alive)
        for one in alive:
            size = min(one.job.request.sizes[-1], one.base + spare)
            spare -= size - one.base
            sizes = {**sizes, one.job.job_id: size}
    return total_s


@given(shares())
def test_the_forecast_is_what_happens_step_by_step(
    given_: tuple[list[Candidate], dict[JobId, int], int],
) -> None:
    ordered, sizes, left = given_
    assert fill.total_s(ordered, sizes, left) == pytest.approx(
        told_step_by_step(ordered, sizes, left), rel=1e-6
    )


@given(shares())
def test_the_rollout_is_never_worse_than_what_it_tries(
    given_: tuple[list[Candidate], dict[JobId, int], int],
) -> None:
    jobs, _, left = given_
    ordered = sorted(jobs, key=fill.work_gpu_s)
    chosen = fill.rollout(jobs, left, False)
    assert sum(chosen[one.job.job_id] - one.base for one in jobs) <= left
    assert all(chosen[one.job.job_id] in one.job.request.sizes for one in jobs)
    for other in (fill.least_work(jobs, left, False), knapsack.packed(jobs, left).sizes):
        mine, theirs = (fill.total_s(ordered, sizes, left) for sizes in (chosen, other))
        assert mine <= theirs + 1e-6


@given(st.data())
def test_two_jobs_share_as_appendix_c_says(data: st.DataObject) -> None:
    """p has the smaller most. C >= 2 most(p): p gets its most; else whoever has less work does.
    That holds where either can have its most although the other has its least."""
    least, more, fastest_s = st.integers(1, 3), st.integers(1, 5), st.integers(1, 40)
    jobs = []
    for number in (1, 2):
        low = data.draw(least)
        jobs.append(elastic(number, low, low + data.draw(more), float(data.draw(fastest_s))))
    p, q = sorted(jobs, key=lambda one: one.job.request.sizes[-1])
    most_p, most_q = p.job.request.sizes[-1], q.job.request.sizes[-1]
    gpus = data.draw(
        st.integers(max(most_p + q.base, most_q + p.base), most_p + most_q - 1), label="GPUs"
    )
    left = gpus - p.base - q.base
    first = p if gpus >= 2 * most_p or fill.work_gpu_s(p) <= fill.work_gpu_s(q) else q
    other = q if first is p else p
    most = first.job.request.sizes[-1]
    rule = {first.job.job_id: most, other.job.job_id: gpus - most}
    best = min(
        told_step_by_step(jobs, {p.job.job_id: size, q.job.job_id: gpus - size}, left)
        for size in p.job.request.sizes
        if gpus - size in q.job.request.sizes
    )
    assert told_step_by_step(jobs, rule, left) == pytest.approx(best)
    chosen = fill.rollout(jobs, left, False)
    assert told_step_by_step(jobs, chosen, left) == pytest.approx(best)


@st.composite
def many_candidates(draw: st.DrawFn) -> list[Candidate]:
    """Some gain nothing from their last GPUs, of some nobody knows the end."""
    found = []
    for number in range(1, draw(st.integers(1, 10)) + 1):
        sizes = tuple(sorted(draw(st.sets(st.integers(1, 8), min_size=1, max_size=4))))
        request = Request(gpus=sizes[0], sizes=sizes)
        speeds: tuple[float, ...] = ()
        if draw(st.booleans()):
            gains = [draw(st.sampled_from([-0.1, 0.0, 0.3, 0.9])) for _ in sizes[1:]]
            speeds = tuple(1.0 + sum(gains[:at]) for at in range(len(sizes)))
        job = a_waiting_job(number, request=request, speeds=speeds)
        held = draw(st.sampled_from([0, *sizes]))
        left_s = draw(st.sampled_from([0.0, 1.0, 50.0, 900.0, inf]))
        found.append(Candidate(job, held, left_s, draw(st.sampled_from([0.0, 60.0]))))
    return found


@given(candidates=many_candidates(), more=st.integers(0, 2))
def test_where_gpus_are_enough_for_all_the_shares_need_not_be_compared(
    candidates: list[Candidate], more: int
) -> None:
    left = more + sum(one.job.request.sizes[-1] - one.base for one in candidates)
    found = fill.rollout(candidates, left, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fill, "_enough_for_all", lambda *_: False)
        assert fill.rollout(candidates, left, False) == found


def test_nothing_is_forecast_where_gpus_are_enough_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "_shares", None)
    assert fill.rollout([A2, B], 8, False) == {1: 6, 2: 6}
    with pytest.raises(TypeError):
        fill.rollout([A2, B], 7, False)
