"""A job, its spec and its attempts as text for people."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from dlq.v1 import job_pb2
from dlq_cli.facts.job import array_text, dependency_text, named_types
from dlq_cli.lists.columns import exit_text, left_s, progress, run_s, where
from dlq_cli.lists.tasks import shown_id
from dlq_cli.output.render import (
    Cell,
    OutputLook,
    clean_line,
    facts,
    moment,
    number,
    paint,
    sentence,
    table,
    when,
)
from dlq_cli.spec.values.elastic import told_to
from dlq_cli.text.elastic import elastic_text, estimate_text, speeds_text
from dlq_cli.text.foreseen import long_range
from dlq_cli.text.promises import promise_pairs
from dlq_cli.words import ATTEMPT_STATES, ENDED, HOLD_KINDS, LEASE_KINDS, shown_state
from dlq_common.job_fields.reading.words import ATTEMPT_SCOPE
from dlq_common.job_fields.wire import RestartsByCause
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import approximate_size, approximate_span, format_duration
from dlq_common.text.wire import from_duration, from_timestamp

NO_SUCH_PROGRAM = 127  # as shells exit
_RESTARTS = RestartsByCause("retry.max_restart_count")
# How bash, dash, env and the shim say it.
NO_PYTHON = re.compile(
    r"\bpython: (command )?not found|python['\u2019]: No such file|No such file or directory: 'python'"  # noqa: E501
)


def job_text(job: job_pb2.Job, look: OutputLook, spec: job_pb2.JobSpec | None = None) -> str:
    """The job: one heading, then its facts, and the spec if it is given."""
    head = f"Job {shown_id(job)} {clean_line(job.name)}: {paint(shown_state(job), look)}"
    return f"{head}\n" + facts((*job_pairs(job, look), *(spec_pairs(spec) if spec else ())))


def job_pairs(job: job_pb2.Job, look: OutputLook) -> tuple[tuple[str, str], ...]:
    """The facts of a job with their names; empty texts have nothing to say."""
    state = shown_state(job)
    return (
        ("user", job.user),
        ("queue", f"{job.queue}, level {job.level}"),
        ("team", job.team),
        ("asks for", request_text(job)),
        ("holds", _holds(job)),
        ("elastic", elastic_text(job.elastic) if job.HasField("elastic") else ""),
        ("speed by size", speeds_text(job.elastic)),
        ("nodes", where(job, look) if job.node_ids else ""),
        ("gpu type", job.gpu_type + (" (virtual devices)" if job.virtual_devices else "")),
        ("held by", _held(job)),
        ("stopping for", job.stop_cause),
        ("end", _end(job) if state in ENDED else ""),
        ("task of", _array(job)),
        ("depends on", job.dependency),
        ("nice", str(job.nice) if job.nice else ""),
        ("warned", _when(job, "warning_time", look)),
        ("not before", _when(job, "begin_time", look)),
        ("submitted", _when(job, "submit_time", look)),
        ("waiting since", _when(job, "queue_time", look) if state == "queued" else ""),
        ("first start", _when(job, "start_time", look)),
        ("will start", _will_start(job, look)),
        *(promise_pairs(job.promise, look) if job.HasField("promise") else ()),
        ("ended", _when(job, "end_time", look)),
        ("run time", _run_time(job)),
        ("estimate", estimate_text(job.run_estimate) if job.HasField("run_estimate") else ""),
        ("progress", progress(job, look)),
        ("use", use_text(job.activity)),
        ("idle", job.activity.idle_reason),
        ("stalled", job.activity.stall_reason),
        ("slowed down", job.activity.straggler_reason),
        ("suspended", _suspended(job, look)),
        ("checkpoint", _checkpoint(job, look)),
        ("unsaved work", _unsaved(job)),
        ("next grace", _grace(job)),
        ("service", f"{number(round(job.attained_gpu_seconds))} GPU-seconds"),
        ("preemptions", str(job.preemption_count) if job.preemption_count else ""),
        ("preempted", _preempted(job, look)),
        ("restarts by cause", _restarts(job)),
        ("a stop costs", _stop_cost(job)),
        (
            "lost",
            f"up to {number(round(job.lost_gpu_seconds))} GPU-seconds"
            if job.lost_gpu_seconds
            else "",
        ),
    )


def use_text(activity: job_pb2.JobActivity) -> str:
    """`GPUs 37 %, 70GiB of GPU memory, 620 W, 1410 MHz, idle for 12 min; 3.2 cores busy, 12GiB of
    memory; reads 12MiB/s, writes 1MiB/s`.
    """
    gpus = [
        f"GPUs {activity.utilization_percent:.0f} %"
        if activity.HasField("utilization_percent")
        else "",
        f"{approximate_size(activity.gpu_memory_bytes)} of GPU memory"
        if activity.HasField("gpu_memory_bytes")
        else "",
        f"{activity.power_watts} W" if activity.HasField("power_watts") else "",
        f"{activity.clock_mhz} MHz" if activity.HasField("clock_mhz") else "",
        f"idle for {approximate_span(from_duration(activity.idle_duration))}"
        if from_duration(activity.idle_duration) >= 1.0
        else "",
    ]
    disks = [
        f"{verb} {approximate_size(round(rate))}/s"
        for verb, rate in (
            ("reads", activity.read_bytes_per_second),
            ("writes", activity.written_bytes_per_second),
        )
        if rate >= 1.0
    ]
    host = [
        f"{activity.busy_cores:.1f} cores busy" if activity.HasField("busy_cores") else "",
        f"{approximate_size(activity.memory_bytes)} of memory"
        if activity.HasField("memory_bytes")
        else "",
    ]
    return "; ".join(filter(None, [", ".join(filter(None, part)) for part in (gpus, host, disks)]))


def _array(job: job_pb2.Job) -> str:
    """Its place, and its own id: commands and logs know both."""
    if not job.HasField("array_task"):
        return ""
    place = job.array_task
    if place.member:
        return (
            f"{place.array_id}, {place.task_count} jobs that start together; this one is "
            f"{place.member} (job {job.job_id}), and ends {place.ends}"
        )
    limit = f", {place.concurrent_count} at a time" if place.concurrent_count else ""
    return f"{place.array_id}, {place.task_count} tasks{limit}; this one is job {job.job_id}"


def _will_start(job: job_pb2.Job, look: OutputLook) -> str:
    """The forecast of its start; for a job that ran before, of its resume."""
    return long_range(job.start_estimate, look) if job.HasField("start_estimate") else ""


def _grace(job: job_pb2.Job) -> str:
    """The grace learned from saves; the requested grace stands with the rest of the request."""
    count = job.observed_save_count
    if not count:
        return ""
    saves = "1 save" if count == 1 else f"{count} saves"
    return f"{format_duration(from_duration(job.grace_duration))}, learned from {saves}"


def _preempted(job: job_pb2.Job, look: OutputLook) -> str:
    """The job that took its GPUs, the rule, and the cost."""
    if not job.HasField("last_preemption"):
        return ""
    last = job.last_preemption
    return f"{moment(from_timestamp(last.decide_time), look)}: {sentence(last.detail, look)}"


def _stop_cost(job: job_pb2.Job) -> str:
    """The measured cost; before a measurement it is the cluster's, and no fact of the job."""
    saves, resumes = job.observed_save_count, job.observed_resume_count
    if not saves and not resumes:
        return ""
    told = format_duration(from_duration(job.stop_cost_duration))
    return f"{told} without progress, by {_count(saves, 'save')} and {_count(resumes, 'resume')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _holds(job: job_pb2.Job) -> str:
    """The GPUs of a trial, if they are fewer than it asks for."""
    held = job.held_gpu_count
    if not held or held == job.resources.gpu_count or job.HasField("elastic"):
        return ""
    return f"{_count(held, 'GPU')}, to be measured on"


