"""Lists of steps for the owners of their jobs and for operators, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.told_steps import StepFacts, StepState, TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.paging import position_of
from dlq_master.rpc.calls.reads import LOOKED_AT
from dlq_master.rpc.jobs.visible import visible_jobs

MOST_JOBS: Final = 1_000
MOST_STEPS: Final = 10_000  # of a page; an attempt more than that is still whole
_AT_ONCE: Final = 32  # jobs
_STATES: Final = {
    state: job_pb2.StepState.Value(f"STEP_STATE_{state.value.upper()}") for state in StepState
}


async def list_steps(call: Call, request: wire.ListStepsRequest) -> wire.ListStepsResponse:
    """A page of the steps of jobs of the caller. Nobody else learns of them, not even how many."""
    after, breathe = position_of(request.page_token), call.breathe()
    response, count = wire.ListStepsResponse(), 0
    job_ids = _asked(call.read, call.caller, request, after)
    for start in range(0, len(job_ids), _AT_ONCE):
        some = job_ids[start : start + _AT_ONCE]
        found = await call.parts.steps.read(some, every=request.all_attempts)
        for taken in found:
            listed = _listed(taken, call.read, running_only=request.running_only)
            await breathe(LOOKED_AT * max(1, len(listed.steps)))
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
        named = (job for text in request.job_ids for job in visible_jobs(read, caller, text))
        return sorted({job.job_id for job in named if job.job_id > after})
    return [
        job.job_id
        for job in read.jobs()
        if job.job_id > after and job.live_key is not None and caller.may_see(job)
    ]


def _listed(taken: TakenSteps, read: Published, *, running_only: bool) -> wire.AttemptSteps:
    living = read.attempt(taken.key) is not None
    ended_s = None if living else _end_of(read.attempts(taken.key.job_id), taken.key)
    return wire.AttemptSteps(
        job_id=str(taken.key.job_id),
        attempt=taken.key.number,
        steps=_messages(taken, living, ended_s, running_only=running_only),
        dropped_count=taken.dropped,
        dropped_failed_count=taken.dropped_failed,
        tell_time=to_timestamp(taken.told_s),
    )


def _end_of(attempts: Sequence[Attempt], key: AttemptKey) -> float | None:
    return next((each.ended_time_s for each in attempts if each.key == key), None)


def _messages(
    taken: TakenSteps, living: bool, ended_s: float | None, *, running_only: bool
) -> Iterator[job_pb2.JobStep]:
    for step in taken.steps:
        state = step.state(living=living)
        if state is StepState.RUNNING or not running_only:
            yield _message(step, state, taken.told_s, ended_s)


def _message(
    step: StepFacts, state: StepState, told_s: float, ended_s: float | None
) -> job_pb2.JobStep:
    start_s = told_s - step.age_s
    end_s = None if step.run_s is None else start_s + step.run_s
    if state is StepState.CANCELLED:
        end_s = max(start_s, told_s if ended_s is None else ended_s)
    return job_pb2.JobStep(
        number=step.number,
        name=step.name,
        state=_STATES[state],
        exit_code=step.exit_code,
        start_time=to_timestamp(start_s),
        end_time=to_timestamp(end_s),
        node_count=step.node_count,
        task_count=step.task_count,
        node_ids=step.node_ids,
        peak_memory_bytes=step.peak_memory_bytes,
        cpu_duration=to_duration(step.cpu_s),
    )
