"""From messages to what the core believes: every value checked, none trusted for who sent it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable

from dlq.v1 import agent_service_pb2 as agent
from dlq.v1 import job_service_pb2 as jobs
from dlq.v1.job_pb2 import DependencySpec, DependencyTerm, JobSpec
from dlq_common.arrays import IndexRange, expand, parse_tasks
from dlq_common.errors import InvalidRequest
from dlq_common.names import check_node_name, check_user_name, check_word, printable, shown
from dlq_common.wire import from_duration, from_timestamp
from dlq_master.control.stimuli import (
    SAME,
    AskedArray,
    AskedDependency,
    AskedTerm,
    Caller,
    ReportedCheckpoint,
    ReportedPhase,
    ReportedProgress,
    ReportedRank,
    Same,
    SubmitJob,
    UpdateJob,
)
from dlq_master.model.eligible import Relation
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.job import ExitZeroInGrace, RunRules
from dlq_master.model.node import Gpu, Registered
from dlq_master.model.resources import PODMAN, Request
from dlq_master.rpc.edit import Edit
from dlq_master.rpc.node_choice import labels_of, nodes_of
from dlq_master.rpc.spec import (
    MOST_TASKS_OF_A_NODE,
    RELATIONS,
    SPANS,
    USER_SIGNALS,
    check_begin,
    check_dependency,
    check_name,
    check_nice,
    check_request_id,
    check_span,
    checked,
)

LARGEST_INTEGER = 2**63 - 1
LONGEST_WORDS = 500
LONGEST_LINE = 500
MOST_LAST_LINES = 10
LONGEST_TASK = 64
MOST_GPUS_OF_A_NODE = 1024
MOST_RUNTIMES = 16
MOST_RANKS = 10_000
SAVED_EXIT_CODE = 99

PHASES = {agent.RankPhase.Value(f"RANK_PHASE_{phase.name}"): phase for phase in ReportedPhase}


def job_id_of(text: str, field: str = "job_id") -> JobId:
    """A job's id: the decimal text of a positive 63-bit integer."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and text[0] != "0"):
        raise InvalidRequest(f"{shown(text)} is not a job id: write a number", field=field)
    if int(text) > LARGEST_INTEGER:
        raise InvalidRequest(f"{shown(text)} is not a job id", field=field)
    return JobId(int(text))


def node_id_of(text: str, field: str = "node_id") -> NodeId:
    """A node's id: a lower-case host name."""
    try:
        return NodeId(check_node_name(text))
    except ValueError as error:
        raise InvalidRequest(str(error), field=field) from None


def user_name_of(text: str, field: str) -> str:
    """A user's name."""
    try:
        return check_user_name(text)
    except ValueError as error:
        raise InvalidRequest(str(error), field=field) from None


def words_of(text: str, field: str) -> str:
    """Words for people, made safe to show."""
    if len(text) > LONGEST_WORDS:
        raise InvalidRequest(f"{field} is longer than {LONGEST_WORDS} characters", field=field)
    return printable(text)


# --- jobs ---------------------------------------------------------------------------------------


def submit_stimulus(request: jobs.SubmitJobRequest, caller: Caller) -> SubmitJob:
    """The submission, checked, with every default filled in."""
    request_id = "" if request.validate_only else check_request_id(request.request_id)
    spec = checked(request.spec)
    return SubmitJob(
        caller=caller,
        request_id=request_id,
        digest=_digest(request.spec),
        name=spec.name,
        queue=spec.queue,
        request=request_of(spec),
        spec=spec.SerializeToString(deterministic=True),
        rules=rules_of(spec),
        grace_s=(
            from_duration(spec.preempt.grace_duration)
            if spec.preempt.HasField("grace_duration")
            else None
        ),
        hold=spec.hold,
        time_limit_s=(
            from_duration(spec.time_limit_duration)
            if spec.HasField("time_limit_duration")
            else None
        ),
        run_estimate_s=(
            from_duration(spec.run_estimate_duration)
            if spec.HasField("run_estimate_duration")
            else None
        ),
        array=array_of(spec),
        depends=dependency_of(spec.dependency),
        begin_time_s=from_timestamp(spec.begin_time) if spec.HasField("begin_time") else None,
        nice=spec.nice,
        validate_only=request.validate_only,
    )


