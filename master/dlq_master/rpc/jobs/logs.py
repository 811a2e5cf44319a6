"""ReadLogs: finds a rank's output on its node, and reads it from there."""

from __future__ import annotations

from collections.abc import AsyncIterator

from dlq.v1 import agent_service_pb2 as agent
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.lease_pb2 import Fence
from dlq_common.errors import IllegalTransition, InvalidRequest, NotFound, Unavailable
from dlq_common.identity.pki import Role
from dlq_common.text.names import shown
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.naming import shown_id
from dlq_master.model.jobs.person import belongs
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.jobs.visible import visible_job
from dlq_master.rpc.specs.intake import job_id_of


async def read_logs(
    call: Call, request: wire.ReadLogsRequest
) -> AsyncIterator[wire.ReadLogsResponse]:
    """Output from the offset on; the last message says so. It may be resumed at any offset.

    The output itself stays on the nodes.
    """
    attempt = _attempt(call, request)
    ranks = attempt.ranks
    if not 0 <= request.node_rank < len(ranks):
        raise InvalidRequest(
            f"attempt {attempt.key} has ranks 0 to {len(ranks) - 1}", field="node_rank"
        )
    command = agent.OpenLogCommand(
        job_id=str(attempt.key.job_id),
        fence=Fence(epoch=attempt.epoch, attempt=attempt.key.number),
        node_rank=request.node_rank,
        offset=request.offset,
        follow=request.follow,
    )
    with call.parts.logs.opened(ranks[request.node_rank].node_id, command) as pipe:
        async for chunk in pipe.chunks():
            call.check_member()
            if chunk.error:
                raise _unreadable(attempt, ranks[request.node_rank].node_id, chunk.error)
            yield wire.ReadLogsResponse(
                offset=chunk.offset,
                data=chunk.data,
                end=chunk.end,
                attempt=attempt.key.number,
            )


def _attempt(call: Call, request: wire.ReadLogsRequest) -> Attempt:
    job = _job(call, request.job_id)
    if not job.attempts:
        raise IllegalTransition(
            f"job {shown_id(job)} has not started yet",
            hint=f"see why: dlq why {shown_id(job)}",
            id=job.job_id,
            state=job.state.value,
        )
    number = request.attempt or job.attempts
    for attempt in call.read.attempts(job.job_id):
        if attempt.key.number == number:
            return attempt
    raise NotFound(
        f"there is no attempt {shown_id(job)}.{number}",
        kind="attempt",
        id=f"{job.job_id}.{number}",
    )


def _job(call: Call, text: str) -> Job:
    """The job. The notifier may read only output that the job's owner wants to be told."""
    if call.caller.role != Role.NOTIFIER:
        return visible_job(call.read, call.caller, text)
    job = call.read.job(job_id_of(text))
    if job is None or not _is_told(call, job):
        raise NotFound(f"there is no job {shown(text)}", kind="job", id=text[:64])
    return job


def _is_told(call: Call, job: Job) -> bool:
    owner = call.read.user(job.user)
    return (
        owner is not None
        and belongs(job, owner.name, owner.person, owner.created_time_s)
        and any(rule.with_output for rule in call.read.notify_rules(owner.name))
    )


def _unreadable(attempt: Attempt, node_id: str, error: str) -> Unavailable | NotFound:
    """The error of an agent without such output: not yet, or not any more."""
    if error == "too_many_readers":
        return Unavailable(f"node {node_id} has as many readers of output as it can serve")
    if attempt.live:
        return Unavailable(f"attempt {attempt.key} has no output yet")
    return NotFound(
        f"the output of attempt {attempt.key} is gone: node {node_id} keeps it no longer"
        f" ({error[:80]})",
        kind="log",
        id=str(attempt.key),
    )
