"""The three state tables, cell by cell."""

from enum import StrEnum
from typing import Any, get_args

import pytest

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import LIVE, AttemptState, Suspension, SuspensionPhase
from dlq_master.model.estimates.estimate import Basis, Unmeasured
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.jobs.eligible import Block
from dlq_master.model.jobs.job import ENDED, Checkpoint, EndReason, HoldKind, JobState
from dlq_master.model.nodes import node_steps
from dlq_master.model.nodes.gpu_health import Action, GpuCondition
from dlq_master.model.nodes.node import Gpu, NodeFlag, NodeState
from dlq_master.model.nodes.windows import Window
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.transitions import IllegalStep, StopCause
from support.builders import a_node, a_waiting_job, an_attempt

CHECKPOINT = Checkpoint("/ckpt/1/1/step-5", 5, 10.0, 1)

JOB_EVENTS: tuple[job_steps.JobEvent, ...] = (
    job_steps.Admitted(),
    job_steps.Rejected(reason="no_such_shape"),
    job_steps.Held(kind=HoldKind.USER),
    job_steps.Released(),
    job_steps.Placed(attempt=1),
    job_steps.Ran(),
    job_steps.WidthChanged(usage=job_steps.NO_USAGE),
    job_steps.ResizedLive(resized=job_steps.Resized(2, 4, 1.0, "GPUs are free", "live")),
    job_steps.Demoted(level=1),
    job_steps.Promoted(),
    job_steps.Reserved(band=Band.SLO, slots=(Segment(3, 5),), promised=0, verdict="holes"),
    job_steps.MadeWay(),
    job_steps.Displaced(for_job=JobId(9), user="bob", rule="the fewest GPUs first"),
    job_steps.TrialsPlanned(trials=(1,)),
    job_steps.Estimated(estimate_s=60.0),
    job_steps.LeftUnmeasured(basis=Basis(unmeasured=Unmeasured.NO_BEATS)),
    job_steps.Saved(checkpoint=CHECKPOINT, save_s=2.0),
    job_steps.Resumed(resume_s=4.0),
    job_steps.Requeued(reason=EndReason.PREEMPTED),
    job_steps.Completed(),
    job_steps.Failed(reason=EndReason.USER_ERROR),
    job_steps.TimedOut(),
    job_steps.Poisoned(reason=EndReason.NODE_LOST),
    job_steps.Cancelled(),
    job_steps.Avoids(node_ids=(NodeId("n1"),)),
    job_steps.Deferred(block=Block.BEGIN_TIME),
    job_steps.Eligible(),
    job_steps.Updated(values=(("name", "other"),), changes="name: job -> other"),
)

ATTEMPT_EVENTS: tuple[attempt_steps.AttemptEvent, ...] = (
    attempt_steps.Preparing(),
    attempt_steps.Starting(),
    attempt_steps.Running(),
    attempt_steps.StopRequested(cause=StopCause.PREEMPT, grace_s=60.0),
    attempt_steps.NodeSilent(),
    attempt_steps.ReturnedAssigned(),
    attempt_steps.ReturnedPreparing(),
    attempt_steps.ReturnedStarting(),
    attempt_steps.ReturnedRunning(),
    attempt_steps.ReturnedPausing(),
    attempt_steps.Renewed(term_end_s=600.0),
    attempt_steps.Committed(checkpoint=CHECKPOINT),
    attempt_steps.ResizeBegun(allocation=Allocation((Slot(NodeId("n1"), 1),)), grace_s=60.0),
    attempt_steps.LeaveAsked(node_ids=()),
    attempt_steps.ResizeSettled(),
    attempt_steps.SuspendAsked(for_job=JobId(2)),
    attempt_steps.Suspended(),
    attempt_steps.SuspendRefused(detail="no room"),
    attempt_steps.ResumeAsked(term_end_s=600.0),
    attempt_steps.Unsuspended(),
    attempt_steps.WantedBack(),
    attempt_steps.ReturnedSuspended(),
    attempt_steps.Succeeded(),
    attempt_steps.Measured(work_s=60.0),
    attempt_steps.Failed(reason=EndReason.USER_ERROR, exit_code=1),
    attempt_steps.Preempted(),
    attempt_steps.PreemptedLost(),
    attempt_steps.Cancelled(),
    attempt_steps.TimedOut(),
    attempt_steps.NodeLost(),
    attempt_steps.StartFailed(detail="no such image"),
)

