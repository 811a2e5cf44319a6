"""The process of hooks: whatever a hook does, the master has an answer or a failure in words."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dlq_master.hooks.process import HookBusy, HookFailed, HookLine, HookProcess
from dlq_master.hooks.turns import FairTurns
from support.hook_files import a_call, a_desk, a_process


@pytest.fixture
async def process() -> AsyncIterator[HookProcess]:
    made = a_process()
    yield made
    await made.stop()


async def failure(process: HookProcess, name: str) -> HookFailed:
    with pytest.raises(HookFailed) as caught:
        await process.call("on_submit", a_call(name))
    return caught.value


async def test_a_call_has_its_changes_and_what_was_printed(process: HookProcess) -> None:
    answer = await process.call("on_submit", a_call("change"))
    assert answer["changed"]["time_limit_s"] == 3600.0
    assert answer["changed"]["labels"] == {"project": "ada"}
    assert answer["warnings"] == ["your job is short now"]
    assert (await process.call("on_submit", a_call("print")))["said"] == "looked at print\n"
    assert process.starts == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("throw", "ValueError: no such project (line 15)"),
        ("exit", "SystemExit: 3 (line 17)"),
        ("missing", "ModuleNotFoundError: No module named 'no_such_module' (line 29)"),
        ("swallow", "MemoryError"),
        ("odd", "it returned a dict, no job, Refuse or warnings"),
    ],
)
async def test_a_hook_that_throws_fails_alone(process: HookProcess, name: str, words: str) -> None:
    failed = await failure(process, name)
    assert words in failed.words
    assert failed.again_s is None
    await process.call("on_submit", a_call("fine"))
    assert process.starts == 1


@pytest.mark.parametrize("name", ["die", "garbage"])
async def test_a_process_that_ends_or_talks_nonsense_is_replaced(
    process: HookProcess, name: str
) -> None:
    failed = await failure(process, name)
    assert failed.again_s == 0.0
    await process.call("on_submit", a_call("fine"))
    assert process.starts == 2


async def test_a_process_that_ends_between_two_calls_fails_none(process: HookProcess) -> None:
    await process.call("on_submit", a_call("fine"))
    line = process._line
    assert line is not None
    assert line.child is not None
    line.child.kill()
    assert await line.reader.read() == b""
    await process.call("on_submit", a_call("fine"))
    assert process.starts == 2


async def test_a_hook_that_hangs_is_killed() -> None:
    process = a_process(call_s=0.3)
    assert (await failure(process, "hang")).words == "it took longer than 0.3 s"
    assert not process.running


@pytest.mark.skipif(os.getuid() != 0, reason="only another account has a limit of processes")
async def test_a_hook_cannot_fork(process: HookProcess) -> None:
    assert "BlockingIOError" in (await failure(process, "fork")).words
    assert {"account", "network", "processes"} <= set(process.facts["walls"])
    assert process.facts["uid"] != 0


async def test_a_process_that_has_grown_is_replaced(process: HookProcess) -> None:
    leaks = 1
    await process.call("on_submit", a_call("leak"))
    while process.running:
        await process.call("on_submit", a_call("leak"))
        leaks += 1
    assert leaks <= 4
    await process.call("on_submit", a_call("fine"))
    assert process.starts == 2


async def test_failures_in_a_row_wait_ever_longer() -> None:
    process = a_process("def on_submit(:")
    first = await failure(process, "fine")
    assert "SyntaxError" in first.words
    assert first.again_s == 0.0
    second = await failure(process, "fine")
    assert second.again_s == 0.5
    resting = await failure(process, "fine")
    assert "it is started again in" in resting.words
    assert process.starts == 2


async def test_a_hook_that_fails_again_and_again_makes_no_other_hook_wait(
    process: HookProcess,
) -> None:
    for _ in range(3):
        with pytest.raises(HookFailed):
            await process.call("on_end", {"attempt": an_end("die")})
    assert process.rest_s > 0.0
    answer = await process.call("on_submit", a_call("print"))
    assert answer["said"] == "looked at print\n"
    await process.stop()
    with pytest.raises(HookFailed, match=r"its process ended; it is started again in"):
        await process.call("on_end", {"attempt": an_end("fine")})


async def test_a_process_that_cannot_be_started_is_told() -> None:
    async def start() -> HookLine:
        raise FileNotFoundError(2, "No such file or directory")

    process = a_process()
    process._start = start  # a starter is a port
    assert "cannot be started: No such file or directory" in (await failure(process, "x")).words


async def test_a_file_without_the_function_says_so() -> None:
    process = a_process("on_end = print")
    assert "has no function on_submit" in (await failure(process, "fine")).words
    await process.stop()


async def test_many_at_once_have_each_their_answer() -> None:
    desk = a_desk(waiting_per_user=64)
    answers = await asyncio.gather(*(desk.call("on_submit", a_call("counted")) for _ in range(64)))
    counts = {int(one["changed"]["labels"]["calls"]) for one in answers}
    assert counts == set(range(1, 65))
    assert desk.calls["on_submit", "ok"] == 64
    assert desk.waiting == 0
    await desk.close()


async def test_more_than_may_wait_fail_at_once() -> None:
    desk = a_desk(waiting=2)
    calls: list[Any] = [desk.call("on_submit", a_call("fine")) for _ in range(3)]
    answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(one, HookFailed) for one in answers] == [False, False, True]
    assert answers[2].words == "2 submissions wait for it already, 2 of them of ada"
    await desk.close()


def of(user: str) -> dict[str, Any]:
    return {**a_call("counted"), "user": {"name": user, "role": "user"}}


async def test_one_user_fills_no_places_of_others() -> None:
    desk = a_desk(waiting=4, waiting_per_user=3)
    users = ["eve"] * 4 + ["bob"] * 2 + ["ada"]
    calls: list[Any] = [desk.call("on_submit", of(user)) for user in users]
    answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    counts = [
        one.words if isinstance(one, HookBusy) else int(one["changed"]["labels"]["calls"])
        for one in answers
    ]
    assert counts == [
        *(1, 4, 5, "3 submissions of eve wait for it already, 3 at most"),
        *(2, "4 submissions wait for it already, 1 of them of bob"),
        3,  # everybody has room for one, and users take turns
    ]
    await desk.close()


async def test_a_caller_that_leaves_its_line_gives_its_turn_on() -> None:
    turns, seen = FairTurns(), []

    async def one(user: str) -> None:
        async with turns.turn(user):
            seen.append(user)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one(user)) for user in ("ada", "bob", "cy")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await one("dora")
    assert seen == ["ada", "cy", "dora"]


async def test_a_crowd_of_submissions_fails_no_call_for_an_end() -> None:
    desk = a_desk(waiting=1)
    first = asyncio.create_task(desk.call("on_submit", a_call("fine")))
    await asyncio.sleep(0)
    assert desk.waiting == 1
    answer = await desk.call("on_end", {"attempt": an_end("train")})
    assert answer["notes"] == ["1.1.on_end failed 1"]
    await first
    await desk.close()


async def test_one_key_runs_the_hook_once() -> None:
    desk = a_desk()
    told = a_call("counted")
    both = await asyncio.gather(*(desk.call("on_submit", told, ("ada", "r")) for _ in range(2)))
    later = await desk.call("on_submit", told, ("ada", "r"))
    assert [one["changed"]["labels"]["calls"] for one in (*both, later)] == ["1", "1", "1"]
    await desk.close()


async def test_a_caller_that_leaves_ends_no_process() -> None:
    desk = a_desk()
    leaving = asyncio.create_task(desk.call("on_submit", a_call("fine")))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    await desk.call("on_submit", a_call("fine"))
    assert desk.process.starts == 1
    assert desk.calls["on_submit", "ok"] == 2
    await desk.close()


def an_end(name: str) -> dict[str, Any]:
    names = {"key": "1.1.on_end", "name": name, "user": "ada", "team": "", "queue": "default"}
    facts = {"job_id": 1, "attempt": 1, "labels": {}, "gpus": 1, "nodes": ["n1"], "time_s": 1.0}
    return {**names, **facts, "started_s": 0.0, "end": "failed", "exit_code": 1}