def _digest(spec: JobSpec) -> str:
    """Equal for a repeat: `now+1h` is another instant at every try, so that the begin does not count."""
    asked = JobSpec()
    asked.CopyFrom(spec)
    asked.ClearField("begin_time")
    return hashlib.sha256(asked.SerializeToString(deterministic=True)).hexdigest()[:32]


def update_stimulus(request: jobs.UpdateJobRequest, edit: Edit) -> UpdateJob:
    """The update of one job, checked field by field."""
    return UpdateJob(
        **edit,
        name=check_name(request.name, "name") if request.HasField("name") else SAME,
        queue=request.queue if request.HasField("queue") else SAME,
        nice=_nice(request) if request.HasField("nice") else SAME,
        time_limit_s=_new_limit_s(request),
        begin_time_s=_new_begin_s(request),
        depends=_new_dependency(request),
        concurrent=_concurrent(request) if request.HasField("concurrent_count") else SAME,
    )


def _nice(request: jobs.UpdateJobRequest) -> int:
    check_nice(request.nice)
    return request.nice


def _new_limit_s(request: jobs.UpdateJobRequest) -> float | Same | None:
    if request.clear_time_limit and request.HasField("time_limit_duration"):
        raise InvalidRequest("a time limit is given and taken away", field="clear_time_limit")
    if request.clear_time_limit:
        return None
    if not request.HasField("time_limit_duration"):
        return SAME
    least_s, most_s = SPANS["time_limit_duration"]
    return check_span("time_limit_duration", request.time_limit_duration, least_s, most_s)


def _new_begin_s(request: jobs.UpdateJobRequest) -> float | Same | None:
    if request.clear_begin and request.HasField("begin_time"):
        raise InvalidRequest("a begin is given and taken away", field="clear_begin")
    if request.clear_begin:
        return None
    if not request.HasField("begin_time"):
        return SAME
    check_begin(request.begin_time)
    return from_timestamp(request.begin_time)


def _new_dependency(request: jobs.UpdateJobRequest) -> AskedDependency | Same | None:
    if not request.HasField("dependency"):
        return SAME
    check_dependency(request.dependency)
    return dependency_of(request.dependency)


def _concurrent(request: jobs.UpdateJobRequest) -> int:
    if request.concurrent_count < 0:
        raise InvalidRequest("concurrent_count is negative", field="concurrent_count")
    return request.concurrent_count


def signal_of(name: str) -> str:
    """A signal that users may send, such as `USR1` or `SIGUSR1`."""
    word = name.upper().removeprefix("SIG")
    if word in ("KILL", "STOP"):
        raise InvalidRequest(
            f"{word} is not for `dlq signal`",
            field="signal",
            hint="to end a job: dlq cancel --kill",
        )
    if word not in USER_SIGNALS:
        raise InvalidRequest(
            f"{shown(name)} is not one of {', '.join(USER_SIGNALS)}", field="signal"
        )
    return word


def array_of(spec: JobSpec) -> AskedArray | None:
    """The indexes of an array; None for a single job."""
    if not spec.HasField("array"):
        return None
    ranges = [IndexRange(each.first, each.last, each.step or 1) for each in spec.array.ranges]
    step = ranges[0].step if len(ranges) == 1 else 1
    return AskedArray(expand(ranges), spec.array.concurrent_count, step)


def dependency_of(asked: DependencySpec) -> AskedDependency | None:
    """The jobs that must come first; None for none."""
    if not asked.terms:
        return None
    return AskedDependency(
        tuple(_term(term) for term in asked.terms), asked.any, asked.cancel_if_never
    )


def _term(term: DependencyTerm) -> AskedTerm:
    relation = RELATIONS[term.relation]
    if relation is Relation.SINGLETON:
        return AskedTerm(relation, JobId(0))
    named = parse_tasks(term.job_id)
    if named is None:
        return AskedTerm(relation, job_id_of(term.job_id, "spec.dependency"))
    return AskedTerm(relation, job_id_of(named.array_id, "spec.dependency"), named.indexes[0])


