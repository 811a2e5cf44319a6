"""Jobs, attempts, specs, wait reasons and traffic as plain values."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import forecast_pb2, job_pb2, profile_pb2, resource_pb2
from dlq_cli.facts.common import Facts, described
from dlq_cli.words import shown_state
from dlq_common.live_resize import LIVE
from dlq_common.text.arrays import IndexRange, expand, format_indexes

# The fields shown of other people's jobs; all others are null.
_OF_OTHERS = frozenset(
    {
        "job_id", "array_job_id", "array_task_id", "array_task_count", "user", "state", "stored_state",  # noqa: E501
        "attempt_state", "held_gpu_count", "held_core_count", "submit_time", "start_time",
        "run_time_s", "redacted", "queue", "nodes", "time_limit_s", "time_limit_scope",
        "time_left_s",
    }
)  # fmt: skip


# A time range; null for an instant beyond the simulated time.
range_facts = described(forecast_pb2.TimeRange, "earliest_time likely_time latest_time")

# The resources that a job asks for.
request_facts = described(
    resource_pb2.ResourceRequest,
    """
    gpu_count node_count gpu_type? or_gpu_types cpu_limit memory_limit_bytes gpu_memory_bytes
    halves_batch mixed_gpu_types core_count? core_memory_bytes constraint node_ids excluded_node_ids
    """,
)

# The numbers of GPUs that suit the job, and its present number; null: no GPUs, or no change is on
# its way.
elastic_facts = described(
    job_pb2.Elasticity,
    """
    gpu_counts base_gpu_count current_gpu_count? next_gpu_count? resize resize_count speeds
    """,
    base_gpu_count=lambda elastic: elastic.gpu_counts[0],
    speeds=described(job_pb2.SizeSpeed, "gpu_count steps_per_second relative_speed? gpu_type"),
)

# The known run times, their source, and the missing parts.
estimate_facts = described(
    job_pb2.RunEstimate,
    "run_s source? confidence? step_s unmeasured? detail rests_on?",
)

# Each deadline with the reward of an end by then.
_deadline_facts = described(job_pb2.DeadlineStep, "due_time due_s reward")

# The promise of a job, and the offers in its place.
promise_facts = described(
    job_pb2.Promise,
    """
    deadlines state ground? detail guaranteed_index earliest_time fix? fix_gpu_count fix_time
    slack_s work_s on_miss risk? risk_time saving_unknown
    """,
    deadlines=_deadline_facts,
)

# The job that took the GPUs, and the cost to the job that left.
preemption_facts = described(job_pb2.Preemption, "for_job_id user rule decide_time! lost_s")

checkpoint_facts = described(job_pb2.Checkpoint, "path step commit_time attempt")

# Off its GPUs without a save; null: it is not.
suspension_facts = described(
    job_pb2.Suspension, "phase since_time for_job_id? memory_bytes nodes=node_ids end_time"
)

progress_facts = described(job_pb2.Progress, "step total_step_count loss beat_time")

# The use that a running job makes of its nodes.
activity_facts = described(
    job_pb2.JobActivity,
    """
    idle_reason? stall_reason? straggler_reason? utilization_percent idle_s power_watts
    gpu_memory_bytes clock_mhz busy_cores memory_bytes read_bytes_per_second
    written_bytes_per_second
    """,
)

_whole_job_facts = described(
    job_pb2.Job,
    """
    job_id array_job_id array_task_id array_task_count
    array_concurrent_count=array_task.concurrent_count? group_member=array_task.member?
    group_ends=array_task.ends? user name queue team? state
    stored_state=state attempt_state hold_kind hold_reason? held_by? wait_code? stop_cause?
    resources! held_gpu_count? held_core_count? elastic nodes=node_ids gpu_type? virtual_devices
    submit_time begin_time dependency? nice warning_time queue_time start_time start_estimate
    end_time end_reason? exit_code exit_signal? time_limit_s time_limit_scope? time_left_s
    run_time_s=run_duration level attained_gpu_seconds lost_gpu_seconds attempt_count
    preemption_count displaced_count last_preemption stop_cost_s checkpoint work_at_risk_s
    never_saved stop_loses_work suspension progress activity promise estimate=run_estimate grace_s
    observed_save_count observed_resume_count restart_counts version redacted
    """,
    restart_counts=lambda job: dict(sorted(job.restart_counts.items())),
    array_job_id=lambda job: job.array_task.array_id if job.HasField("array_task") else None,
    array_task_id=lambda job: job.array_task.index if job.HasField("array_task") else None,
    array_task_count=lambda job: job.array_task.task_count if job.HasField("array_task") else None,
    state=shown_state,
    resources=request_facts,
    elastic=elastic_facts,
    start_estimate=range_facts,
    attained_gpu_seconds=lambda job: round(job.attained_gpu_seconds, 3),
    lost_gpu_seconds=lambda job: round(job.lost_gpu_seconds, 3),
    last_preemption=preemption_facts,
    checkpoint=checkpoint_facts,
    stop_loses_work=lambda job: job.HasField("stop_loss"),
    suspension=suspension_facts,
    progress=progress_facts,
    activity=activity_facts,
    promise=promise_facts,
    estimate=estimate_facts,
)


def job_facts(job: job_pb2.Job) -> Facts:
    """One job; the same keys in the same order for every job, null for unknown or hidden values."""
    facts = _whole_job_facts(job)
    if not job.redacted:
        return facts
    told = {key: value if key in _OF_OTHERS else None for key, value in facts.items()}
    asked = job.resources
    gpus = {
        **dict.fromkeys(facts["resources"]),
        "gpu_count": asked.gpu_count,
        "node_count": facts["resources"]["node_count"],
        "gpu_type": asked.gpu_type or None,
        "core_count": asked.core_count or None,
    }
    return told | {"user": job.user or None, "resources": gpus}


def named_types(request: resource_pb2.ResourceRequest) -> tuple[str, ...]:
    """The GPU types of which any one will do, the one liked best first; none: all."""
    return (request.gpu_type, *request.or_gpu_types) if request.gpu_type else ()


# One node's part of an attempt.
rank_facts = described(
    job_pb2.Rank,
    """
    node_rank node_id phase? exit_code signal? error? failed_task? last_lines image_digest?
    """,
)

# One try at running a job.
attempt_facts = described(
    job_pb2.Attempt,
    """
    attempt epoch=fence.epoch state stop_cause? lease_kind=lease.kind
    term_end_time=lease.term_end_time hold_until_time=lease.hold_until_time
    slots=lease.allocation.slots ranks assign_time start_time end_time grace_s
    first_failed_rank end_note?
    """,
    slots=described(resource_pb2.AllocationSlot, "node_id gpu_indexes"),
    ranks=rank_facts,
)

# The container as it was asked for; of secrets only the names are known here.
container_facts = described(
    job_pb2.ContainerSpec,
    "image mounts shm_size_bytes network? image_secret? secrets",
    mounts=described(job_pb2.Mount, "source target read_only"),
)

_preempt_facts = described(
    job_pb2.PreemptSpec,
    """
    signal? signal_to? grace_s warning_s requeue_exit_codes exit_zero_completes
    """,
)


def array_text(array: job_pb2.ArraySpec) -> str:
    """`0-99%4`."""
    ranges = [IndexRange(each.first, each.last, each.step or 1) for each in array.ranges]
    limit = f"%{array.concurrent_count}" if array.concurrent_count else ""
    return format_indexes(expand(ranges)) + limit


def dependency_text(dependency: job_pb2.DependencySpec) -> str:
    """`afterok:12,afterany:14`."""
    words = []
    for term in dependency.terms:
        relation = job_pb2.DependencyRelation.Name(term.relation)
        word = relation.removeprefix("DEPENDENCY_RELATION_").lower()
        delay = f"+{term.delay_duration.seconds // 60}" if term.HasField("delay_duration") else ""
        words.append(f"{word}:{term.job_id}{delay}" if term.job_id else word)
    return ("?" if dependency.any else ",").join(words)


_whole_spec_facts = described(
    job_pb2.JobSpec,
    """
    name command script? queue? team? resources! elastic environment working_directory?
    time_limit_s run_estimate_s deadlines on_miss? step_count preempt!
    checkpoint! max_restart_count=retry.max_restart_count max_restart_counts hold array depends_on
    cancel_if_never=dependency.cancel_if_never nice begin_time disconnect_hold_s runtime?
    launch? roles container labels stdin=interactive.stdin? attended=interactive.attended
    """,
    resources=request_facts,
    elastic=described(job_pb2.ElasticSpec, "gpu_counts resize?"),
    environment=lambda spec: sorted(spec.environment),
    deadlines=_deadline_facts,
    preempt=_preempt_facts,
    checkpoint=described(job_pb2.CheckpointSpec, "directory? marker? save_signal? settle_s"),
    max_restart_counts=lambda spec: dict(sorted(spec.retry.max_restart_counts.items())),
    array=array_text,
    depends_on=lambda spec: dependency_text(spec.dependency) or None,
    roles=described(job_pb2.RolesSpec, "workers=worker_count ps=ps_count"),
    container=container_facts,
)


def spec_facts(spec: job_pb2.JobSpec) -> Facts:
    """The submitted spec with its defaults. The environment is names only, because values may be
    secret.
    """
    facts = _whole_spec_facts(spec)
    # A job that is resized live tells torchrun, the main process, in spite of the request.
    asked = "main" if spec.elastic.resize == LIVE else spec.preempt.signal_to
    facts["preempt"]["signal_to"] = asked or "main"
    return facts


_note_facts = described(job_pb2.HookNote, "hook field? before? after? text?")


def hook_facts(notes: Sequence[job_pb2.HookNote]) -> Facts:
    """The changes and warnings of hooks; nothing where there are none."""
    return {"hook_notes": [_note_facts(note) for note in notes]} if notes else {}


# A typed reason for a job not to run.
reason_facts = described(
    job_pb2.WaitReason,
    """
    code resource? need have blocking_job_ids blocking_users detail? subject?
    spent_s
    """,
)

# A reason's part of the waiting time of a job.
wait_facts = described(
    job_pb2.WaitShare,
    "code subject? spent_s! main_s! now",
)

# A verdict as in the schema dlq.profile.v1.
_verdict_facts = described(profile_pb2.ProfileVerdict, "method confidence reason?")

# The traffic estimate and its source; the same keys for every job.
traffic_facts = described(
    profile_pb2.JobTraffic,
    "belief starts placement? placement_reason?",
    belief=described(
        profile_pb2.TrafficBelief,
        """
        job_id attempt own family gpu_type? gpu_count node_count spread found_time traffic! sizes!
        iteration_count period_s bytes_per_iteration model_bytes skew_low skew_high
        server_skew rho slowdown together_attempt? spread_attempt?
        """,
        traffic=_verdict_facts,
        sizes=_verdict_facts,
    ),
    starts=described(
        profile_pb2.RecordedStart,
        """
        attempt cause order_time! node_count told_count spread found_time traffic sizes
        """,
        traffic=_verdict_facts,
        sizes=_verdict_facts,
    ),
)
