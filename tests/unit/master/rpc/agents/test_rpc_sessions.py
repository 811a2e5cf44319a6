"""Lines to agents: one per node, nothing lost between a hello and its answer, nothing unbounded."""

from __future__ import annotations

from dlq.v1 import agent_service_pb2 as wire
from dlq_master.control.stimuli import Stop
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.sessions import MOST_UNREAD, Line, Sessions

GPU01 = NodeId("gpu01")


def a_stop(sequence: int) -> Stop:
    return Stop(
        sequence=sequence,
        key=AttemptKey(JobId(1), 1),
        epoch=3,
        node_id=GPU01,
        node_rank=0,
        cause="cancel",
        grace_s=1.0,
    )


def a_welcome() -> list[wire.SessionResponse]:
    return [wire.SessionResponse(welcome=wire.Welcome(epoch=3))]


def opened(sessions: Sessions, session_id: int) -> Line:
    line = sessions.expect(GPU01)
    sessions.bind(line, session_id, 3, a_welcome())
    return line


async def said(line: Line, count: int) -> list[str]:
    """The next messages on a line: their kind, and the sequence of commands."""
    words = []
    async for message in line.messages():
        kind = str(message.WhichOneof("body"))
        words.append(f"{kind} {message.command.sequence}" if kind == "command" else kind)
        if len(words) == count:
            break
    return words


async def test_a_command_sent_while_the_hello_is_answered_follows_the_welcome() -> None:
    sessions = Sessions(CheckpointPlaces("/ckpt", b"seed"))
    line = sessions.expect(GPU01)
    sessions.send(GPU01, 8, [a_stop(4)])
    sessions.bind(line, 8, 3, a_welcome())
    sessions.send(GPU01, 8, [a_stop(5)])
    assert await said(line, 3) == ["welcome", "command 4", "command 5"]


async def test_a_command_for_another_session_is_not_said() -> None:
    sessions = Sessions(CheckpointPlaces("/ckpt", b"seed"))
    line = sessions.expect(GPU01)
    sessions.send(GPU01, 7, [a_stop(4)])
    sessions.bind(line, 8, 3, a_welcome())
    sessions.send(GPU01, 7, [a_stop(5)])
    sessions.send(GPU01, 8, [a_stop(6)])
    assert await said(line, 2) == ["welcome", "command 6"]


async def test_a_new_session_closes_the_old_one() -> None:
    sessions = Sessions(CheckpointPlaces("/ckpt", b"seed"))
    old, new = opened(sessions, 1), opened(sessions, 2)
    assert await said(old, 1) == []
    assert "another session" in old.closed_because
    assert sessions.line(GPU01) is new


async def test_the_end_of_an_old_stream_leaves_the_new_session_alone() -> None:
    sessions = Sessions(CheckpointPlaces("/ckpt", b"seed"))
    old, new = opened(sessions, 1), opened(sessions, 2)
    sessions.drop(old)
    assert sessions.line(GPU01) is new
    sessions.close(GPU01, 1)
    assert not new.closed_because


async def test_a_node_without_a_session_is_simply_not_reached() -> None:
    sessions = Sessions(CheckpointPlaces("/ckpt", b"seed"))
    sessions.send(GPU01, 1, [a_stop(1)])
    sessions.close(GPU01, 1)
    assert sessions.line(GPU01) is None


async def test_an_agent_that_does_not_read_is_cut_off() -> None:
    sessions = Sessions(CheckpointPlaces("/ckpt", b"seed"))
    line = opened(sessions, 1)
    for sequence in range(MOST_UNREAD):
        sessions.send(GPU01, 1, [a_stop(sequence)])
    assert line.closed_because == "the agent does not read"


async def test_a_hello_that_fails_leaves_nothing_behind() -> None:
    sessions = Sessions(CheckpointPlaces("/ckpt", b"seed"))
    line = sessions.expect(GPU01)
    sessions.drop(line)
    sessions.send(GPU01, 1, [a_stop(1)])
    assert line.early == []
