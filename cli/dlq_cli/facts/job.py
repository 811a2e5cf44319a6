"""Jobs, attempts, specs and wait reasons as plain values."""

from __future__ import annotations

from collections.abc import Iterable

from dlq.v1 import forecast_pb2, job_pb2, resource_pb2
from dlq_cli.facts.common import Facts, facts_of, instant, seconds
from dlq_cli.words import ATTEMPT_STATES, HOLD_KINDS, JOB_STATES, LEASE_KINDS, shown_state
from dlq_common.live_resize import LIVE
from dlq_common.text.arrays import IndexRange, expand, format_indexes

# The fields shown of other people's jobs; all others are null.
_OF_OTHERS = frozenset(
    {
        "job_id", "array_job_id", "array_task_id", "array_task_count", "user", "state", "stored_state",  # noqa: E501
        "attempt_state", "held_gpu_count", "submit_time", "start_time", "run_time_s", "redacted",
    }
)  # fmt: skip


def job_facts(job: job_pb2.Job) -> Facts:
    """One job; the same keys in the same order for every job, null for unknown or hidden values."""
    facts = _job_facts(job)
    if not job.redacted:
        return facts
    told = {key: value if key in _OF_OTHERS else None for key, value in facts.items()}
    gpus = {**dict.fromkeys(facts["resources"]), "gpu_count": job.resources.gpu_count}
    return told | {"user": job.user or None, "resources": gpus}


def _job_facts(job: job_pb2.Job) -> Facts:
    has = job.HasField
    return {
        "job_id": job.job_id,
        "array_job_id": job.array_task.array_id if has("array_task") else None,
        "array_task_id": job.array_task.index if has("array_task") else None,
        "array_task_count": job.array_task.task_count if has("array_task") else None,
        "array_concurrent_count": job.array_task.concurrent_count or None,
        "user": job.user,
        "name": job.name,
        "queue": job.queue,
        "team": job.team or None,
        "state": shown_state(job),
        "stored_state": JOB_STATES.get(job.state),
        "attempt_state": ATTEMPT_STATES.get(job.attempt_state) if has("attempt_state") else None,
        "hold_kind": HOLD_KINDS.get(job.hold_kind),
        "hold_reason": job.hold_reason or None,
        "held_by": job.held_by or None,
        "wait_code": job.wait_code or None,
        "stop_cause": job.stop_cause or None,
        "resources": request_facts(job.resources),
        "held_gpu_count": job.held_gpu_count or None,
        "elastic": elastic_facts(job.elastic) if has("elastic") else None,
        "nodes": list(job.node_ids),
        "gpu_type": job.gpu_type or None,
        "virtual_devices": job.virtual_devices,
        "submit_time": instant(job.submit_time) if has("submit_time") else None,
        "begin_time": instant(job.begin_time) if has("begin_time") else None,
        "dependency": job.dependency or None,
        "nice": job.nice,
        "warning_time": instant(job.warning_time) if has("warning_time") else None,
        "queue_time": instant(job.queue_time) if has("queue_time") else None,
        "start_time": instant(job.start_time) if has("start_time") else None,
        "start_estimate": range_facts(job.start_estimate) if has("start_estimate") else None,
        "end_time": instant(job.end_time) if has("end_time") else None,
        "end_reason": job.end_reason or None,
        "exit_code": job.exit_code if has("exit_code") else None,
        "exit_signal": job.exit_signal or None,
        "time_limit_s": seconds(job.time_limit_duration) if has("time_limit_duration") else None,
        "run_time_s": seconds(job.run_duration) if has("run_duration") else None,
        "level": job.level,
        "attained_gpu_seconds": round(job.attained_gpu_seconds, 3),
        "lost_gpu_seconds": round(job.lost_gpu_seconds, 3),
        "attempt_count": job.attempt_count,
        "preemption_count": job.preemption_count,
        "displaced_count": job.displaced_count,
        "last_preemption": (
            preemption_facts(job.last_preemption) if has("last_preemption") else None
        ),
        "stop_cost_s": seconds(job.stop_cost_duration) if has("stop_cost_duration") else None,
        "checkpoint": checkpoint_facts(job.checkpoint) if has("checkpoint") else None,
        "work_at_risk_s": (
            seconds(job.work_at_risk_duration) if has("work_at_risk_duration") else None
        ),
        "never_saved": job.never_saved,
        "stop_loses_work": has("stop_loss"),
        "progress": progress_facts(job.progress) if has("progress") else None,
        "promise": promise_facts(job.promise) if has("promise") else None,
        "estimate": estimate_facts(job.run_estimate) if has("run_estimate") else None,
        "grace_s": seconds(job.grace_duration) if has("grace_duration") else None,
        "observed_save_count": job.observed_save_count,
        "observed_resume_count": job.observed_resume_count,
        "version": job.version,
        "redacted": job.redacted,
    }