def request_text(job: job_pb2.Job) -> str:
    """The resources that a job asks for, in words."""
    request = job.resources
    kind = f" {' or '.join(named_types(request))}" if request.gpu_type else ""
    parts = [f"{request.gpu_count}{kind} GPU{'s' if request.gpu_count != 1 else ''}"]
    if request.core_count:
        parts = [f"no GPU, {_count(request.core_count, 'core')}"]
    if request.mixed_gpu_types:
        parts[0] += ", of several types at once if need be"
    if request.HasField("node_count"):
        parts[0] += f" on {request.node_count} node{'s' if request.node_count != 1 else ''}"
    if request.HasField("core_memory_bytes"):
        parts.append(f"{approximate_size(request.core_memory_bytes)} a core")
    if request.HasField("cpu_limit") and not request.core_count:
        parts.append(f"{number(request.cpu_limit)} cores a node")
    if request.HasField("memory_limit_bytes"):
        parts.append(f"{approximate_size(request.memory_limit_bytes)} a node")
    if request.HasField("gpu_memory_bytes"):
        half = ", or half of it" if request.halves_batch else ""
        parts.append(f"{approximate_size(request.gpu_memory_bytes)} of GPU memory{half}")
    if request.constraint:
        wanted = (f"{name}={value}" for name, value in sorted(request.constraint.items()))
        parts.append(f"with {' and '.join(wanted)}")
    if request.node_ids:
        parts.append(f"among {compress_hostlist(request.node_ids)}")
    if request.excluded_node_ids:
        parts.append(f"not {compress_hostlist(request.excluded_node_ids)}")
    return ", ".join(parts)


