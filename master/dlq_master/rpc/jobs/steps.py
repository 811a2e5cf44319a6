"""Lists of steps for the owners of their jobs and for operators, page by page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from dlq.v1 import agent_service_pb2 as agents
from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_duration, to_duration, to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import Attempt, TakenSteps
from dlq_master.model.ids import JobId
from dlq_master.rpc.calls.call import Call, position_of
from dlq_master.rpc.calls.reads import ENCODED, Breathe
from dlq_master.rpc.jobs.visible import cost_of, visible_jobs
from dlq_master.store.tables.codec import BodyDamaged

MOST_JOBS: Final = 1_000
MOST_NAMED: Final = 100_000  # jobs that are looked at
MOST_STEPS: Final = 10_000  # of a page; an attempt more than that is still whole
_AT_ONCE: Final = 32  # jobs
_LONGEST_S: Final = 10 * 366 * 86_400.0
_MOST_CODE: Final = 255
_MOST_NAME: Final = 256
_NOT_PLAIN: Final = re.compile(r"[^ -~]")


async def list_steps(call: Call, request: wire.ListStepsRequest) -> wire.ListStepsResponse:
    """A page of the steps of jobs of the caller. Nobody else learns of them, not even how many."""
    after, breathe = position_of(request.page_token), call.breathe()
    response, count = wire.ListStepsResponse(), 0
    job_ids = _asked(call.read, call.caller, request, after)
    for start in range(0, len(job_ids), _AT_ONCE):
        some = job_ids[start : start + _AT_ONCE]
        found = await call.parts.steps.read(some, every=request.all_attempts)
        for taken in found:
            listed = await _listed(taken, call.read, breathe, running_only=request.running_only)
            if listed.steps or not request.running_only:
                response.attempts.append(listed)
                count += len(listed.steps)
        if count >= MOST_STEPS and some[-1] != job_ids[-1]:
            response.next_page_token = str(some[-1])
            break
    return response


def _asked(
    read: Published, caller: Caller, request: wire.ListStepsRequest, after: int
) -> Sequence[JobId]:
    if len(request.job_ids) > MOST_JOBS:
        raise InvalidRequest(f"more than {MOST_JOBS} job_ids", field="job_ids")
    if request.job_ids:
        return sorted(job_id for job_id in _named(read, caller, request) if job_id > after)
    return [
        job.job_id
        for job in read.jobs()
        if job.job_id > after and job.live_key is not None and caller.may_see(job)
    ]


def _named(read: Published, caller: Caller, request: wire.ListStepsRequest) -> set[JobId]:
    found: set[JobId] = set()
    looked_at = 0
    for text in dict.fromkeys(request.job_ids):
        jobs = visible_jobs(read, caller, text)
        looked_at += cost_of(text, len(jobs))
        if looked_at > MOST_NAMED:
            raise InvalidRequest(f"more than {MOST_NAMED} jobs at once", field="job_ids")
        found.update(job.job_id for job in jobs)
    return found


async def _listed(
    taken: TakenSteps, read: Published, breathe: Breathe, *, running_only: bool
) -> wire.AttemptSteps:
    told = _report(taken)
    await breathe(ENCODED)
    living = read.attempt(taken.key) is not None
    ended_s = None if living else _end_of(read.attempts(taken.key.job_id), taken)
    dropped = max(0, told.dropped_count)
    listed = wire.AttemptSteps(
        job_id=str(taken.key.job_id),
        attempt=taken.key.number,
        dropped_count=dropped,
        dropped_failed_count=min(max(0, told.dropped_failed_count), dropped),
        tell_time=to_timestamp(taken.told_s),
    )
    if told.HasField("script_peak_memory_bytes"):
        listed.script_peak_memory_bytes = max(0, told.script_peak_memory_bytes)
        listed.script_cpu_duration.CopyFrom(to_duration(_span_s(told.script_cpu_duration)))
    for step in told.steps:
        if not running_only or (living and step.running):
            listed.steps.append(_message(step, taken.told_s, ended_s))
            await breathe(ENCODED)
    return listed


def _report(taken: TakenSteps) -> agents.StepsReport:
    try:
        return agents.StepsReport.FromString(taken.content)
    except DecodeError:
        raise BodyDamaged(f"the stored steps of job {taken.key.job_id} are damaged") from None


def _end_of(attempts: Sequence[Attempt], taken: TakenSteps) -> float:
    """The end of its attempt; of one that is not remembered the last word about it."""
    ends = (each.ended_time_s for each in attempts if each.key == taken.key)
    return next((end_s for end_s in ends if end_s is not None), taken.told_s)


def _message(step: agents.ToldStep, told_s: float, ended_s: float | None) -> job_pb2.JobStep:
    """A step as its owner sees it: every field fits, whatever the node has sent.

    `ended_s`: the end of its attempt. A step that still ran then was cancelled.
    """
    start_s = told_s - _span_s(step.age_duration)
    code = min(max(0, step.exit_code), _MOST_CODE)
    if not step.running:
        end_s: float | None = start_s + _span_s(step.run_duration)
        state = job_pb2.STEP_STATE_FAILED if code else job_pb2.STEP_STATE_COMPLETED
    elif ended_s is None:
        end_s, state = None, job_pb2.STEP_STATE_RUNNING
    else:
        end_s, state = max(start_s, ended_s), job_pb2.STEP_STATE_CANCELLED
    return job_pb2.JobStep(
        number=max(0, step.number),
        name=_plain(step.name),
        state=state,
        exit_code=code,
        start_time=to_timestamp(start_s),
        end_time=to_timestamp(end_s),
        node_count=max(0, step.node_count),
        task_count=max(0, step.task_count),
        node_ids=[_plain(name) for name in step.node_ids],
        peak_memory_bytes=max(0, step.peak_memory_bytes),
        cpu_duration=to_duration(_span_s(step.cpu_duration)),
    )


def _plain(text: str) -> str:
    if len(text) <= _MOST_NAME and text.isascii() and text.isprintable():
        return text
    return _NOT_PLAIN.sub("?", text[:_MOST_NAME])


def _span_s(duration: Duration) -> float:
    return min(max(0.0, from_duration(duration)), _LONGEST_S)
