"""yarn-cs: every queue has its own GPUs and its own line; nothing is lent, nobody has to leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.jobs.job import Job
from dlq_master.model.view import View
from dlq_master.model.words.sentence import sentence
from dlq_master.policy.partition.quotas import Quotas, parsed
from dlq_master.policy.reasons.explain import explain, jobs_ahead
from dlq_master.policy.registry.settings import PolicyError
from dlq_simulator.errors import UsageError
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster
from support.builders import World, a_job


def slo(job_id: int, gpus: int) -> Job:
    return a_job(job_id, gpus, queue="slo", priority_base=0)


def be(job_id: int, gpus: int) -> Job:
    return a_job(job_id, gpus, queue="be", priority_base=1)


def world(quota: str = "slo:0.75,be:0.25") -> World:
    """Eight GPUs: six for slo, two for be."""
    return World("yarn-cs", nodes=1, quota=quota)


def told(world: World, job_id: int) -> list[str]:
    job = world.job(job_id)
    reasons = explain(View(world.cluster, world.now_s), world.policy, job.job_id)
    return [sentence(reason, job) for reason in reasons]


def test_a_queue_never_holds_more_than_its_quota_though_gpus_are_idle() -> None:
    here = world().submit(be(1, 2), be(2, 1), slo(3, 4)).decide()
    assert here.running == [1, 3]
    assert told(here, 2)[0] == "needs 1 GPU; of the 2 that queue be may hold, 2 are taken"
    here.finish(1).decide()
    assert here.running == [2, 3]


def test_the_first_job_of_a_queue_blocks_its_own_queue_and_no_other() -> None:
    here = world().submit(slo(1, 4), slo(2, 4), slo(3, 1), be(4, 1)).decide()
    assert here.running == [1, 4]
    assert "job 2 is first in line, and nobody passes it" in told(here, 3)
    assert jobs_ahead(View(here.cluster, here.now_s), here.policy, here.job(3).job_id) == 1
    here.finish(1).decide()
    assert here.running == [2, 3, 4]


def test_a_job_wider_than_its_quota_runs_when_its_queue_holds_nothing() -> None:
    here = world().submit(be(1, 1), be(2, 4), be(3, 1)).decide()
    assert here.running == [1]
    here.finish(1).decide()
    assert here.running == [2]
    here.submit(be(4, 1)).decide()
    assert here.running == [2], "its queue holds more than its quota"


def test_gpus_that_are_being_left_still_count() -> None:
    here = world().submit(be(1, 2), be(2, 2)).decide().pause(1).decide()
    assert (here.running, here.leaving) == ([], [1])
    here.leave(1).decide()
    assert here.running == [2]


def test_queues_without_a_quota_share_what_is_left() -> None:
    here = world("slo:0.75").submit(a_job(1, 1, queue="x", priority_base=1), be(2, 2), slo(3, 6))
    here.decide()
    assert here.running == [1, 3]
    assert "the queues without a quota" in told(here, 2)[0]


def test_without_any_quota_it_is_one_line() -> None:
    here = World("yarn-cs", nodes=1).submit(slo(1, 5), be(2, 4), be(3, 1)).decide()
    assert here.running == [1]


@given(shares=st.lists(st.integers(1, 50), min_size=1, max_size=6), gpus=st.integers(0, 500))
def test_quotas_are_whole_gpus_that_leave_none_over_and_none_too_many(
    shares: list[int], gpus: int
) -> None:
    total = sum(shares)
    quotas = Quotas(tuple((str(at), share / total) for at, share in enumerate(shares)))
    limits = quotas.limits(gpus)
    assert sum(limits.values()) == gpus
    for at, share in enumerate(shares):
        assert abs(limits[str(at)] - share / total * gpus) < 1.0


@pytest.mark.parametrize(
    ("quota", "says"),
    [
        ("slo", "'slo' is not QUEUE:SHARE"),
        ("slo:0.5,slo:0.2", "queue 'slo' has two quotas"),
        ("slo:half", "'half', is not a number"),
        ("slo:1.5", "must be above 0 and at most 1, not 1.5"),
        ("slo:0.8,be:0.3", "make up 1.1, more than 1"),
    ],
)
def test_a_slip_in_a_quota_is_named(quota: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parsed(quota)
    with pytest.raises(PolicyError, match=f"setting quota={quota}"):
        World("yarn-cs", quota=quota)


# --- in a replay ----------------------------------------------------------------------------------


def replayed(rows: list[TraceJob], *settings: str) -> dict[str, ReplayOutcome]:
    (chosen,) = read_settings(["yarn-cs"], settings)
    found = replay(Trace.of("quotas", rows), read_cluster("1x8"), chosen).outcomes
    return {outcome.job.job_id: outcome for outcome in found}


def row(name: str, gpus: int, kind: str = "be", **more: str) -> TraceJob:
    deadline_s = None if kind == "be" else 1000
    return TraceJob(
        job_id=name,
        submit_time_s=0,
        num_gpus=gpus,
        duration_s=100,
        kind=kind,
        deadline_s=deadline_s,
        **more,  # type: ignore[arg-type]  # words of a row
    )


def test_by_default_each_class_has_the_share_of_its_jobs() -> None:
    """Three of four jobs have a deadline: six of eight GPUs are theirs."""
    rows = [row("a", 4, "strict"), row("b", 4, "strict"), row("c", 1, "strict"), row("d", 3)]
    found = replayed(rows)
    assert [found[name].start_s for name in "abcd"] == [0, 100, 100, 0]


def test_quotas_by_virtual_cluster() -> None:
    rows = [row("a", 2, vc="x"), row("b", 2, vc="x"), row("c", 2, vc="y"), row("d", 4, vc="z")]
    found = replayed(rows, "queues=vc", "quota=x:0.25,y:0.25")
    assert [found[name].start_s for name in "abcd"] == [0, 100, 0, 0]


def test_a_trace_without_deadlines_is_one_line_as_fifo() -> None:
    rows = [row("a", 5), row("b", 4), row("c", 1)]
    found = replayed(rows)
    assert [found[name].start_s for name in "abc"] == [0, 100, 100]


def test_a_quota_of_a_queue_that_no_job_is_in_is_an_error() -> None:
    with pytest.raises(UsageError, match="no job of quotas is in queue 'slo'"):
        replayed([row("a", 1)], "quota=slo:0.5")
    with pytest.raises(UsageError, match="expected one of class, vc, user"):
        replayed([row("a", 1)], "queues=colour")
