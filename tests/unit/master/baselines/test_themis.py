"""themis: finish-time fairness, by hand."""

from __future__ import annotations

from itertools import combinations
from math import log, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_baselines.themis import Auction, bid, in_order
from dlq_master.model.view import View
from dlq_master.policy.registry.settings import PolicyError
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster
from support.builders import World, a_job

TERM_S = 300.0


def world(*jobs: tuple[int, float | None], submit_s: float = 0.0) -> World:
    """Waiting jobs by GPUs and run time."""
    here = World("themis", nodes=4)
    here.now_s = submit_s
    for number, (gpus, total_s) in enumerate(jobs, start=1):
        here.submit(a_job(number, gpus, duration_estimate_s=total_s))
    return here


def replayed(fairness: str, *rows: tuple[int, int, int]) -> list[ReplayOutcome]:
    """Submit, GPUs and duration of jobs on two GPUs, in leases of 100 s that cost nothing."""
    settings = ["term_s=100", "save_s=0", "resume_s=0", f"fairness={fairness}"]
    (chosen,) = read_settings(["themis"], settings)
    jobs = [
        TraceJob(job_id="ABC"[at], submit_time_s=submit_s, num_gpus=gpus, duration_s=duration_s)
        for at, (submit_s, gpus, duration_s) in enumerate(rows)
    ]
    found = replay(Trace.of("fair", jobs), read_cluster("1x2"), chosen)
    return sorted(found.outcomes, key=lambda outcome: outcome.job.job_id)


def test_jobs_that_cannot_share_take_turns_by_what_waiting_has_cost_them() -> None:
    """A (400 s), B (100 s), C (300 s) on both GPUs, f = 1/2.

    t=0: all 1, so the first two bid; B gains log 2, A log 5/4: B, which ends at 100. From then on
    one of two bids: t=100: A 500/400, C 400/300: C.  t=200: A 600/400, C 400/300: A.  t=300: A
    600/400, C 500/300: C.  t=400: A 700/400, C 500/300: A.  t=500: A 700/400, C 600/300: C, which
    ends at 600.
    """
    found = replayed("0.5", (0, 2, 400), (0, 2, 100), (0, 2, 300))
    spans = [[(span[0], span[1]) for span in outcome.spans] for outcome in found]
    assert spans == [
        [(200, 300), (400, 500), (600, 800)],
        [(0, 100)],
        [(100, 200), (300, 400), (500, 600)],
    ]
    assert [outcome.jct_s / outcome.job.duration_s for outcome in found] == [2.0, 1.0, 2.0]


def test_with_f_0_all_bid_and_what_is_gained_decides_not_who_is_worst_off() -> None:
    """What has come and what is left of C is always less than of A: C gains more until it ends."""
    found = replayed("0", (0, 2, 400), (0, 2, 100), (0, 2, 300))
    assert [outcome.finish_s for outcome in found] == [800, 100, 400]


def test_what_a_job_bids() -> None:
    here = world((2, 600.0))
    here.now_s = 300.0
    made = bid(View(here.cluster, here.now_s), here.job(1))
    assert made is not None
    assert made.rho == pytest.approx((300 + 600) / 600)
    assert made.value == pytest.approx(log((900 + TERM_S) / 900) / 2)


def test_running_keeps_rho_and_waiting_raises_it() -> None:
    here = world((8, 600.0), (32, 600.0)).decide()
    rhos = []
    for now_s in (0.0, 150.0, 290.0):
        view = View(here.cluster, now_s)
        rhos.append([bid(view, here.job(number)).rho for number in (1, 2)])  # type: ignore[union-attr]
    assert [rho for rho, _ in rhos] == [1.0, 1.0, 1.0]
    assert [rho for _, rho in rhos] == pytest.approx([1.0, 1.25, 1 + 290 / 600])


def test_the_worst_off_bid_and_the_others_follow_by_rho() -> None:
    here = world((1, 500.0), (1, 400.0), (1, 300.0), (1, None), (1, 200.0), (1, 100.0))
    here.settle_moves().now_s = 600.0
    jobs = [here.job(number) for number in range(1, 7)]
    order = in_order(View(here.cluster, here.now_s), Auction(fairness=0.6), jobs)
    # Of five with a run time two bid (6, 5: the shortest gains most); then 3, 2, 1; then the
    # unknown.
    assert [job.job_id for job in order] == [6, 5, 3, 2, 1, 4]


def test_a_job_without_work_comes_first() -> None:
    here = world((1, 100.0), (1, 0.0))
    jobs = [here.job(1), here.job(2)]
    order = in_order(View(here.cluster, 50.0), Auction(), jobs)
    assert [job.job_id for job in order] == [2, 1]


@given(
    jobs=st.lists(st.tuples(st.integers(1, 6), st.integers(50, 5000)), min_size=1, max_size=7),
    gpus=st.integers(1, 12),
    now_s=st.integers(0, 2000),
)
def test_the_winners_miss_the_best_product_of_values_by_less_than_one_job(
    jobs: list[tuple[int, int]], gpus: int, now_s: int
) -> None:
    """Against all sets of winners: product of 1/rho, with rho one lease later for who gets
    nothing.
    """
    here = world(*((width, float(total)) for width, total in jobs))
    here.settle_moves().now_s = float(now_s)
    view = View(here.cluster, here.now_s)
    every = [here.job(number) for number in range(1, len(jobs) + 1)]
    rho = {job.job_id: bid(view, job).rho for job in every}  # type: ignore[union-attr]

    def value(winners: set[int]) -> float:
        later = {job.job_id: TERM_S / (job.duration_estimate_s or 1.0) for job in every}
        return prod(1 / (rho[n] + (0 if n in winners else later[n])) for n in rho)

    best = max(
        value({int(n) for n in winners})
        for size in range(len(every) + 1)
        for winners in combinations(rho, size)
        if sum(here.job(n).request.gpus for n in winners) <= gpus
    )
    left, winners = gpus, set[int]()
    for job in in_order(view, Auction(fairness=0.0), every):
        if job.request.gpus <= left:
            left -= job.request.gpus
            winners.add(job.job_id)
    most = max((value({int(n)}) / value(set()) for n in rho), default=1.0)
    assert value(winners) * most >= best * (1 - 1e-9)


@pytest.mark.parametrize("text", ["-0.1", "1.1", "much"])
def test_the_knob_is_a_share(text: str) -> None:
    with pytest.raises(PolicyError, match=f"setting fairness={text}"):
        World("themis", fairness=text)
