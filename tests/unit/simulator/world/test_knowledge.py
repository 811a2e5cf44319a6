"""What policies are told of run times: nothing, an estimate after a trial, or the truth."""

from __future__ import annotations

from math import fsum, sqrt

import pytest

from dlq_master.policy.admit.estimates import on_nodes
from dlq_master.policy.policy import Know
from dlq_simulator.errors import UsageError
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.knowledge import Knowledge


def a_job(name: str, duration: float = 1000, submit: float = 0, **more: object) -> TraceJob:
    values = {"job_id": name, "submit_time_s": submit, "num_gpus": 1, "duration_s": duration}
    return TraceJob(**{**values, **more})  # type: ignore[arg-type]  # a builder


def ends(jobs: list[TraceJob], *words: str, policy: str = "srtf", seed: int = 0) -> list[float]:
    (chosen,) = read_settings([policy], ["preempt=free", *words], seed)
    outcomes = replay(Trace.of("t", jobs), read_cluster("1x1"), chosen).outcomes
    return [outcome.finish_s for outcome in outcomes]


def test_estimates_scatter_around_the_run_time_as_the_noise_says() -> None:
    known = Knowledge(know=Know.PROFILED, noise=0.2, seed=3)
    factors = [known.after_trial(a_job(str(n))) / 1000 for n in range(4000)]
    mean = fsum(factors) / len(factors)
    deviation = sqrt(fsum((f - mean) ** 2 for f in factors) / len(factors))
    assert mean == pytest.approx(1.0, abs=0.01)
    assert deviation == pytest.approx(0.2, abs=0.01)


def test_an_estimate_stays_above_a_tenth_however_wide_the_noise() -> None:
    wild = Knowledge(know=Know.PROFILED, noise=50.0)
    assert min(wild.after_trial(a_job(str(n))) for n in range(100)) == 100.0
    assert Knowledge(know=Know.PROFILED, noise=0.0).after_trial(a_job("1")) == 1000.0


def test_an_estimate_is_of_the_seed_and_the_job_alone() -> None:
    first, again = (Knowledge(know=Know.PROFILED, seed=7).after_trial(a_job("x")) for _ in range(2))
    assert first == again
    assert Knowledge(know=Know.PROFILED, seed=8).after_trial(a_job("x")) != first
    assert Knowledge(know=Know.PROFILED, seed=7).after_trial(a_job("y")) != first


def test_who_knows_nothing_goes_by_arrival() -> None:
    long, short = a_job("long"), a_job("short", 10, 1)
    assert ends([long, short], "know=known") == [1010, 11]
    assert ends([long, short], "know=unknown") == [1000, 1010]


def test_an_estimate_comes_after_the_trial_and_the_trial_is_work_done() -> None:
    # Both are tried first, 100 s each; then the shorter one has 50 s left and the other 900.
    jobs = [a_job("long"), a_job("short", 150, 1)]
    assert ends(jobs, "know=profiled", "profile_s=100", "noise=0") == [1150, 250]


def test_a_job_that_ends_within_its_trial_is_never_estimated() -> None:
    assert ends([a_job("a", 80), a_job("b", 100, 1)], "know=profiled", "profile_s=100") == [80, 180]


def test_a_trial_of_no_time_is_over_at_the_first_start() -> None:
    jobs = [a_job("long"), a_job("short", 150, 1)]
    assert ends(jobs, "know=profiled", "profile_s=0", "noise=0") == [1150, 151]


def test_the_seed_changes_what_is_profiled_and_nothing_else() -> None:
    jobs = [a_job(str(n), 300 + 10 * n, n) for n in range(30)]
    noisy = ("know=profiled", "profile_s=100", "noise=0.4")
    assert ends(jobs, *noisy, seed=1) == ends(jobs, *noisy, seed=1)
    assert ends(jobs, *noisy, seed=1) != ends(jobs, *noisy, seed=2)
    assert ends(jobs, "know=known", seed=1) == ends(jobs, "know=known", seed=2)


