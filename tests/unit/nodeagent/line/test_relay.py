"""What of a rank's output is sent to the master."""

import asyncio

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq_nodeagent.line.relay import log_pieces, words_pieces
from dlq_nodeagent.model.messages import OpenLog
from dlq_nodeagent.model.port import Handle
from support.agent_bench import AgentBench, a_launch


def a_logging_job(bench: AgentBench, does: str) -> Handle:
    """A job that has run for a while."""
    bench.connect()
    launch = a_launch(does=does)
    bench.order(launch)
    bench.run(2)
    handle = bench.core.supervisor.handle(launch.key)
    assert handle is not None
    return handle


async def sent(
    bench: AgentBench, handle: Handle, *, offset: int = 0, follow: bool = False
) -> list[wire.PushLogRequest]:
    """All pieces; while a reader follows, time passes on the bench."""
    order = OpenLog(relay_id="r1", key=a_launch().key, offset=offset, follow=follow)

    def wait() -> asyncio.Future[None]:
        bench.clock.advance(1.0)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    pieces = log_pieces(order, handle, bench.runtime, wait=wait)
    return [piece async for piece in pieces]


async def test_output_is_sent_whole_and_ended() -> None:
    bench = AgentBench()
    handle = a_logging_job(bench, f"run_for=1 log={'x' * 200_000}")
    pieces = await sent(bench, handle)
    assert b"".join(piece.data for piece in pieces) == b"x" * 200_000
    assert max(len(piece.data) for piece in pieces) <= 64 * 1024
    assert [piece.end for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(piece.relay_id == "r1" for piece in pieces)


@pytest.mark.parametrize(("offset", "data"), [(3, b"lo"), (-2, b"lo"), (-99, b"hello"), (99, b"")])
async def test_a_reader_chooses_where_to_begin(offset: int, data: bytes) -> None:
    bench = AgentBench()
    handle = a_logging_job(bench, "run_for=1 log=hello")
    pieces = await sent(bench, handle, offset=offset)
    assert b"".join(piece.data for piece in pieces) == data
    assert pieces[-1].end


async def test_a_reader_who_follows_is_served_until_the_rank_has_ended() -> None:
    bench = AgentBench()
    handle = a_logging_job(bench, "run_for=30 log=hello")
    before_s = bench.clock.boottime_s()
    pieces = await sent(bench, handle, follow=True)
    assert pieces[-1].end
    assert bench.clock.boottime_s() - before_s > 25
    assert b"".join(piece.data for piece in pieces) == b"hello"


async def test_a_silent_rank_is_heard_of_at_once_and_from_time_to_time() -> None:
    """By an empty piece the agent learns that its reader has gone, and the reader that it came."""
    bench = AgentBench()
    handle = a_logging_job(bench, "run_for=200")
    pieces = await sent(bench, handle, follow=True)
    assert {piece.data for piece in pieces} == {b""}
    assert len(pieces[:-1]) in (3, 4)
    assert not any(piece.end or piece.error for piece in pieces[:-1])
    assert pieces[-1].end


async def test_a_reader_who_does_not_follow_is_not_kept() -> None:
    bench = AgentBench()
    handle = a_logging_job(bench, "run_for=1000 log=hello")
    before_s = bench.clock.boottime_s()
    assert (await sent(bench, handle))[-1].end
    assert bench.clock.boottime_s() == before_s


@pytest.mark.parametrize(
    ("offset", "data"),
    [
        (0, b"dlq: cannot run the job: /x is no directory\n"),
        (5, b"cannot run the job: /x is no directory\n"),
        (-4, b"ory\n"),
        (999, b""),
    ],
)
async def test_a_rank_that_never_ran_has_one_line_that_says_why(offset: int, data: bytes) -> None:
    order = OpenLog(relay_id="r1", key=a_launch().key, offset=offset, follow=True)
    said, end = [piece async for piece in words_pieces(order, "/x is no directory")]
    assert (said.data, said.end, end.data, end.end) == (data, False, b"", True)
    assert said.offset + len(said.data) == end.offset


async def test_a_rank_that_was_forgotten_meanwhile_is_unknown() -> None:
    bench = AgentBench()
    handle = a_logging_job(bench, "run_for=1 log=hello")
    bench.runtime.forget(handle)
    (piece,) = await sent(bench, handle)
    assert piece.error == "unknown_rank"
