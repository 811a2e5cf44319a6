"""Requests of users as values of the core. Every value is checked: a sender may be wrong or
hostile.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypedDict, TypeVar

from google.protobuf.duration_pb2 import Duration

from dlq.v1 import job_service_pb2 as jobs
from dlq.v1.job_pb2 import DependencySpec, DependencyTerm, ElasticSpec, JobSpec
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.reading.words import ATTEMPT_SCOPE, JOB_SCOPE
from dlq_common.job_fields.table.job import NAME
from dlq_common.job_fields.table.order import NICE, TIME_LIMIT
from dlq_common.live_resize import LIVE
from dlq_common.text.arrays import expand, parse_tasks
from dlq_common.text.names import (
    check_node_name,
    check_person_name,
    check_user_name,
    check_word,
    printable,
    shown,
)
from dlq_common.text.wire import from_duration, said
from dlq_master.control.stimuli import (
    SAME,
    AskedArray,
    AskedDependency,
    AskedTerm,
    Caller,
    Same,
    SubmitJob,
    UpdateJob,
)
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.eligible import Relation
from dlq_master.model.jobs.job import ExitZeroInGrace, RestartLimits, RunRules
from dlq_master.model.resources import CORE_TYPE, PODMAN, Request
from dlq_master.model.values import Changes, record_changer
from dlq_master.rpc.specs.cores import is_without_gpus
from dlq_master.rpc.specs.deadlines import (
    CANCEL,
    deadlines_of,
    is_sized,
    lateness_of,
    new_deadlines,
    new_on_miss,
)
from dlq_master.rpc.specs.elastic import new_sizes
from dlq_master.rpc.specs.node_choice import labels_of, nodes_of, passing
from dlq_master.rpc.specs.ordering import RELATIONS, check_begin, check_dependency, ranges_of
from dlq_master.rpc.specs.spec import (
    USER_SIGNALS,
    check_request_id,
    checked,
    known_parts,
)
from dlq_master.rpc.specs.terms import KnownTerms
from dlq_master.store.list_order import small

T = TypeVar("T")

LARGEST_JOB_ID = 2**62  # far below what the database can count: the next id exists too
LONGEST_WORDS = 500
LONGEST_SEARCH, MOST_SEARCHED = 256, 8  # letters and words
LARGEST_KNOWN, MOST_KNOWN = 2048, 256  # bytes of a spec that is known again; how many
FAMILY_LABEL = "family"
SAVED_EXIT_CODE = 99
SLURM = "slurm"  # the value of compat


def job_id_of(text: str, field: str = "job_id") -> JobId:
    """A job id: the decimal text of a positive integer, at most LARGEST_JOB_ID."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and text[0] != "0"):
        raise InvalidRequest(f"{shown(text)} is not a job id: write a number", field=field)
    if int(text) > LARGEST_JOB_ID:
        raise InvalidRequest(f"{shown(text)} is not a job id", field=field)
    return JobId(int(text))


def node_id_of(text: str, field: str = "node_id") -> NodeId:
    """A node id: a host name in small letters."""
    return NodeId(passing(check_node_name, text, field))


def user_name_of(text: str, field: str) -> str:
    """A user's name."""
    return passing(check_user_name, text, field)


def person_name_of(text: str, field: str) -> str:
    """The name of a user, or of a guest of another organisation."""
    return passing(check_person_name, text, field)


def team_name_of(text: str, field: str) -> str:
    """A team's name."""
    return passing(check_word, text, field, "team")


def needed(text: str, field: str, question: str) -> str:
    """A required word."""
    if not text:
        raise InvalidRequest(question, field=field)
    return text


def words_of(text: str, field: str) -> str:
    """A text for people, made safe to show."""
    if len(text) > LONGEST_WORDS:
        raise InvalidRequest(f"{field} is longer than {LONGEST_WORDS} characters", field=field)
    return printable(text)


class Edit(TypedDict):
    """The checked fields of all edits of one job."""

    caller: Caller
    request_id: str
    job_id: JobId
    expected_version: int