def test_what_is_left_is_known_in_the_time_that_it_takes_where_it_runs() -> None:
    """A spread job of 100 s takes 400 s: another of 300 s is the shorter one, and goes first."""
    (chosen,) = read_settings(["srtf"], ["preempt=free", "place=spread", "overlap=1"])
    jobs = [
        a_job("one", 50),
        a_job("spread", 100, num_gpus=2, rho=3.0),
        a_job("other", 300, 10, num_gpus=3),
    ]
    _, spread, other = replay(Trace.of("t", jobs), read_cluster("2x2"), chosen).outcomes
    assert other.finish_s == 310
    assert spread.preemptions == 1


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ("srtf", "noise=-1"),
        ("srtf", "profile_s=soon"),
        ("fifo", "noise=0.2"),
        ("fifo", "know=known"),
    ],
)
def test_a_wrong_setting_is_refused(policy: str, word: str) -> None:
    with pytest.raises(UsageError):
        read_settings([policy], [word])


def tried(jobs: list[TraceJob], *words: str, nodes: str = "12x8") -> list[ReplayOutcome]:
    """Under a policy that makes trials, which tell the truth."""
    told = ["know=profiled", "noise=0", "margin=0", *words]
    (chosen,) = read_settings(["chronus"], told)
    return list(replay(Trace.of("t", jobs), read_cluster(nodes), chosen).outcomes)


def test_a_trial_at_its_own_size_is_ordinary_progress() -> None:
    (short, long) = tried([a_job("short", 200), a_job("long", 2000)])
    assert (short.finish_s, short.ended_in_trial, short.trial_start_s) == (200, True, 0)
    assert (long.finish_s, long.ended_in_trial, long.preemptions) == (2000, False, 0)


def test_a_trial_at_a_reduced_size_is_time_and_no_progress() -> None:
    """300 s on one node, 300 s on two; then its 2000 s on four, without a resume: nothing was
    saved.
    """
    (wide,) = tried([a_job("wide", 2000, num_gpus=32)])
    assert wide.finish_s == 600 + 2000
    assert (wide.overhead_s, wide.queue_s, wide.preemptions) == (600, 0, 0)
    assert wide.overhead_gpu_s == 300 * 8 + 300 * 16
    assert [(span.begin_s, span.end_s, span.gpus) for span in wide.spans] == [
        (0, 300, 8),
        (300, 600, 16),
        (600, 2600, 32),
    ]


@pytest.mark.parametrize("rho", [None, 0.0, 0.7])
def test_both_trials_together_tell_the_run_time_on_all_nodes(rho: float | None) -> None:
    known = Knowledge(know=Know.PROFILED, noise=0.0)
    one_s, two_s = known.paces(a_job("w", 1000, rho=rho), nodes=8)
    assert on_nodes(one_s, two_s, 8) == pytest.approx(1000)
    assert two_s / one_s == pytest.approx(1.2 if rho is None else 1 + rho)


def test_jobs_of_a_user_and_a_model_that_ran_alike_are_not_tried() -> None:
    jobs = [a_job(str(n), 400 + n, 1000 * n, user="ada", model="bert") for n in range(6)]
    outcomes = tried([*jobs, a_job("other", 400, 9000, user="ada", model="resnet")])
    assert [outcome.trial_start_s is None for outcome in outcomes] == [False] * 5 + [True, False]


def test_submission_control_delays_who_sends_too_much_and_nobody_else() -> None:
    burst = [a_job(str(n), 900, 0, num_gpus=8, user="ada") for n in range(6)]
    others = [a_job(f"b{n}", 100, 1, num_gpus=8, user="bob") for n in range(2)]
    free = tried([*burst, *others])
    limited = tried([*burst, *others], "submit_gpus=24")
    assert [it.trial_start_s for it in free] == [0, 0, 300, 300, 600, 600, 900, 900]
    # Three of hers are let in at once, the others after 300 s, and stand behind those of bob.
    assert [it.trial_start_s for it in limited] == [0, 0, 300, 500, 600, 800, 300, 400]
