"""How jobs lose their GPUs in a replay, against schedules worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlq_master.model.cluster import drive
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.lease import LeaseKind
from dlq_master.model.plan import Admit, Lapse, Plan, Start
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.why import Reason, ReasonCode
from dlq_simulator.metrics import ReplayOutcome
from dlq_simulator.replay.engine import Replay, replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup, read_cluster
from dlq_simulator.world.loans import LoanStep

WHY = Reason(ReasonCode.FITS)


def a_job(name: str, duration: float, submit: float = 0, *, checkpoint: bool = True) -> TraceJob:
    return TraceJob(
        job_id=name,
        submit_time_s=submit,
        num_gpus=1,
        duration_s=duration,
        checkpoint=checkpoint,
    )


def in_turns(first_s: float) -> Sequence[ReplayOutcome]:
    """A job of so many seconds and one of 200 s take turns of 100 s, each with 30 s to save."""
    (chosen,) = read_settings(["timeslice"], ["term_s=100", "save_s=30", "resume_s=30"])
    jobs = [a_job("a", first_s), a_job("b", 200)]
    return replay(Trace.of("t", jobs), read_cluster("1x1"), chosen).outcomes


@pytest.mark.parametrize("first_s", [65, 70])
def test_who_is_done_before_it_had_to_stop_is_left_alone(first_s: float) -> None:
    first, _ = in_turns(first_s)
    assert (first.finish_s, first.preemptions, first.overhead_s) == (first_s, 0, 0)


def test_who_would_end_while_it_saves_for_the_boundary_is_stopped_all_the_same() -> None:
    """80 s of work, but at 70 s it begins to save: 10 s are left for its second turn."""
    first, second = in_turns(80)
    assert first.spans == ((0, 100, 1), (200, 240, 1))
    assert (first.preemptions, first.overhead_s) == (1, 30 + 30)
    assert second.spans[0] == (100, 200, 1)


@pytest.mark.parametrize(("checkpoint", "goes_first"), [(True, "a"), (False, "b")])
def test_the_policy_counts_only_work_that_was_not_lost(checkpoint: bool, goes_first: str) -> None:
    """Reclaimed at 80 s of 100: who has saved has 20 s left, less than b's 50, and who could not
    has 100 s again. The server is back at 200 s."""
    steps = (LoanStep(0, 1), LoanStep(80, 0), LoanStep(200, 1))
    lent = NodeGroup(name="lent", count=1, gpus=1, lent=steps)
    (chosen,) = read_settings(["srtf"], ["know=known"])
    jobs = [a_job("a", 100, checkpoint=checkpoint), a_job("b", 50, 150)]
    result = replay(Trace.of("t", jobs), ClusterSpec(name="c", groups=(lent,)), chosen)
    at_return = [o.job.job_id for o in result.outcomes if any(s.begin_s == 200 for s in o.spans)]
    assert at_return == [goes_first]


class StoppedAtOnce(Replay):
    """Its first decision starts a job, and stops it in a later round: it saves until 30 s."""

    def _arrive(self, job_id: JobId) -> None:
        if job_id in self.cluster.jobs:
            return
        super()._arrive(job_id)
        (node_id,) = self.cluster.nodes
        on_it = Allocation((Slot(node_id, 1),))
        rounds = (
            Admit(job_id, WHY),
            Start(job_id, on_it, LeaseKind.BE, 100.0, WHY),
            Lapse(AttemptKey(job_id, 1), 30.0, 30.0, job_id, WHY),
        )
        happened: list[Happened] = []
        for change in rounds:
            happened += drive.apply(self.cluster, Plan((change,)), 0.0, 1)
        self._carry_out(happened, 0)


def test_who_is_stopped_by_the_decision_that_started_it_saves_and_comes_again() -> None:
    (chosen,) = read_settings(["fifo"], ["save_s=30", "resume_s=10"])
    run = StoppedAtOnce(Trace.of("t", [a_job("a", 100)]), read_cluster("1x1"), chosen)
    run.run()
    told = run.outcome(JobId(1))
    assert (told.preemptions, told.finish_s) == (1, 30 + 10 + 100)