# --- jobs ---------------------------------------------------------------------------------------


def search_words(text: str) -> tuple[str, ...]:
    """The words of a search, each once, with ASCII letters small.

    InvalidRequest: they are too many, or too long.
    """
    words = tuple(dict.fromkeys(small(text).split())) if len(text) <= LONGEST_SEARCH else ()
    if len(text) > LONGEST_SEARCH or len(words) > MOST_SEARCHED:
        raise InvalidRequest(
            f"a search has {MOST_SEARCHED} words at most, and {LONGEST_SEARCH} letters",
            field="text",
        )
    if "\0" in text:  # SQLite would take it for the end of the word
        raise InvalidRequest("no name has the character 0", field="text")
    return words


def submit_stimulus(request: jobs.SubmitJobRequest, caller: Caller) -> SubmitJob:
    """The submission, checked, with every default filled in."""
    only = request.validate_only
    request_id = "" if only else check_request_id(request.request_id)
    return job_stimulus(request.spec, caller, request_id, brief=request.brief, validate_only=only)


def job_stimulus(
    asked: JobSpec, caller: Caller, request_id: str, *, brief: bool, validate_only: bool = False
) -> SubmitJob:
    """The same for one spec with a checked request id."""
    raw = asked.SerializeToString(deterministic=True)
    own = {"caller": caller, "request_id": request_id, "brief": brief}
    own["validate_only"] = validate_only
    known = _KNOWN.get(raw)
    if known is not None:
        return _changed(known, own)
    made = _made(asked, raw, own)
    if len(raw) <= LARGEST_KNOWN:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[raw] = made
    return made


def _made(asked: JobSpec, raw: bytes, own: Changes) -> SubmitJob:
    """The submission with its `own` fields; `raw`: the bytes of the spec."""
    spec, submission = _TERMS.of(known_parts(asked)) or _as_a_whole(asked)
    own |= {"name": spec.name, "spec": spec.SerializeToString(deterministic=True)}
    own |= {"digest": _digest(asked, raw), "family": family_of(spec), "program": program_of(spec)}
    return _changed(submission, own)


def _as_a_whole(asked: JobSpec) -> tuple[JobSpec, SubmitJob]:
    spec = checked(asked)
    return spec, _submission(spec, asked)


def _submission(spec: JobSpec, asked: JobSpec) -> SubmitJob:
    """All values that follow from the terms of a spec; `asked`: the spec as its user wrote it."""
    return SubmitJob(
        caller=_NOBODY,
        request_id="",
        digest="",
        name="",
        queue=spec.queue,
        spec=b"",
        rules=rules_of(spec)._replace(saves=_says_it_saves(asked)),
        ends_as_slurm=spec.compat == SLURM,
        grace_s=said(spec.preempt, "grace_duration"),
        hold=spec.hold,
        time_limit_s=said(spec, "time_limit_duration"),
        run_estimate_s=said(spec, "run_estimate_duration"),
        array=array_of(spec),
        depends=dependency_of(spec.dependency),
        begin_time_s=said(spec, "begin_time"),
        nice=spec.nice,
        records={"yes": True, "no": False}.get(spec.profile),
        request=request_of(spec),
        deadlines=deadlines_of(spec),
        lateness=lateness_of(spec),
        sized=is_sized(asked),
        step_count=said(spec, "step_count"),
        team=spec.team,
        interactive=spec.interactive.attended or bool(spec.interactive.stdin),
    )


_NOBODY = Caller("", "")
_TERMS = KnownTerms(_submission)
_changed = record_changer(SubmitJob)
_KNOWN: dict[bytes, SubmitJob] = {}  # the latest specs, each with a submission of it


def family_of(spec: JobSpec) -> str:
    """The family of a job: its user's jobs with the same label `family`.

    Without the label: jobs with the same program, arguments, environment, directory and image.
    """
    return spec.labels.get(FAMILY_LABEL, "") or _digest_of_program(spec)


