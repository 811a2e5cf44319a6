"""The twin as a process: what becomes of those who ask when it ends, hangs or says nonsense."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest

from dlq_master.control.forecast.twin_process import (
    FIRST_REST_S,
    LONGEST_REST_S,
    TwinGone,
    TwinHangs,
    TwinProcess,
)
from dlq_master.planner import code
from dlq_master.planner.snapshot import dumps
from dlq_master.serving import TWIN
from support.fake_clock import FakeClock

# Says its greeting; then reads frames, and to each says what its argument makes of the number that
# is in it.
CHILD = """
import os, struct, sys, time
sys.stdout.buffer.write(struct.pack(">I", len(sys.argv[2])) + sys.argv[2].encode())
sys.stdout.buffer.flush()
while True:
    (length,) = struct.unpack(">I", sys.stdin.buffer.read(4))
    number = int(sys.stdin.buffer.read(length))
    answer = eval(sys.argv[1])
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
"""
WELL = "struct.pack('>I', len(b'{\"number\": %d}' % number)) + b'{\"number\": %d}' % number"
PATIENCE_S, SOON_S = 60.0, 0.05


def child(says: str, greets: bytes = code.greeting(code.digest())) -> tuple[TwinProcess, FakeClock]:
    clock = FakeClock()
    command = (sys.executable, "-S", "-c", CHILD, says, greets.decode())
    return TwinProcess(command, clock), clock


async def said(twin: TwinProcess, number: int = 1, patience_s: float = PATIENCE_S) -> Any:
    return await twin.ask(number, b"%d" % number, patience_s)


async def test_it_answers_several_in_any_order() -> None:
    twin, _ = child(WELL)
    answers = await asyncio.gather(*(said(twin, number) for number in (3, 1, 2)))
    assert answers == [{}, {}, {}]
    await twin.stop()
    assert twin.pid is None


@pytest.mark.parametrize(
    "says",
    [
        "b'garbage' * 100",
        "struct.pack('>I', 4) + b'{{{{'",
        "struct.pack('>I', 2) + b'[]'",
        "struct.pack('>I', 15) + b'{\"number\": \"x\"}'",
        "os._exit(1)",
    ],
)
async def test_nonsense_ends_it_and_it_rests_before_it_is_started_again(says: str) -> None:
    twin, clock = child(says)
    with pytest.raises(TwinGone):
        await said(twin)
    assert twin.pid is None
    with pytest.raises(TwinGone, match="started again"):
        await said(twin)
    clock.advance(FIRST_REST_S)
    with pytest.raises(TwinGone):
        await said(twin)
    clock.advance(FIRST_REST_S)
    with pytest.raises(TwinGone, match="started again"):  # it rests longer every time
        await said(twin)
    await twin.stop()


async def test_who_waits_is_told_when_it_is_killed() -> None:
    twin, clock = child(f"time.sleep(60) if number == 2 else {WELL}")
    await said(twin, 1)
    waiting = asyncio.create_task(said(twin, 2))
    await asyncio.sleep(0)
    assert twin.pid is not None
    os.kill(twin.pid, signal.SIGKILL)
    with pytest.raises(TwinGone):
        await waiting
    clock.advance(FIRST_REST_S)
    assert await said(twin, 3) == {}
    await twin.stop()


async def test_one_that_hangs_is_left_to_whoever_asked() -> None:
    twin, clock = child(f"time.sleep(60) if number == 1 else {WELL}")
    with pytest.raises(TwinHangs):
        await said(twin, 1, SOON_S)
    first = twin.pid
    await twin.restart("it hangs")
    clock.advance(FIRST_REST_S)
    assert await said(twin, 2) == {}
    assert twin.pid != first
    await twin.stop()


async def test_stopping_one_that_is_being_stopped_waits_until_it_is_gone() -> None:
    twin, _ = child(WELL)
    await said(twin)
    pid = twin.pid
    assert pid is not None
    first = asyncio.create_task(twin.restart("it is to go"))
    while twin.pid is not None:  # noqa: ASYNC110 nobody tells when it is being stopped
        await asyncio.sleep(0)
    await twin.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await first


async def test_one_of_another_version_is_asked_nothing_until_it_is_of_ours_again() -> None:
    twin, clock = child(WELL, code.greeting("of tomorrow"))
    for _ in range(2):
        with pytest.raises(TwinGone, match="restart the master"):
            await said(twin)
        assert twin.pid is None
    twin._code = "of tomorrow"  # the old package is back
    clock.advance(LONGEST_REST_S - 1.0)
    with pytest.raises(TwinGone, match="; it is started again in 1 s"):
        await said(twin)
    clock.advance(1.0)
    assert await said(twin) == {}
    await twin.stop()


async def test_one_that_does_not_say_which_code_it_runs_is_asked_nothing() -> None:
    twin, _ = child(WELL, b"hello")
    with pytest.raises(TwinGone, match="which code it runs"):
        await said(twin)
    assert twin.pid is None


async def test_who_waits_no_longer_leaves_a_twin_that_starts_to_those_who_ask_next() -> None:
    twin, _ = child(WELL)
    first = asyncio.create_task(said(twin, 1))
    while twin.pid is None:  # noqa: ASYNC110 nobody tells when it is there
        await asyncio.sleep(0)
    pid = twin.pid
    first.cancel()
    assert await said(twin, 2) == {}
    assert twin.pid == pid
    await twin.stop()


async def test_one_that_cannot_be_started_is_gone() -> None:
    twin = TwinProcess(("/nowhere/python",), FakeClock())
    with pytest.raises(TwinGone, match="cannot be started"):
        await said(twin)
    await twin.stop()


async def test_the_real_one_is_started_answers_and_ends_with_its_pipe() -> None:
    twin = TwinProcess(TWIN, FakeClock())
    question = dumps({"do": "ask", "number": 7, "job": None, "cpu_s": 1.0})
    answer = await twin.ask(7, question, 60.0)
    assert "not seen" in answer["none"]
    process = twin._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() >= 0  # by itself; whoever looks first may take the exact code
    await twin.stop()
