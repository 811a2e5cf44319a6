"""ExecJob: permission to run a command inside a job, the place of the job, and passing the bytes
on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine

from dlq.v1 import agent_service_pb2 as agent
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.exec_pb2 import ExecEnded, ExecOutput, ExecRelay, ExecSpec
from dlq.v1.lease_pb2 import Fence
from dlq_common.errors import (
    IllegalTransition,
    InvalidRequest,
    PermissionDenied,
    TryAgain,
    Unavailable,
)
from dlq_common.identity.pki import Role
from dlq_common.text.names import printable
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.naming import shown_id
from dlq_master.rpc.agents.exec_relay import CALL_ENDED, ExecPipe
from dlq_master.rpc.calls.auth import fingerprint_of
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.jobs.visible import visible_job
from dlq_master.rpc.specs.intake import signal_of

OPENING_TIMEOUT_S = 10.0
MOST_COMMAND_BYTES = 64 * 1024
MOST_WORDS = 4096
FORWARD_COMMAND = "dlq-forward"
RESUME_KEY_LENGTHS = (16, 64)
# A stream in which nothing moves is looked at so often: is its caller still somebody?
MEMBER_CHECK_S = 30.0
LEAVING_S = 12.0
"""For a caller whose line through the relay has ended; above the keepalive of calls."""


async def exec_job(
    call: Call, requests: AsyncIterator[wire.ExecJobRequest]
) -> AsyncIterator[wire.ExecJobResponse]:
    """Everything that the command says, its end last. The command runs on a node.

    When the master restarts, or the line of an agent goes silent, the caller hears UNAVAILABLE
    within 8 s. The agent then keeps a command with a resume key for 45 s, and kills others. A
    caller that comes back with the key misses nothing. An agent that restarts kills its commands.
    When the job ends, its commands end too.
    """
    opening = await _opening(requests)
    job = visible_job(call.read, call.caller, opening.job_id)
    _check_owner(job, call.caller)
    attempt = _attempt(job, call.read, ended=opening.spec.resumed)
    ranks = attempt.ranks
    if not 0 <= opening.node_rank < len(ranks):
        raise InvalidRequest(
            f"attempt {attempt.key} has ranks 0 to {len(ranks) - 1}", field="opening.node_rank"
        )
    _check_spec(opening.spec)
    # On record before it runs, so that the trace survives the end of the master.
    about = f"{attempt.key} rank {opening.node_rank}: {printable(opening.spec.command[0])}"
    word = "RESUMED" if opening.spec.resumed else "STARTED"
    if opening.spec.relay:
        word = "RELAYED"
    await call.parts.record(call.identity, call.path, about, word, call.context.peer())
    command = agent.OpenExecCommand(
        job_id=str(job.job_id),
        fence=Fence(epoch=attempt.epoch, attempt=attempt.key.number),
        node_rank=opening.node_rank,
    )
    node_id = ranks[opening.node_rank].node_id
    if opening.spec.relay:
        command.relay_key = opening.spec.resume_key
        async for answer in _relayed(call, node_id, command, opening.spec):
            yield answer
        return
    with call.parts.execs.opened(node_id, command, opening.spec) as pipe:
        beside = [
            asyncio.create_task(_or_cut(pipe, _feed(pipe, requests))),
            asyncio.create_task(_or_cut(pipe, _watch_member(call))),
        ]
        try:
            async for output in pipe.outputs():
                call.check_member()
                _check_refusal(output, attempt, node_id)
                if output.HasField("started"):
                    output.started.relay = call.parts.execs.has_relay
                yield wire.ExecJobResponse(output=_shown(output, attempt, opening, pipe))
        except Unavailable:
            for task in beside:
                if task.done():
                    task.result()  # raises what the pipe was cut for
            raise
        except CALL_ENDED:
            pipe.is_lost = _comes_back(call, opening.spec)
            raise
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


def _comes_back(call: Call, spec: ExecSpec) -> bool:
    """Whether a caller may come back whose call has ended without a word."""
    return spec.says_left and bool(spec.resume_key) and call.cut is None


async def _relayed(
    call: Call, node_id: NodeId, command: agent.OpenExecCommand, spec: ExecSpec
) -> AsyncIterator[wire.ExecJobResponse]:
    """A line through the relay beside the master, for a command that runs already. The line ends
    with this call, so it ends when the caller goes, or is removed.
    """
    assert call.identity is not None
    if call.identity.by is not None:
        raise Unavailable("a service that acts for somebody has no line through the relay")
    fingerprint = fingerprint_of(call.context)
    place = (node_id, command, call.identity, fingerprint, lambda: _comes_back(call, spec))
    async with call.parts.execs.relayed(*place) as pair:
        relay = ExecRelay(address=pair.address, ticket=pair.caller_ticket, node=pair.node)
        yield wire.ExecJobResponse(output=ExecOutput(relay=relay))
        over = asyncio.ensure_future(pair.over())
        watching = asyncio.create_task(_watch_member(call))
        try:
            await asyncio.wait({over, watching}, return_when=asyncio.FIRST_COMPLETED)
            for task in (over, watching):
                if task.done():
                    task.result()
            # A caller whose line has ended goes in a moment. One that is dead is noticed here.
            await asyncio.wait({watching}, timeout=LEAVING_S)
        finally:
            for each in (over, watching):
                each.cancel()
            await asyncio.gather(over, watching, return_exceptions=True)


def _attempt(job: Job, read: Published, *, ended: bool) -> Attempt:
    """The one that runs. `ended`: or the last one, whose commands may still be taken up."""
    attempts = sorted(read.attempts(job.job_id), key=lambda one: one.key.number)
    for attempt in reversed(attempts):
        if attempt.live or ended:
            return attempt
    raise IllegalTransition(
        f"job {shown_id(job)} is {job.state.value}: nothing of it runs",
        hint=f"see why: dlq why {shown_id(job)}",
        id=job.job_id,
        state=job.state.value,
    )


async def _watch_member(call: Call) -> None:
    """Raises when the caller is removed, also when nothing moves."""
    while True:
        await asyncio.sleep(MEMBER_CHECK_S)
        call.check_member()


async def _or_cut(pipe: ExecPipe, work: Coroutine[None, None, None]) -> None:
    """Work beside the output; its failure ends the command."""
    try:
        await work
    except Exception:
        pipe.cut()
        raise


def _check_owner(job: Job, caller: Caller) -> None:
    """A command acts as the job's user, with the job's secrets: operators look, but are not that
    user.
    """
    if not caller.owns(job) and caller.role != Role.ADMIN:
        raise PermissionDenied(
            f"a command in job {shown_id(job)} would run as {job.user}, with what {job.user} may",
            hint="only its own user and admins may do that",
            user=caller.name,
            needs="admin",
        )


def _check_spec(spec: ExecSpec) -> None:
    if not spec.command or not spec.command[0]:
        raise InvalidRequest("the command is empty", field="opening.spec.command")
    if spec.forward and (list(spec.command) != [FORWARD_COMMAND] or spec.terminal):
        raise InvalidRequest(
            f"a forward has the command {FORWARD_COMMAND} alone, and no terminal",
            field="opening.spec.forward",
        )
    size = sum(len(word.encode()) + 1 for word in spec.command)
    if size > MOST_COMMAND_BYTES or len(spec.command) > MOST_WORDS:
        raise InvalidRequest(
            f"the command has {len(spec.command)} words and {size} bytes; the most is "
            f"{MOST_WORDS} and {MOST_COMMAND_BYTES}",
            field="opening.spec.command",
        )
    if any("\0" in word for word in spec.command):
        raise InvalidRequest("the command holds a NUL byte", field="opening.spec.command")
    if spec.relay and not spec.resumed:
        raise InvalidRequest("a command begins without the relay", field="opening.spec.relay")
    least, most = RESUME_KEY_LENGTHS
    if (spec.resume_key or spec.resumed) and not least <= len(spec.resume_key) <= most:
        raise InvalidRequest(
            f"a resume key has {least} to {most} characters", field="opening.spec.resume_key"
        )


async def _opening(requests: AsyncIterator[wire.ExecJobRequest]) -> wire.ExecJobOpening:
    try:
        first = await asyncio.wait_for(anext(requests), OPENING_TIMEOUT_S)
    except (StopAsyncIteration, TimeoutError):
        first = wire.ExecJobRequest()
    if first.WhichOneof("body") != "opening":
        raise InvalidRequest("the first message says what to run", field="opening")
    return first.opening


async def _feed(pipe: ExecPipe, requests: AsyncIterator[wire.ExecJobRequest]) -> None:
    """The input of the caller; its end does not end the command."""
    async for request in requests:
        if request.WhichOneof("body") != "input":
            raise InvalidRequest("only the first message says what to run", field="opening")
        if len(request.input.stdin) > pipe.largest_input:
            words = f"more than {pipe.largest_input} bytes in one message"
            raise InvalidRequest(words, field="input.stdin")
        if request.input.left:
            pipe.cut()
            return
        if request.input.signal:
            request.input.signal = signal_of(request.input.signal)
        await pipe.put_input(request.input)


def _check_refusal(output: ExecOutput, attempt: Attempt, node_id: NodeId) -> None:
    """The words by which an agent refuses (nodeagent execs/serving.py) are errors of the call."""
    if output.ended.error == "not_running":
        raise IllegalTransition(
            f"attempt {attempt.key} does not run on node {node_id} (yet, or any more)",
            hint=f"dlq show {attempt.key.job_id}",
            id=attempt.key.job_id,
            state=attempt.state.value,
        )
    if output.ended.error == "gone":
        raise IllegalTransition(
            f"the command does not run on node {node_id} any more: it ended with its line, or with "
            "the agent",
            id=attempt.key.job_id,
            state=attempt.state.value,
        )
    if output.ended.error == "too_many":
        raise TryAgain(
            f"job {attempt.key.job_id} or node {node_id} runs as many commands as it may",
            limit="commands",
        )


def _shown(
    output: ExecOutput, attempt: Attempt, opening: wire.ExecJobOpening, pipe: ExecPipe
) -> ExecOutput:
    """As the caller sees it: where it runs is what we know, and words are safe to show."""
    if output.HasField("started"):
        output.started.attempt = attempt.key.number
        output.started.node_rank = opening.node_rank
        output.started.node_id = pipe.node_id
        output.started.largest_piece_bytes = pipe.largest_input
    elif output.HasField("ended") and output.ended.error:
        ended = ExecEnded()
        ended.CopyFrom(output.ended)
        ended.error = printable(output.ended.error)[:1000]
        output = ExecOutput(ended=ended)
    return output