def program_of(spec: JobSpec) -> str:
    """A key of the program: equal for jobs of a labelled family that run it alike. "" without a
    label.
    """
    return _digest_of_program(spec) if spec.labels.get(FAMILY_LABEL, "") else ""


def _digest_of_program(spec: JobSpec) -> str:
    program = JobSpec(
        command=spec.command,
        script=spec.script,
        working_directory=spec.working_directory,
        launch=spec.launch,
        compat=spec.compat,
    )
    program.environment.MergeFrom(spec.environment)
    if spec.HasField("roles"):
        program.roles.CopyFrom(spec.roles)
    program.container.image = spec.container.image
    return hashlib.sha256(program.SerializeToString(deterministic=True)).hexdigest()[:12]


def _digest(spec: JobSpec, raw: bytes) -> str:
    """The digest of a submission without its begin: `now+1h` is another instant in a repeat."""
    if spec.HasField("begin_time"):
        asked = JobSpec()
        asked.CopyFrom(spec)
        asked.ClearField("begin_time")
        raw = asked.SerializeToString(deterministic=True)
    return hashlib.sha256(raw).hexdigest()[:32]


def update_stimulus(request: jobs.UpdateJobRequest, edit: Edit) -> UpdateJob:
    """The update of one job, checked field by field."""
    name, nice = _new(request, NAME), _new(request, NICE)
    return UpdateJob(
        **edit,
        name=name,
        nice=nice,
        queue=request.queue if request.HasField("queue") else SAME,
        time_limit_s=_new_time_s(request, "time_limit", "time_limit_duration", _check_limit),
        begin_time_s=_new_time_s(request, "begin", "begin_time", check_begin),
        depends=_new_dependency(request),
        concurrent=_concurrent(request) if request.HasField("concurrent_count") else SAME,
        deadlines=new_deadlines(request),
        on_miss=new_on_miss(request),
        sizes=new_sizes(request),
        team=team_name_of(request.team, "team") if request.HasField("team") else SAME,
        validate_only=request.validate_only,
    )


def _new(request: jobs.UpdateJobRequest, asked: JobField[T]) -> T | Same:
    """The new value of a field, within the limit that holds at a submission."""
    wire, limit = asked.wire, asked.limit
    assert wire is not None
    if not request.HasField(wire.path):  # type: ignore[arg-type]  # a field of the table
        return SAME
    value: T = getattr(request, wire.path)
    if limit is not None:
        limit.check(wire.path, value)
    return value


def _new_time_s(
    request: jobs.UpdateJobRequest, what: str, field: str, check: Callable[[Any], None]
) -> float | Same | None:
    """The new value of a time that may also be removed."""
    clear, new_s = f"clear_{what}", said(request, field)
    if getattr(request, clear):
        if new_s is not None:
            told = f"a {what.replace('_', ' ')} is given and taken away"
            raise InvalidRequest(told, field=clear)
        return None
    if new_s is None:
        return SAME
    check(getattr(request, field))
    return float(new_s)


def _check_limit(asked: Duration) -> None:
    assert TIME_LIMIT.limit is not None
    TIME_LIMIT.limit.check("time_limit_duration", asked)


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
    ranges = ranges_of(spec)
    # As in Slurm: of `1-3,10-20:5` the first one that is written.
    step = next((each.step for each in ranges if each.step > 1), 1)
    return AskedArray(expand(ranges), spec.array.concurrent_count, step)


def dependency_of(asked: DependencySpec) -> AskedDependency | None:
    """The jobs that must end first; None: no such jobs."""
    if not asked.terms:
        return None
    return AskedDependency(
        tuple(_term(term) for term in asked.terms), asked.any, asked.cancel_if_never
    )


def _term(term: DependencyTerm) -> AskedTerm:
    relation = RELATIONS[term.relation]
    if relation is Relation.SINGLETON:
        return AskedTerm(relation, JobId(0))
    named, delay_s = parse_tasks(term.job_id), from_duration(term.delay_duration)
    name = term.job_id if named is None else named.array_id
    index = None if named is None else named.indexes[0]
    return AskedTerm(relation, job_id_of(name, "spec.dependency"), index, delay_s)


