"""Tuned jobs in replays: each policy sees them at the pace of their goodput."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_simulator.generate.pollux import PolluxJobs
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster
from dlq_simulator.world.tuned import pace

WORKLOAD = Path(__file__).parents[1] / "data" / "traces" / "pollux" / "workload-1.csv"
TUNED = ("pollux", "afs", "aryl", "dlq")


def job(name: str, gpus: int = 2, most: int = 8, **more: object) -> TraceJob:
    values = {"job_id": name, "submit_time_s": 0, "num_gpus": gpus, "duration_s": 3600}
    told = {"model": "imagenet", "tuned": True, "min_workers": 1, "max_workers": most}
    return TraceJob(**{**values, **told, **more})  # type: ignore[arg-type]  # a builder


def replayed(policy: str, *jobs: TraceJob, cost: str = "preempt=free") -> Result:
    (chosen,) = read_settings([policy], (cost,))
    return replay(Trace.of("tuned", jobs), read_cluster("2x4"), chosen)


@pytest.mark.parametrize("policy", ["pollux", "afs", "aryl", "gandiva-elastic"])
def test_a_job_alone_runs_at_the_pace_of_its_goodput(policy: str) -> None:
    (only,) = replayed(policy, job("a")).outcomes
    assert [span.gpus for span in only.spans] == [8]
    assert only.jct_s == pytest.approx(3600 / pace(job("a"), 8, 4))


def test_dlq_grows_a_job_alone_to_where_its_goodput_is_greatest() -> None:
    (only,) = replayed("dlq", job("a"), cost="cooldown_s=0").outcomes
    assert only.spans[-1].gpus == 8
    assert only.jct_s < 3600


def test_a_policy_that_resizes_nobody_runs_it_on_its_own_gpus_with_the_best_batch() -> None:
    row = job("a", batch_size=200)
    (only,) = replayed("fifo", row).outcomes
    assert only.jct_s == pytest.approx(3600 / pace(row, 2, 4))
    assert pace(row, 2, 4) > 1.0


@pytest.mark.parametrize("policy", ["pollux", "afs"])
def test_a_job_that_gains_nothing_leaves_the_gpus_to_another(policy: str) -> None:
    ncf = job("n", 1, model="ncf", duration_s=36_000)
    first = [outcome.spans[0].gpus for outcome in replayed(policy, job("i", 1), ncf).outcomes]
    assert sum(first) <= 8
    assert first[0] > first[1]


def test_pollux_needs_no_run_times() -> None:
    rows = [job("a", 1, duration_s=100), job("b", 1, duration_s=9_000)]
    first = [outcome.spans[0].gpus for outcome in replayed("pollux", *rows).outcomes]
    assert first == [4, 4]


@pytest.mark.parametrize("policy", TUNED)
def test_each_policy_ends_a_workload_and_twice_alike(policy: str) -> None:
    trace = read_trace(str(WORKLOAD))
    few = Trace.of("few", [row for row in trace.jobs if row.model != "imagenet"][:24])
    (chosen,) = read_settings([policy], ("term_s=60", "save_s=0", "resume_s=30"))
    found = [replay(PolluxJobs().workload(few), read_cluster("4x4"), chosen) for _ in range(2)]
    assert len(found[0].outcomes) == 24
    assert found[0].outcomes == found[1].outcomes
