"""ExecJob: checks that a command may run inside a job, finds its node, and passes the bytes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing

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
from dlq_master.rpc.agents.exec_relay import BESIDE_BYTES, CALL_ENDED, ExecPipe
from dlq_master.rpc.calls.auth import fingerprint_of
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.jobs.visible import visible_job
from dlq_master.rpc.specs.intake import signal_of

OPENING_TIMEOUT_S = 10.0
MOST_COMMAND_BYTES = 64 * 1024
MOST_WORDS = 4096
FORWARD_COMMAND = "dlq-forward"
RESUME_KEY_LENGTHS = (16, 64)
# How often the caller of a silent stream is checked again.
MEMBER_CHECK_S = 30.0
# The time that a caller has to go once its line through the relay has ended; above the keepalive.
LEAVING_S = 12.0


async def exec_job(
    call: Call, requests: AsyncIterator[wire.ExecJobRequest]
) -> AsyncIterator[wire.ExecJobResponse]:
    """The output of a command in a job, with its end last.

    If the master restarts, or the agent's line goes silent, the caller gets UNAVAILABLE within 8 s.
    The agent then keeps a command with a resume key for 45 s, and kills others. A caller that comes
    back with the key misses nothing. An agent that restarts kills its commands. When the job ends,
    its commands end too.
    """
    opening = await _opening(requests)
    job = visible_job(call.read, call.caller, opening.job_id)
    _check_owner(job, call.caller)
    attempt = _attempt(job, call.read, ended=opening.spec.resumed)
    node_id = _node_of(attempt, opening.node_rank)
    _check_spec(opening.spec)
    await _record(call, attempt, opening)
    command = agent.OpenExecCommand(
        job_id=str(job.job_id),
        fence=Fence(epoch=attempt.epoch, attempt=attempt.key.number),
        node_rank=opening.node_rank,
    )
    if opening.spec.relay:
        command.relay_key = opening.spec.resume_key
        answers = _relayed(call, node_id, command, opening.spec)
    else:
        answers = _piped(call, requests, attempt, opening, command)
    async with aclosing(answers):
        async for answer in answers:
            yield answer


def _node_of(attempt: Attempt, node_rank: int) -> NodeId:
    """The node of a rank. InvalidRequest: the attempt has no such rank."""
    ranks = attempt.ranks
    if not 0 <= node_rank < len(ranks):
        raise InvalidRequest(
            f"attempt {attempt.key} has ranks 0 to {len(ranks) - 1}", field="opening.node_rank"
        )
    return ranks[node_rank].node_id


async def _record(call: Call, attempt: Attempt, opening: wire.ExecJobOpening) -> None:
    """Record the command in the audit before it runs, so that the trace survives the master."""
    about = f"{attempt.key} rank {opening.node_rank}: {printable(opening.spec.command[0])}"
    word = "RESUMED" if opening.spec.resumed else "STARTED"
    if opening.spec.relay:
        word = "RELAYED"
    await call.parts.record(call.identity, call.path, about, word, call.context.peer())


async def _piped(
    call: Call,
    requests: AsyncIterator[wire.ExecJobRequest],
    attempt: Attempt,
    opening: wire.ExecJobOpening,
    command: agent.OpenExecCommand,
) -> AsyncGenerator[wire.ExecJobResponse, None]:
    """The output of a command whose bytes pass through the master."""
    node_id = _node_of(attempt, opening.node_rank)
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
                    task.result()  # raises the reason of the cut
            raise
        except CALL_ENDED:
            pipe.is_lost = _comes_back(call, opening.spec)
            raise
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


def _comes_back(call: Call, spec: ExecSpec) -> bool:
    """Whether a caller whose call was lost may take its command up again."""
    return spec.says_left and bool(spec.resume_key) and call.cut is None


async def _relayed(
    call: Call, node_id: NodeId, command: agent.OpenExecCommand, spec: ExecSpec
) -> AsyncGenerator[wire.ExecJobResponse, None]:
    """A line through the relay process, for a command that runs already.

    The line ends with this call, and so when the caller goes or is removed.
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
            # A caller goes soon after its line has ended. This notices a dead one.
            await asyncio.wait({watching}, timeout=LEAVING_S)
        finally:
            for each in (over, watching):
                each.cancel()
            await asyncio.gather(over, watching, return_exceptions=True)


def _attempt(job: Job, read: Published, *, ended: bool) -> Attempt:
    """The live attempt. `ended`: else the last one, whose commands may still be taken up."""
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
    """Raise when the caller is removed, even if the stream is silent."""
    while True:
        await asyncio.sleep(MEMBER_CHECK_S)
        call.check_member()


async def _or_cut(pipe: ExecPipe, work: Coroutine[None, None, None]) -> None:
    """Run work beside the output; its failure ends the command."""
    try:
        await work
    except Exception:
        pipe.cut()
        raise


def _check_owner(job: Job, caller: Caller) -> None:
    """PermissionDenied: the command would run as the job's user, with the user's secrets.

    Operators may look at a job, but may not act as its user.
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
    """Pass the caller's input on. Its end does not end the command."""
    async for request in requests:
        if request.WhichOneof("body") != "input":
            raise InvalidRequest("only the first message says what to run", field="opening")
        # Fields that this master does not know count too: they wait in memory like all others.
        beside = request.input.ByteSize() - len(request.input.stdin)
        if len(request.input.stdin) > pipe.largest_input or beside > BESIDE_BYTES:
            words = f"more than {pipe.largest_input} bytes in one message"
            raise InvalidRequest(words, field="input.stdin")
        if request.input.left:
            pipe.cut()
            return
        if request.input.signal:
            request.input.signal = signal_of(request.input.signal)
        await pipe.put_input(request.input)


def _check_refusal(output: ExecOutput, attempt: Attempt, node_id: NodeId) -> None:
    """Raise an error for the words with which an agent refuses (nodeagent execs/serving.py)."""
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
    """The output as the caller sees it, with the place that the master knows, and with
    safe words.
    """
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
