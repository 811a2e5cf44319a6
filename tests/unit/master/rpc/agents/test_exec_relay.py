"""The caller of a command hears its end, or that the line is lost; never nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import job_service_pb2 as jobs
from dlq.v1.exec_pb2 import ExecEnded, ExecInput, ExecOutput, ExecSpec
from dlq_common.clock import SteadyClock
from dlq_common.errors import InvalidRequest, Unavailable
from dlq_common.ids import RandomIds
from dlq_master.model.ids import NodeId
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.exec_relay import MESSAGES_WAITING, ExecPipe, ExecRelay, _take
from dlq_master.rpc.agents.logs_relay import LogsRelay
from dlq_master.rpc.agents.sessions import Sessions
from dlq_master.rpc.jobs.execs import _feed

NODE = NodeId("n1")


async def test_a_line_lost_behind_the_last_word_is_told_to_a_slow_caller() -> None:
    """The end waits for room when the agent's stream is cancelled: it has not been told."""
    sessions = Sessions(CheckpointPlaces("/checkpoints", b"seed"))
    sessions.bind(sessions.expect(NODE), 1, 1, ())
    relay = ExecRelay(sessions, RandomIds(SteadyClock()))
    command = wire.OpenExecCommand(job_id="1")
    with relay.opened(NODE, command, ExecSpec(command=["true"])) as pipe:
        all_said = asyncio.Event()
        serving = asyncio.create_task(_served(relay, _said(command.relay_id, all_said)))
        await all_said.wait()
        for _ in range(10):
            await asyncio.sleep(0)  # until the last word waits for room
        serving.cancel()
        heard: list[bytes] = []
        with pytest.raises(Unavailable):
            await asyncio.wait_for(_hear(pipe, heard), 30.0)
        assert heard == [b"%d" % number for number in range(MESSAGES_WAITING)]
        with pytest.raises(asyncio.CancelledError):
            await serving


async def _hear(pipe: ExecPipe, heard: list[bytes]) -> None:
    async for output in pipe.outputs():
        heard.append(output.stdout)  # noqa: PERF401 - what came before an error counts


async def _served(relay: ExecRelay, requests: AsyncIterator[wire.ServeExecRequest]) -> None:
    async for _ in relay.serve(NODE, requests):
        pass


async def _said(relay_id: str, all_said: asyncio.Event) -> AsyncIterator[wire.ServeExecRequest]:
    yield wire.ServeExecRequest(relay_id=relay_id)
    for number in range(MESSAGES_WAITING):
        yield wire.ServeExecRequest(output=ExecOutput(stdout=b"%d" % number))
    all_said.set()
    yield wire.ServeExecRequest(output=ExecOutput(ended=ExecEnded(exit_code=0)))
    await asyncio.Event().wait()


# A field that nobody knows, of 200,000 bytes: number 1000, with its length before it.
UNKNOWN = b"\xc2\x3e\xc0\x9a\x0c" + b"x" * 200_000


async def test_fields_that_nobody_knows_count_for_the_size_of_an_input() -> None:
    """They are kept in the messages that wait, 5 MiB in each."""
    pipe = ExecPipe(NODE, ExecSpec(command=["cat"]))
    large = jobs.ExecJobRequest(input=ExecInput.FromString(UNKNOWN))
    with pytest.raises(InvalidRequest, match="bytes in one message"):
        await _feed(pipe, _one(large))
    assert pipe._inputs.empty()


async def test_fields_that_nobody_knows_count_for_the_size_of_outputs_and_logs() -> None:
    sessions = Sessions(CheckpointPlaces("/checkpoints", b"seed"))
    sessions.bind(sessions.expect(NODE), 1, 1, ())
    order = wire.OpenLogCommand(job_id="1")
    logs = LogsRelay(sessions, RandomIds(SteadyClock()))
    with logs.opened(NODE, order) as pipe:
        chunk = wire.PushLogRequest.FromString(UNKNOWN)
        chunk.relay_id = order.relay_id
        with pytest.raises(InvalidRequest, match="64 KiB"):
            await logs.push(NODE, _one(chunk))
        assert pipe._chunks.get_nowait() is None
    pipe_of_output = ExecPipe(NODE, ExecSpec(command=["cat"]))
    output = wire.ServeExecRequest(output=ExecOutput.FromString(UNKNOWN))
    with pytest.raises(InvalidRequest, match="bytes in one message"):
        await _take(pipe_of_output, _one(output))


async def _one(message: Any) -> AsyncIterator[Any]:
    yield message