def request_of(spec: JobSpec) -> Request:
    """What the scheduler needs to know. The exact limits stay in the spec, for the agent."""
    asked = spec.resources
    return Request(
        gpus=asked.gpu_count,
        nodes=asked.node_count if asked.HasField("node_count") else None,
        gpu_type=asked.gpu_type or None,
        cpus_per_node=math.ceil(asked.cpu_limit) if asked.HasField("cpu_limit") else None,
        memory_bytes_per_node=(
            asked.memory_limit_bytes if asked.HasField("memory_limit_bytes") else None
        ),
        runtime=PODMAN if spec.HasField("container") else None,
        constraint=labels_of(asked.constraint, "spec.resources.constraint"),
        among=nodes_of(asked.node_ids),
        not_among=nodes_of(asked.excluded_node_ids),
    )


def rules_of(spec: JobSpec) -> RunRules:
    """What the spec says about stopping and running again."""
    preempt = spec.preempt
    rules = RunRules(
        requeue_exit_codes=frozenset({SAVED_EXIT_CODE, *preempt.requeue_exit_codes}),
        exit0_in_grace=(
            ExitZeroInGrace.COMPLETED if preempt.exit_zero_completes else ExitZeroInGrace.REQUEUE
        ),
        max_restarts=spec.retry.max_restart_count,
    )
    if preempt.HasField("warning_duration"):
        rules = rules._replace(warn_s=from_duration(preempt.warning_duration))
    if spec.HasField("disconnect_hold_duration"):
        rules = rules._replace(hold_s=from_duration(spec.disconnect_hold_duration))
    return rules


# --- agents -------------------------------------------------------------------------------------


def facts_of(facts: agent.NodeFacts) -> Registered:
    """What a host says of itself. The boot id is needed: by it lost attempts are told."""
    if not facts.boot_id or len(facts.boot_id) > 64 or not facts.boot_id.isprintable():
        raise InvalidRequest("a node needs a boot id of at most 64 characters", field="boot_id")
    if facts.cpu_count < 0 or facts.memory_bytes < 0:
        raise InvalidRequest("a host cannot have less than nothing", field="cpu_count")
    return Registered(
        gpus=_gpus(facts),
        boot_id=facts.boot_id,
        hostname=words_of(facts.hostname, "hostname"),
        address=_address(facts.address),
        agent_version=words_of(facts.agent_version, "agent_version"),
        virtual=facts.virtual_devices,
        cpu_count=facts.cpu_count,
        memory_bytes=facts.memory_bytes,
        root_jobs=facts.root_jobs,
        runtimes=_runtimes(facts),
    )


def _runtimes(facts: agent.NodeFacts) -> frozenset[str]:
    if len(facts.runtimes) > MOST_RUNTIMES:
        raise InvalidRequest(f"a node has at most {MOST_RUNTIMES} runtimes", field="runtimes")
    try:
        return frozenset(check_word(name, "runtime") for name in facts.runtimes)
    except ValueError as error:
        raise InvalidRequest(str(error), field="runtimes") from None


def _gpus(facts: agent.NodeFacts) -> tuple[Gpu, ...]:
    indexes = [gpu.index for gpu in facts.gpus]
    if len(set(indexes)) != len(indexes) or not all(
        0 <= index < MOST_GPUS_OF_A_NODE for index in indexes
    ):
        raise InvalidRequest("GPU indexes must differ and be small", field="gpus")
    try:
        return tuple(
            Gpu(
                index=gpu.index,
                gpu_type=check_word(gpu.gpu_type, "GPU type"),
                uuid=words_of(gpu.uuid, "gpus.uuid"),
                memory_bytes=max(0, gpu.memory_bytes),
            )
            for gpu in sorted(facts.gpus, key=lambda gpu: gpu.index)
        )
    except ValueError as error:
        raise InvalidRequest(str(error), field="gpus") from None


def _address(text: str) -> str:
    """A host name or a numeric address: it ends up in the environment of jobs."""
    if text and not all(char.isascii() and (char.isalnum() or char in ".:-_") for char in text):
        raise InvalidRequest(f"{shown(text)} is not an address", field="address")
    return words_of(text, "address")


_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


def reports_of(reports: Iterable[agent.RankReport]) -> tuple[ReportedRank, ...]:
    """Reports of ranks, in the order in which they were made."""
    read = tuple(report_of(report) for report in reports)
    if len(read) > MOST_RANKS:
        raise InvalidRequest(f"more than {MOST_RANKS} ranks", field="ranks")
    return read


