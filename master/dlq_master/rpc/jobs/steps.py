"""Lists of steps, page by page, for the owners of their jobs and for operators."""

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
from dlq_master.control.read_model.job_blocks import EVERYBODY
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import Attempt, TakenSteps
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.call import Call, position_of
from dlq_master.rpc.calls.reads import ENCODED, LOOKED_AT, Breathe
from dlq_master.rpc.jobs.lists.selection import A_BLOCK
from dlq_master.rpc.jobs.visible import each_named, visible_jobs
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
    """A page of the steps of the caller's jobs. No other caller learns anything, not even their
    number.
    """
    after, breathe = position_of(request.page_token), call.breathe()
    response, count = wire.ListStepsResponse(), 0
    job_ids = await _asked(call.read, call.caller, request, after, breathe)
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


async def _asked(
    read: Published, caller: Caller, request: wire.ListStepsRequest, after: int, breathe: Breathe
) -> Sequence[JobId]:
    """The jobs after `after`, in order: the named ones, or all of the caller's that run."""
    if len(request.job_ids) > MOST_JOBS:
        raise InvalidRequest(f"more than {MOST_JOBS} job_ids", field="job_ids")
    if request.job_ids:
        named = await _named(read, caller, request, breathe)
        return sorted(job_id for job_id in named if job_id > after)
    found: list[JobId] = []
    user = EVERYBODY if caller.sees_all else caller.name
    for number in read.block_numbers(user, after):
        block = read.block(user, number)
        await breathe(A_BLOCK + LOOKED_AT * block.living * len(block.jobs))
        found += [job.job_id for job in block.jobs if block.living and _runs(job, caller, after)]
    return found


def _runs(job: Job, caller: Caller, after: int) -> bool:
    return job.job_id > after and job.live_key is not None and caller.may_see(job)


async def _named(
    read: Published, caller: Caller, request: wire.ListStepsRequest, breathe: Breathe
) -> set[JobId]:
    """The jobs that `job_ids` name. NotFound: one of them does not exist, or is hidden."""

    def look_up(name: str) -> list[Job]:
        return visible_jobs(read, caller, name)

    found: set[JobId] = set()
    for named in each_named(dict.fromkeys(request.job_ids), look_up, "job_ids", MOST_NAMED):
        await breathe(LOOKED_AT * named.cost)
        found.update(job.job_id for job in named.jobs)
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
    """The end of its attempt; for a forgotten attempt, the time of its last report."""
    ends = (each.ended_time_s for each in attempts if each.key == taken.key)
    return next((end_s for end_s in ends if end_s is not None), taken.told_s)


def _message(step: agents.ToldStep, told_s: float, ended_s: float | None) -> job_pb2.JobStep:
    """A step as its owner sees it. Every field is valid, whatever the node has sent.

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
    """The text with unprintable characters replaced, and cut off."""
    if len(text) <= _MOST_NAME and text.isascii() and text.isprintable():
        return text
    return _NOT_PLAIN.sub("?", text[:_MOST_NAME])


def _span_s(duration: Duration) -> float:
    return min(max(0.0, from_duration(duration)), _LONGEST_S)
