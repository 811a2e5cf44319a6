"""From the core to messages: no state without a number, no living job without its attempt."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import pytest

from dlq.v1 import job_pb2
from dlq_master.control.stimuli import Launch, Stop
from dlq_master.model.attempts.attempt import AttemptState, RankPhase
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Checkpoint, HoldKind, Job, JobState, Taken
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.node import Gpu, Node, NodeState
from dlq_master.model.resources import Request
from dlq_master.rpc.agents import commands
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.views import convert
from dlq_master.rpc.views.job_view import job_message
from support.fake_clock import FakeClock
from support.fake_control import FakeControl, FakeRead

KEY = AttemptKey(JobId(17), 2)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (convert.JOB_STATES, JobState),
        (convert.HOLD_KINDS, HoldKind),
        (convert.ATTEMPT_STATES, AttemptState),
        (convert.NODE_STATES, NodeState),
        (convert.LEASE_KINDS, LeaseKind),
    ],
)
def test_every_word_of_the_core_has_a_number_of_its_own(
    numbers: dict[StrEnum, int], words: type[StrEnum]
) -> None:
    assert set(numbers) == set(words)
    assert len(set(numbers.values())) == len(numbers)
    assert 0 not in numbers.values()


def test_every_phase_of_a_rank_has_a_word() -> None:
    assert set(convert.RANK_WORDS) == {phase.value for phase in RankPhase}


@pytest.fixture
def control() -> FakeControl:
    control = FakeControl(FakeClock())
    node = control.add_node("gpu01")._replace(
        gpus=(Gpu(index=0, gpu_type="h100-80gb"),), virtual=True
    )
    control.published.all_nodes[NodeId("gpu01")] = node
    job = Job(JobId(1), "alice", "train", Request(gpus=1), control.clock.now_s())
    control.published.all_jobs[job.job_id] = job._replace(state=JobState.QUEUED)
    return control


def _message(control: FakeControl) -> job_pb2.Job:
    read = control.published
    return job_message(read.all_jobs[JobId(1)], read, control.clock.now_s())


def test_a_job_shows_the_grace_it_has_learned_until_it_ends(control: FakeControl) -> None:
    jobs = control.published.all_jobs
    assert (_message(control).grace_duration.seconds, _message(control).observed_save_count) == (
        300,
        0,
    )
    jobs[JobId(1)] = jobs[JobId(1)]._replace(saves=(50.0, 50.0))
    assert (_message(control).grace_duration.seconds, _message(control).observed_save_count) == (
        90,
        2,
    )
    jobs[JobId(1)] = jobs[JobId(1)]._replace(state=JobState.COMPLETED, end_time_s=1.0)
    assert not _message(control).HasField("grace_duration")


def test_a_waiting_job_has_no_attempt_state(control: FakeControl) -> None:
    message = _message(control)
    assert not message.HasField("attempt_state")
    assert not message.HasField("start_time")
    assert not message.HasField("exit_code")
    assert not message.HasField("work_at_risk_duration")


def test_the_signal_and_the_holder_of_a_job_are_told_in_lists_too(control: FakeControl) -> None:
    job = control.published.all_jobs[JobId(1)]
    control.published.all_jobs[JobId(1)] = job._replace(
        state=JobState.HELD, hold=HoldKind.ADMIN, held_by="root", signal=9
    )
    message = _message(control)
    assert (message.exit_signal, message.held_by) == (9, "root")


def test_a_trial_that_runs_is_told_with_the_gpus_that_it_holds(control: FakeControl) -> None:
    control.place(JobId(1), "gpu01")
    attempts = control.published.all_attempts
    ((key, attempt),) = attempts.items()
    assert (_message(control).profiling, _message(control).held_gpu_count) == (False, 1)
    attempts[key] = trial = attempt._replace(lease=attempt.lease._replace(kind=LeaseKind.PROFILE))
    assert (_message(control).profiling, trial.shown_state) == (True, "profiling")
    attempts[key] = trial._replace(state=AttemptState.PREPARING)
    assert not _message(control).profiling
    assert attempts[key].shown_state == "preparing"


def test_a_running_job_shows_where_and_what_is_at_risk(control: FakeControl) -> None:
    control.place(JobId(1), "gpu01")
    assert isinstance(control.clock, FakeClock)
    control.clock.advance(50)
    message = _message(control)
    assert message.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING
    assert list(message.node_ids) == ["gpu01"]
    assert message.gpu_type == "h100-80gb (virtual)"
    assert message.virtual_devices
    assert message.work_at_risk_duration.seconds == 50
    assert message.run_duration.seconds == 50
    assert message.attained_gpu_seconds == 50.0


def test_gpu_seconds_are_of_all_attempts_the_living_one_too(control: FakeControl) -> None:
    job = control.published.all_jobs[JobId(1)]
    control.published.all_jobs[JobId(1)] = job._replace(total_gpu_s=700.0, attained_gpu_s=1.0)
    assert _message(control).gpu_seconds == 700.0
    control.place(JobId(1), "gpu01")
    assert isinstance(control.clock, FakeClock)
    control.clock.advance(50)
    assert _message(control).gpu_seconds == 750.0


def test_a_checkpoint_takes_the_work_before_it_out_of_risk(control: FakeControl) -> None:
    attempt = control.place(JobId(1), "gpu01")
    assert isinstance(control.clock, FakeClock)
    control.clock.advance(50)
    saved = Checkpoint("/data/1/1/step-9", 9, control.clock.now_s() - 20, 1)
    control.published.all_attempts[attempt.key] = attempt._replace(checkpoint=saved)
    assert _message(control).work_at_risk_duration.seconds == 20


def test_facts_of_an_event_become_text() -> None:
    event = JournalEvent(kind="x", time_s=1.0, data={"yes": True, "none": None, "n": 3})
    assert dict(convert.event_message(event).data) == {"yes": "true", "none": "", "n": "3"}


PLACES = CheckpointPlaces("/shared", b"seed")


def _launch(time_left_s: float | None) -> Launch:
    return Launch(
        sequence=9,
        key=KEY,
        epoch=3,
        node_id=NodeId("gpu01"),
        node_rank=1,
        gpu_indexes=(0, 3),
        node_ids=(NodeId("gpu00"), NodeId("gpu01")),
        node_addresses=("10.0.0.1", "10.0.0.2"),
        master_port=20_000,
        spec=job_pb2.JobSpec(command=["a"]).SerializeToString(),
        user="alice",
        uid=1001,
        gid=1001,
        groups=(7,),
        resume_from="",
        hold_s=3600.0,
        grace_s=60.0,
        restart_count=1,
        time_left_s=time_left_s,
    )


def test_a_launch_says_everything_and_the_masters_epoch_beside_the_fence() -> None:
    command = commands.command_message(_launch(30.0), 4, PLACES)
    assert (command.sequence, command.epoch) == (9, 4)
    assert (command.launch.fence.epoch, command.launch.fence.attempt) == (3, 2)
    assert list(command.launch.gpu_indexes) == [0, 3]
    assert command.launch.spec.command == ["a"]
    assert command.launch.time_left_duration.seconds == 30


def test_a_launch_begins_from_a_named_checkpoint_as_long_as_there_is_no_own_one() -> None:
    spec = job_pb2.JobSpec(command=["a"])
    spec.checkpoint.directory, spec.checkpoint.resume_from = "/s/run", "/s/run/17/1/step-3"
    first = replace(_launch(None), spec=spec.SerializeToString())
    assert commands.launch_message(first, PLACES).resume_from == "/s/run/17/1/step-3"
    later = replace(first, resume_from="/s/run/9/1/step-7")
    assert commands.launch_message(later, PLACES).resume_from == "/s/run/9/1/step-7"
    assert commands.launch_message(replace(first, trial=True), PLACES).resume_from == ""


def test_a_launch_names_the_queue_that_the_job_is_in() -> None:
    assert (
        commands.launch_message(replace(_launch(None), queue="high"), PLACES).spec.queue == "high"
    )
    assert commands.launch_message(_launch(None), PLACES).spec.queue == ""


@pytest.mark.parametrize("fixed", [False, True])
def test_an_attempt_that_nobody_joins_is_launched_as_one_of_a_fixed_size(fixed: bool) -> None:
    spec = job_pb2.JobSpec(command=["torchrun", "t.py"])
    spec.elastic.resize = "live"
    spec.elastic.gpu_counts.extend([4, 8])
    launch = replace(_launch(None), spec=spec.SerializeToString(), sizes=(4, 8), fixed=fixed)
    told = commands.launch_message(launch, PLACES).spec.elastic
    assert (told.resize, list(told.gpu_counts)) == ("restart" if fixed else "live", [4, 8])


def test_a_launch_without_a_limit_says_so() -> None:
    launch = commands.launch_message(_launch(None), PLACES)
    assert not launch.HasField("time_left_duration")


def test_a_stop_with_no_grace_says_zero_and_not_nothing() -> None:
    stop = Stop(
        sequence=1, key=KEY, epoch=3, node_id=NodeId("a"), node_rank=0, cause="cancel", grace_s=0.0
    )
    message = commands.stop_message(stop)
    assert message.HasField("grace_duration")
    assert message.grace_duration.seconds == 0


class _Silent(FakeRead):
    """A read model that has heard of no node."""

    def contact_s(self, node_id: NodeId) -> float | None:
        return None


def test_a_node_that_was_never_heard_of_has_no_contact() -> None:
    node = Node(NodeId("gpu09"), ())
    message = convert.node_message(node, _Silent(FakeClock(), all_nodes={node.node_id: node}))
    assert not message.HasField("contact_time")


def test_a_job_tells_by_whom_it_was_preempted_and_what_a_stop_costs(control: FakeControl) -> None:
    jobs = control.published.all_jobs
    assert not _message(control).HasField("last_preemption")
    taken = Taken(JobId(17), "bob", "the fewest GPUs first", 5.0)
    jobs[JobId(1)] = jobs[JobId(1)]._replace(taken=taken, resumes=(3.0,))
    leaving = _message(control)
    assert leaving.last_preemption.detail.startswith("it is leaving its GPUs for job 17 (bob)")
    assert not leaving.last_preemption.HasField("lost_duration")
    assert (leaving.stop_cost_duration.seconds, leaving.observed_resume_count) == (60, 1)
    jobs[JobId(1)] = jobs[JobId(1)]._replace(taken=taken._replace(lost_s=42.0), displaced=2)
    told = _message(control)
    assert (told.displaced_count, told.last_preemption.lost_duration.seconds) == (2, 42)
    assert told.last_preemption.detail == (
        "preempted by job 17 (bob) by rule: the fewest GPUs first; lost up to 42 s of work"
    )
    jobs[JobId(1)] = jobs[JobId(1)]._replace(state=JobState.COMPLETED, end_time_s=1.0)
    ended = _message(control)
    assert ended.HasField("last_preemption")
    assert not ended.HasField("stop_cost_duration")
    jobs[JobId(1)] = jobs[JobId(1)]._replace(taken=taken)
    assert not _message(control).HasField("last_preemption"), "it ended before it had left"