def reason_text(reason: job_pb2.WaitReason, look: OutputLook | None = None) -> str:
    """A reason as the master's sentence, on one line; with `look` its instants as stdout shows
    them.
    """
    text = reason.detail or reason.code
    return clean_line(text) if look is None else sentence(text, look)


def spec_pairs(spec: job_pb2.JobSpec) -> tuple[tuple[str, str], ...]:
    """The parts of the spec that the job does not show already."""
    command = shlex.join(spec.command)
    if spec.script:
        interpreter = spec.script.partition("\n")[0].removeprefix("#!").strip()
        command = " ".join(filter(None, (f"script for {interpreter}", command)))
    preempt, checkpoint = spec.preempt, spec.checkpoint
    return (
        ("command", command),
        ("directory", spec.working_directory),
        ("environment", ", ".join(sorted(spec.environment))),
        ("signal", preempt.signal),
        ("signal to", told_to(preempt.signal_to, spec.elastic.resize)),
        (
            "grace",
            format_duration(from_duration(preempt.grace_duration))
            if preempt.HasField("grace_duration")
            else "auto",
        ),
        ("requeue exit", ", ".join(map(str, preempt.requeue_exit_codes))),
        ("checkpoints", " ".join(filter(None, (checkpoint.directory, checkpoint.marker)))),
        ("restarts", restart_limits(spec)),
        ("steps", str(spec.step_count) if spec.HasField("step_count") else ""),
        ("runtime", spec.runtime),
        ("launch", spec.launch),
        ("roles", _roles(spec.roles) if spec.HasField("roles") else ""),
        ("image", spec.container.image),
        ("mounts", ", ".join(map(_mount_text, spec.container.mounts))),
        ("secrets", ", ".join(spec.container.secrets)),
        ("array", array_text(spec.array) if spec.HasField("array") else ""),
        ("dependency", dependency_text(spec.dependency)),
        ("labels", ", ".join(f"{name}={text}" for name, text in sorted(spec.labels.items()))),
    )


def _roles(roles: job_pb2.RolesSpec) -> str:
    return f"workers: {roles.worker_count}, parameter servers: {roles.ps_count}"


def _mount_text(mount: job_pb2.Mount) -> str:
    return f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"


ATTEMPT_CELLS = (
    Cell("ATTEMPT", right=True),
    Cell("STATE", state=True),
    Cell("CAUSE"),
    Cell("LEASE"),
    Cell("STARTED"),
    Cell("ENDED"),
    Cell("GPUS"),
    Cell("RANKS"),
)


def attempts_text(attempts: Sequence[job_pb2.Attempt], look: OutputLook) -> str:
    """A table of attempts, oldest first; nothing when there are none."""
    if not attempts:
        return ""
    return table(ATTEMPT_CELLS, (attempt_row(attempt, look) for attempt in attempts), look)


def end_note_text(attempts: Sequence[job_pb2.Attempt]) -> str:
    """The meaning of exit 0 of the last ended attempt, and why; empty if it ended otherwise."""
    ended = [it for it in attempts if it.HasField("end_time")]
    if not ended or not ended[-1].end_note:
        return ""
    return f"attempt {ended[-1].attempt}: {clean_line(ended[-1].end_note)}\n"


def failure_text(attempts: Sequence[job_pb2.Attempt]) -> str:
    """The first failed rank of the last attempt, with its last output; empty if no rank failed."""
    if not attempts or not attempts[-1].HasField("first_failed_rank"):
        return ""
    first = attempts[-1].first_failed_rank
    rank = next((it for it in attempts[-1].ranks if it.node_rank == first), None)
    if rank is None:
        return ""
    task = f" ({clean_line(rank.failed_task)})" if rank.failed_task else ""
    outcome = _rank(rank).partition(":")[2]
    head = f"failed first: node rank {first}{task} on {rank.node_id}: {clean_line(outcome)}"
    lines = [f"  | {clean_line(line)}" for line in rank.last_lines]
    return "\n".join([head, *lines, *_remedy(rank)]) + "\n"


def _remedy(rank: job_pb2.Rank) -> list[str]:
    """Advice about the commonest program that a node lacks."""
    said = [rank.error, *rank.last_lines]
    if rank.exit_code != NO_SUCH_PROGRAM or not any(map(NO_PYTHON.search, said)):
        return []
    return [
        f"  node {clean_line(rank.node_id)} has no program named python (Debian and Ubuntu call it "
        "python3): write python3, or activate an environment first"
    ]


def images_text(attempts: Sequence[job_pb2.Attempt]) -> str:
    """The image of the last attempt, by digest; nodes are named only where they differ (a tag has
    moved).
    """
    nodes: dict[str, list[str]] = {}
    for rank in attempts[-1].ranks if attempts else ():
        if rank.image_digest:
            nodes.setdefault(rank.image_digest, []).append(rank.node_id)
    if len(nodes) < 2:
        return "".join(f"image: {digest}\n" for digest in nodes)
    return "".join(
        f"image: {digest} on {compress_hostlist(names)}\n" for digest, names in nodes.items()
    )