def report_of(report: agent.RankReport) -> ReportedRank:
    """One report of a rank."""
    phase = PHASES.get(report.phase)
    if phase is None:
        raise InvalidRequest(f"no phase {report.phase}", field="phase")
    return ReportedRank(
        sequence=report.sequence,
        key=AttemptKey(job_id_of(report.job_id), _attempt(report.fence.attempt)),
        epoch=report.fence.epoch,
        node_rank=_rank(report.node_rank),
        phase=phase,
        exit_code=report.exit_code if report.HasField("exit_code") else None,
        signal=report.signal,
        oom_killed=report.oom_killed,
        error=printable(report.error[:LONGEST_WORDS]),
        ended_by=words_of(report.ended_by, "ended_by"),
        checkpoint=_checkpoint(report) if report.HasField("checkpoint") else None,
        done=report.done,
        save_s=(
            _positive(from_duration(report.save_duration))
            if report.HasField("save_duration")
            else None
        ),
        age_s=_positive(from_duration(report.age_duration)),
        gpu_indexes=_gpu_indexes(report),
        detail=printable(report.detail[:LONGEST_WORDS]),
        ports=_ports(report),
        workers_done=report.workers_done,
        last_lines=tuple(
            printable(line[:LONGEST_LINE]) for line in report.last_lines[-MOST_LAST_LINES:]
        ),
        failed_task=printable(report.failed_task[:LONGEST_TASK]),
        noticed=words_of(report.noticed, "noticed"),
        gpus_held=printable(report.gpus_held[:LONGEST_WORDS]),
        no_room=report.no_room,
        image_digest=_image_digest(report.image_digest),
    )


def _image_digest(word: str) -> str:
    if word and not _DIGEST.fullmatch(word):
        raise InvalidRequest("an image's digest is sha256: and 64 digits", field="image_digest")
    return word


def _ports(report: agent.RankReport) -> tuple[int, ...]:
    ports = tuple(report.ports)
    if len(ports) > MOST_TASKS_OF_A_NODE or not all(0 < port < 65_536 for port in ports):
        raise InvalidRequest("ports must be few, and between 1 and 65535", field="ports")
    return ports


def _gpu_indexes(report: agent.RankReport) -> tuple[int, ...]:
    indexes = report.gpu_indexes
    if len(indexes) > MOST_GPUS_OF_A_NODE or not all(
        0 <= index < MOST_GPUS_OF_A_NODE for index in indexes
    ):
        raise InvalidRequest("GPU indexes must be few and small", field="gpu_indexes")
    return tuple(indexes)


def _checkpoint(report: agent.RankReport) -> ReportedCheckpoint:
    found = report.checkpoint
    if not found.path.startswith("/") or printable(found.path) != found.path:
        raise InvalidRequest("a checkpoint has an absolute path", field="checkpoint.path")
    return ReportedCheckpoint(
        path=found.path,
        step=found.step if found.HasField("step") else None,
        age_s=_positive(from_duration(found.age_duration)),
        after_notice=found.after_notice,
    )


def progress_of(progress: agent.RankProgress) -> ReportedProgress:
    """What a running rank last said of itself."""
    return ReportedProgress(
        key=AttemptKey(job_id_of(progress.job_id), _attempt(progress.fence.attempt)),
        epoch=progress.fence.epoch,
        node_rank=_rank(progress.node_rank),
        step=progress.step if progress.HasField("step") else None,
        total=progress.total_step_count if progress.HasField("total_step_count") else None,
        loss=progress.loss if progress.HasField("loss") else None,
        age_s=(
            _positive(from_duration(progress.age_duration))
            if progress.HasField("age_duration")
            else None
        ),
        memory_bytes=progress.memory_bytes,
    )


def _attempt(number: int) -> int:
    if number < 1:
        raise InvalidRequest("attempts are counted from 1", field="fence.attempt")
    return number


def _rank(node_rank: int) -> int:
    if node_rank < 0:
        raise InvalidRequest("ranks are counted from 0", field="node_rank")
    return node_rank


def _positive(seconds: float) -> float:
    """Ages are never negative, whatever an agent's arithmetic says."""
    return max(0.0, seconds)