NODE_EVENTS: tuple[node_steps.NodeEvent, ...] = (
    node_steps.Heard(),
    node_steps.Missed(),
    node_steps.Vanished(),
    node_steps.Lost(),
    node_steps.Registered(gpus=(Gpu(index=0, gpu_type="A100"),), boot_id="b2"),
    node_steps.FlagSet(flag=NodeFlag.CORDONED, reason="fan"),
    node_steps.FlagCleared(flag=NodeFlag.CORDONED),
    node_steps.Labelled(labels=frozenset({"rack=r1"})),
    node_steps.GpusStrayed(indexes=frozenset({1}), reason="17.1 runs for nobody"),
    node_steps.GpusAccepted(),
    node_steps.GpusJudged(conditions=(GpuCondition(1, "xid_79", Action.DRAIN, 3.0),)),
    node_steps.GpusCleared(indexes=frozenset({1})),
    node_steps.Booked(windows=(Window(10.0, 20.0, "m1"),)),
    node_steps.MaintenanceAnnounced(maintenance_s=7200.0),
    node_steps.MaintenanceEnded(),
    node_steps.HoldsConfirmed(),
    node_steps.Doubted(user="alice"),
    node_steps.DoubtOver(),
)


def cells(states: type[StrEnum], events: tuple[Any, ...]) -> list[Any]:
    return [
        pytest.param(state, event, id=f"{state.value}-{type(event).__name__}")
        for state in states
        for event in events
    ]


@pytest.mark.parametrize(("state", "event"), cells(JobState, JOB_EVENTS))
def test_every_cell_of_the_job_table(state: JobState, event: job_steps.JobEvent) -> None:
    job = a_waiting_job(1, state=state)
    target = job_steps.TABLE.get((state, type(event)))
    if target is None:
        with pytest.raises(IllegalStep, match=f"job 1: {type(event).__name__}"):
            job_steps.step(job, event, at_s=5.0)
        return
    after = job_steps.step(job, event, at_s=5.0)
    assert after.state is target
    assert after.version == job.version + 1
    assert after.ended == (after.end_time_s is not None)
    assert (after.state is JobState.HELD) == (after.hold is not None) or state is JobState.HELD


@pytest.mark.parametrize(("state", "event"), cells(AttemptState, ATTEMPT_EVENTS))
def test_every_cell_of_the_attempt_table(
    state: AttemptState, event: attempt_steps.AttemptEvent
) -> None:
    attempt = an_attempt(state=state)
    if state in (AttemptState.SUSPENDED, AttemptState.UNKNOWN):
        held = attempt.lease.allocation
        out = Suspension(SuspensionPhase.LEAVING, 1.0, held)
        attempt = attempt._replace(suspension=out)
    target = attempt_steps.TABLE.get((state, type(event)))
    if target is None:
        with pytest.raises(IllegalStep, match=r"attempt 1\.1"):
            attempt_steps.step(attempt, event, at_s=5.0)
        return
    after = attempt_steps.step(attempt, event, at_s=5.0)
    assert after.state is target
    assert after.live == (target in LIVE)
    assert (after.ended_time_s is not None) == (target not in LIVE)


@pytest.mark.parametrize(("state", "event"), cells(NodeState, NODE_EVENTS))
def test_every_cell_of_the_node_table(state: NodeState, event: node_steps.NodeEvent) -> None:
    before = a_node(state=state)
    target = node_steps.TABLE.get((state, type(event)))
    if target is None:
        with pytest.raises(IllegalStep, match="node n1"):
            node_steps.step(before, event, at_s=5.0)
        return
    assert node_steps.step(before, event, at_s=5.0).state is target


TABLES = [
    pytest.param(job_steps.TABLE, ENDED, job_steps.JobEvent, JOB_EVENTS, id="job"),
    pytest.param(
        attempt_steps.TABLE,
        frozenset(AttemptState) - LIVE,
        attempt_steps.AttemptEvent,
        ATTEMPT_EVENTS,
        id="attempt",
    ),
    pytest.param(node_steps.TABLE, frozenset(), node_steps.NodeEvent, NODE_EVENTS, id="node"),
]


@pytest.mark.parametrize(("table", "ended", "union", "samples"), TABLES)
def test_terminal_states_have_no_rows_and_every_event_has_one(
    table: Any, ended: frozenset[StrEnum], union: Any, samples: tuple[Any, ...]
) -> None:
    after_the_end = {(state, event) for state, event in table if state in ended}
    assert after_the_end <= {(JobState.CANCELLED, job_steps.Completed)}, (
        "completed before its cancel"
    )
    assert {event for _, event in table} == set(get_args(union))
    assert {type(event) for event in samples} == set(get_args(union))


@pytest.mark.parametrize(("table", "ended", "union", "samples"), TABLES)
def test_every_state_is_reached_or_is_the_first(
    table: Any, ended: frozenset[StrEnum], union: Any, samples: tuple[Any, ...]
) -> None:
    states = list(type(next(iter(table))[0]).__members__.values())
    assert set(states[1:]) <= set(table.values())