def request_of(spec: JobSpec) -> Request:
    """The facts for the scheduler. Exact limits stay in the spec, for the agent."""
    return _request(
        spec.resources.SerializeToString(deterministic=True),
        spec.elastic.SerializeToString(deterministic=True),
        spec.HasField("container"),
    )


@lru_cache(maxsize=4096)
def _request(resources: bytes, elastic: bytes, contained: bool) -> Request:
    """The request. Equal requests are the same object."""
    asked, sizes = ResourceRequest.FromString(resources), ElasticSpec.FromString(elastic)
    common = _Common(
        nodes=said(asked, "node_count"),
        memory_bytes_per_node=said(asked, "memory_limit_bytes"),
        runtime=PODMAN if contained else None,
        constraint=labels_of(asked.constraint, "spec.resources.constraint"),
        among=nodes_of(asked.node_ids),
        not_among=nodes_of(asked.excluded_node_ids),
    )
    if is_without_gpus(asked):  # cores take their place: devices of a type of their own
        core_bytes = said(asked, "core_memory_bytes")
        return Request(
            gpus=asked.core_count, gpu_type=CORE_TYPE, core_memory_bytes=core_bytes, **common
        )
    return Request(
        gpus=asked.gpu_count,
        gpu_type=asked.gpu_type or None,
        or_gpu_types=tuple(asked.or_gpu_types),
        cpus_per_node=math.ceil(asked.cpu_limit) if asked.HasField("cpu_limit") else None,
        gpu_memory_bytes=said(asked, "gpu_memory_bytes"),
        halves_batch=asked.halves_batch,
        mixed=asked.mixed_gpu_types,
        sizes=tuple(sizes.gpu_counts),
        live=sizes.resize == LIVE,
        **common,
    )


class _Common(TypedDict):
    """The facts of all jobs, with or without GPUs."""

    nodes: int | None
    memory_bytes_per_node: int | None
    runtime: str | None
    constraint: tuple[str, ...]
    among: tuple[NodeId, ...]
    not_among: tuple[NodeId, ...]


def _exit_zero(spec: JobSpec) -> ExitZeroInGrace:
    if spec.on_exit0_while_stopping:
        return ExitZeroInGrace(spec.on_exit0_while_stopping)
    completes = spec.preempt.exit_zero_completes
    return ExitZeroInGrace.COMPLETED if completes else ExitZeroInGrace.EVIDENCE


_DEFAULT_SCOPE = {False: JOB_SCOPE, True: ATTEMPT_SCOPE}


def rules_of(spec: JobSpec) -> RunRules:
    """The spec's rules about stops and retries."""
    preempt = spec.preempt
    rules = RunRules(
        requeue_exit_codes=frozenset({SAVED_EXIT_CODE, *preempt.requeue_exit_codes}),
        exit0_in_grace=_exit_zero(spec),
        done_exit_codes=frozenset(spec.completion_exit_codes),
        max_restarts=spec.retry.max_restart_count,
        limits=RestartLimits(**spec.retry.max_restart_counts),
        cancel_late=spec.on_miss == CANCEL,
        attended=spec.interactive.attended,
        once=spec.no_requeue,
        limit_each=(spec.time_limit_scope or _DEFAULT_SCOPE[spec.compat == SLURM]) == ATTEMPT_SCOPE,
    )
    if preempt.HasField("warning_duration"):
        rules = rules._replace(warn_s=from_duration(preempt.warning_duration))
    if spec.HasField("disconnect_hold_duration"):
        rules = rules._replace(hold_s=from_duration(spec.disconnect_hold_duration))
    return rules


def _says_it_saves(spec: JobSpec) -> bool:
    """Whether the user's spec names anything that only a program with checkpoints needs."""
    preempt, saved = spec.preempt, spec.checkpoint
    return bool(
        saved.directory
        or saved.marker
        or saved.save_signal
        or preempt.signal
        or preempt.signal_to
        or preempt.requeue_exit_codes
        or preempt.HasField("grace_duration")
    )