def preemption_facts(preemption: job_pb2.Preemption) -> Facts:
    """The job that took the GPUs, and the cost to the job that left."""
    return facts_of(preemption, "for_job_id user rule decide_time lost_s")


def range_facts(range_: forecast_pb2.TimeRange) -> Facts:
    """A time range as JSON; null for an instant beyond the simulated time."""
    return {
        name: instant(getattr(range_, name)) if range_.HasField(name) else None
        for name in ("earliest_time", "likely_time", "latest_time")
    }


def named_types(request: resource_pb2.ResourceRequest) -> tuple[str, ...]:
    """The GPU types of which any one will do, the one liked best first; none: all."""
    return (request.gpu_type, *request.or_gpu_types) if request.gpu_type else ()


def request_facts(request: resource_pb2.ResourceRequest) -> Facts:
    """The resources that a job asks for."""
    has = request.HasField
    return {
        "gpu_count": request.gpu_count,
        "node_count": request.node_count if has("node_count") else None,
        "gpu_type": request.gpu_type or None,
        "or_gpu_types": list(request.or_gpu_types),
        "cpu_limit": request.cpu_limit if has("cpu_limit") else None,
        "memory_limit_bytes": request.memory_limit_bytes if has("memory_limit_bytes") else None,
        "gpu_memory_bytes": request.gpu_memory_bytes if has("gpu_memory_bytes") else None,
        "halves_batch": request.halves_batch,
        "mixed_gpu_types": request.mixed_gpu_types,
        "constraint": dict(sorted(request.constraint.items())),
        "node_ids": list(request.node_ids),
        "excluded_node_ids": list(request.excluded_node_ids),
    }


def checkpoint_facts(checkpoint: job_pb2.Checkpoint) -> Facts:
    """A promoted checkpoint."""
    return {
        "path": checkpoint.path,
        "step": checkpoint.step if checkpoint.HasField("step") else None,
        "commit_time": (
            instant(checkpoint.commit_time) if checkpoint.HasField("commit_time") else None
        ),
        "attempt": checkpoint.attempt,
    }


def progress_facts(progress: job_pb2.Progress) -> Facts:
    """The last progress report of a job."""
    has = progress.HasField
    return {
        "step": progress.step if has("step") else None,
        "total_step_count": progress.total_step_count if has("total_step_count") else None,
        "loss": progress.loss if has("loss") else None,
        "beat_time": instant(progress.beat_time) if has("beat_time") else None,
    }


def attempt_facts(attempt: job_pb2.Attempt) -> Facts:
    """One try at running a job."""
    lease = attempt.lease
    return {
        "attempt": attempt.attempt,
        "epoch": attempt.fence.epoch,
        "state": ATTEMPT_STATES.get(attempt.state),
        "stop_cause": attempt.stop_cause or None,
        "lease_kind": LEASE_KINDS.get(lease.kind),
        **facts_of(lease, "term_end_time hold_until_time"),
        "slots": [facts_of(slot, "node_id gpu_indexes") for slot in lease.allocation.slots],
        "ranks": [rank_facts(rank) for rank in attempt.ranks],
        **facts_of(attempt, "assign_time start_time end_time grace_s first_failed_rank"),
    }


def rank_facts(rank: job_pb2.Rank) -> Facts:
    """One node's part of an attempt."""
    names = (
        "node_rank node_id phase? exit_code signal? error? failed_task? last_lines image_digest?"
    )
    return facts_of(rank, names)