def attempt_row(attempt: job_pb2.Attempt, look: OutputLook) -> list[str]:
    """The texts below `ATTEMPT_CELLS`."""
    slots = (
        f"{slot.node_id}[{','.join(map(str, slot.gpu_indexes))}]"
        for slot in attempt.lease.allocation.slots
    )
    return [
        str(attempt.attempt),
        ATTEMPT_STATES.get(attempt.state) or "unknown",
        attempt.stop_cause,
        LEASE_KINDS.get(attempt.lease.kind) or "",
        when(from_timestamp(attempt.start_time), look) if attempt.HasField("start_time") else "",
        when(from_timestamp(attempt.end_time), look) if attempt.HasField("end_time") else "",
        " ".join(slots),
        " ".join(_rank(rank) for rank in attempt.ranks),
    ]


def _rank(rank: job_pb2.Rank) -> str:
    outcome = rank.phase
    if rank.signal:
        outcome = f"signal {rank.signal}"
    elif rank.HasField("exit_code"):
        outcome = f"exit {rank.exit_code}"
    elif rank.error:
        outcome = rank.error
    return f"{rank.node_rank}:{outcome}"


def _held(job: job_pb2.Job) -> str:
    kind = HOLD_KINDS.get(job.hold_kind)
    if not kind:
        return ""
    name = f" ({job.held_by})" if job.held_by else ""
    return f"{kind}{name}: {job.hold_reason}" if job.hold_reason else f"{kind}{name}"


def _end(job: job_pb2.Job) -> str:
    failed = shown_state(job) == "failed"  # the reason of no former hold
    used_up = job.hold_reason if failed else ""
    return ", ".join(filter(None, (job.end_reason, exit_text(job), used_up)))


def restart_limits(spec: job_pb2.JobSpec) -> str:
    """How often it is started again after failures: of its program in all, and by cause."""
    limits = _RESTARTS.take(spec)
    if limits is None:
        return ""
    causes = ", ".join(f"{cause} {most}" for cause, most in limits.by_cause)
    own = limits.own or 0
    return f"{own} (limits: {causes})" if causes else str(own)


def _restarts(job: job_pb2.Job) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in sorted(job.restart_counts.items()))


def _when(job: job_pb2.Job, field: str, look: OutputLook) -> str:
    seconds = from_timestamp(getattr(job, field))
    return moment(seconds, look) if seconds else ""


def _run_time(job: job_pb2.Job) -> str:
    limit = (
        f" of {format_duration(from_duration(job.time_limit_duration))}"
        if job.HasField("time_limit_duration")
        else ""
    )
    attempts = f", {job.attempt_count} attempts" if job.attempt_count > 1 else ""
    if job.time_limit_scope == ATTEMPT_SCOPE and limit:
        limit = f", each attempt at most {limit.removeprefix(' of ')}"
        limit += (
            f", {format_duration(left_s(job))} left" if job.HasField("time_left_duration") else ""
        )
    return format_duration(run_s(job)) + limit + attempts


def _checkpoint(job: job_pb2.Job, look: OutputLook) -> str:
    if not job.HasField("checkpoint"):
        return ""
    saved = job.checkpoint
    step = f", step {saved.step}" if saved.HasField("step") else ""
    time = (
        f", {when(from_timestamp(saved.commit_time), look)}"
        if saved.HasField("commit_time")
        else ""
    )
    return f"{saved.path} (attempt {saved.attempt}{step}{time})"


_PHASES = {"leaving": "on its way off its GPUs", "coming": "on its way back to its GPUs"}


def _suspended(job: job_pb2.Job, look: OutputLook) -> str:
    """Its place in the memory of its hosts, and for whom it left."""
    if not job.HasField("suspension"):
        return ""
    out = job.suspension
    held = f"{approximate_size(out.memory_bytes)} in the memory of {', '.join(out.node_ids)}"
    what = _PHASES.get(out.phase, held)
    whom = f"for job {out.for_job_id}" if out.for_job_id else "until dlq resume"
    if out.HasField("end_time"):
        whom += f" or {when(from_timestamp(out.end_time), look)}"
    return f"{what}, {whom}, since {when(from_timestamp(out.since_time), look)}"


def _unsaved(job: job_pb2.Job) -> str:
    if not job.HasField("work_at_risk_duration"):
        return ""
    unsaved = approximate_span(from_duration(job.work_at_risk_duration))
    return f"up to {unsaved} ({'never saved' if job.never_saved else 'since the last checkpoint'})"