def spec_facts(spec: job_pb2.JobSpec) -> Facts:
    """The submitted spec with its defaults. The environment is names only, because values may be
    secret.
    """
    has, preempt = spec.HasField, spec.preempt
    return {
        **facts_of(spec, "name command script? queue? team?"),
        "resources": request_facts(spec.resources),
        "elastic": elastic_spec_facts(spec.elastic) if has("elastic") else None,
        "environment": sorted(spec.environment),
        **facts_of(spec, "working_directory? time_limit_s run_estimate_s"),
        "deadlines": deadline_facts(spec.deadlines),
        **facts_of(spec, "on_miss? step_count"),
        "preempt": {
            "signal": preempt.signal or None,
            # For a job that is resized live it is torchrun, the main process, in spite of the
            # request.
            "signal_to": "main" if spec.elastic.resize == LIVE else preempt.signal_to or "main",
            **facts_of(preempt, "grace_s warning_s requeue_exit_codes exit_zero_completes"),
        },
        "checkpoint": facts_of(spec.checkpoint, "directory? marker? save_signal? settle_s"),
        "max_restart_count": spec.retry.max_restart_count,
        "hold": spec.hold,
        "array": array_text(spec.array) if has("array") else None,
        "depends_on": dependency_text(spec.dependency) or None,
        "cancel_if_never": spec.dependency.cancel_if_never,
        **facts_of(spec, "nice begin_time disconnect_hold_s runtime? launch?"),
        "roles": (
            {"workers": spec.roles.worker_count, "ps": spec.roles.ps_count}
            if has("roles")
            else None
        ),
        "container": container_facts(spec.container) if has("container") else None,
        "labels": dict(sorted(spec.labels.items())),
    }


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
        words.append(f"{word}:{term.job_id}" if term.job_id else word)
    return ("?" if dependency.any else ",").join(words)


def reason_facts(reasons: Iterable[job_pb2.WaitReason]) -> list[Facts]:
    """Typed reasons for a job not to run."""
    names = "code resource? need have blocking_job_ids blocking_users detail? subject? spent_s"
    return [facts_of(reason, names) for reason in reasons]


def wait_facts(waits: Iterable[job_pb2.WaitShare]) -> list[Facts]:
    """The waiting time of a job by reason."""
    return [facts_of(one, "code subject? spent_s main_s now") for one in waits]


def container_facts(container: job_pb2.ContainerSpec) -> Facts:
    """The container as it was asked for; of secrets only the names are known here."""
    return {
        "image": container.image,
        "mounts": [facts_of(mount, "source target read_only") for mount in container.mounts],
        **facts_of(container, "shm_size_bytes network? image_secret? secrets"),
    }


def elastic_facts(elastic: job_pb2.Elasticity) -> Facts:
    """The numbers of GPUs that suit the job, and its present number; null: no GPUs, or no change is
    on its way.
    """
    speeds = "gpu_count steps_per_second relative_speed? gpu_type"
    return {
        "gpu_counts": list(elastic.gpu_counts),
        "base_gpu_count": elastic.gpu_counts[0],
        **facts_of(elastic, "current_gpu_count? next_gpu_count? resize resize_count"),
        "speeds": [facts_of(each, speeds) for each in elastic.speeds],
    }


def elastic_spec_facts(elastic: job_pb2.ElasticSpec) -> Facts:
    """What was submitted."""
    return facts_of(elastic, "gpu_counts resize?")


def estimate_facts(estimate: job_pb2.RunEstimate) -> Facts:
    """The known run times, their source, and the missing parts."""
    return facts_of(estimate, "run_s source? confidence? step_s unmeasured? detail")


def promise_facts(promise: job_pb2.Promise) -> Facts:
    """The promise of a job, and the offers in its place."""
    names = """
        state ground? detail guaranteed_index earliest_time fix? fix_gpu_count fix_time slack_s
        work_s on_miss risk? risk_time saving_unknown
    """
    return {"deadlines": deadline_facts(promise.deadlines), **facts_of(promise, names)}


def deadline_facts(deadlines: Iterable[job_pb2.DeadlineStep]) -> list[Facts]:
    """Each deadline with the reward of an end by then."""
    return [facts_of(step, "due_time due_s reward") for step in deadlines]
