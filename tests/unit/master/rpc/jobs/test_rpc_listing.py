"""The jobs of a list are the same, whether blocks of them are taken whole or each is looked at."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_master.control.read_model.job_blocks import EVERYBODY, BlockNotes, JobBlocks
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Request
from dlq_master.rpc.calls.call import position_of
from dlq_master.rpc.jobs.lists.listing import listed
from dlq_master.rpc.jobs.lists.wanted import understood
from dlq_master.rpc.jobs.visible import may_list, sees_block
from support.fake_clock import FakeClock
from support.fake_control import FakeControl, FakeRead

NOW_S = 10_000.0
CALLERS = (
    Caller("alice", "user", "alice#1", 50.0),
    Caller("alice", "user", "alice#2", 500.0),  # to whom the name was given later
    Caller("bob", "user", "", 0.0),
    Caller("olga", "operator", "", 0.0),
)
ASKED: tuple[tuple[dict[str, Any], Callable[[Job], bool]], ...] = (
    ({}, lambda _: True),
    ({"queue": "few"}, lambda job: job.queue == "few"),
    ({"name": "b"}, lambda job: job.name == "b"),
    ({"states": ["held", "queued"]}, lambda job: job.state in ("held", "queued")),
    ({"states": ["held"]}, lambda job: job.state == "held"),
    (
        {"ended_within_seconds": 100},
        lambda job: job.end_time_s is None or job.end_time_s >= NOW_S - 100.0,
    ),
)


def _jobs(draw: Random, mixed: bool) -> dict[JobId, Job]:
    """Some of them in long runs that are alike, so that whole blocks are."""
    jobs, job = {}, None
    for number in range(1, 1_200):
        if draw.random() < 0.1:
            continue
        if job is None or mixed or draw.random() < 0.01:
            state = draw.choice((JobState.QUEUED, JobState.QUEUED, JobState.HELD))
            end_s = None
            if draw.random() < 0.2:
                state, end_s = JobState.COMPLETED, NOW_S - draw.choice((50.0, 150.0))
            job = Job(
                JobId(number), draw.choice(("alice", "alice", "bob")), draw.choice("ab"),
                Request(gpus=1), 0.0, state=state, end_time_s=end_s,
                queue=draw.choice(("default", "few")),
            )  # fmt: skip
            if job.user == "alice":
                job = job._replace(person=draw.choice(("", "alice#1", "alice#2")))
        jobs[JobId(number)] = job._replace(job_id=JobId(number), submit_time_s=float(number))
    return jobs


def _read(jobs: dict[JobId, Job]) -> FakeRead:
    read, blocks = FakeControl(FakeClock()).published, JobBlocks(jobs)
    read.all_jobs = jobs
    read.block, read.block_numbers = blocks.block, blocks.numbers  # type: ignore[method-assign] # made once
    return read


async def _rests(_cost: int) -> None:
    """Nobody else is there."""


async def _found(read: FakeRead, caller: Caller, words: dict[str, Any]) -> list[int]:
    request, found = wire.ListJobsRequest(**words), list[int]()
    wanted = await understood(request, caller, read, NOW_S, BlockNotes(), _rests)
    async for some, block in listed(wanted, position_of(request.page_token)):
        found += [job.job_id for job in some]
        assert block is None or list(block.jobs) == list(some)
    return found


async def test_a_list_of_everybody_leaves_checks_out_and_that_of_their_user_has_them() -> None:
    made = [
        Job(JobId(number), user, "x", Request(gpus=1), 0.0, check=check)
        for number, (user, check) in enumerate(
            (("olga", "matrix"), ("alice", ""), ("olga", "disk"), ("olga", "")), start=1
        )
    ]
    read, (*_, olga) = _read({job.job_id: job for job in made}), CALLERS
    assert await _found(read, olga, {"user": "*"}) == [2, 4]
    assert await _found(read, olga, {}) == [1, 3, 4]
    assert await _found(read, olga, {"user": "olga"}) == [1, 3, 4]
    assert await _found(read, olga, {"job_ids": ["1", "2"]}) == [1, 2]
    assert await _found(read, CALLERS[2], {"user": "*"}) == [2, 4]


async def test_blocks_make_no_difference_to_what_a_caller_is_told() -> None:
    draw = Random(3)
    for mixed in (False, True):
        read = _read(_jobs(draw, mixed))
        for read.others_shown in ("named", "hidden"):
            for caller in CALLERS:
                for words, passes in ASKED:
                    for user in ("", "*"):
                        if user and not caller.sees_all and read.others_shown == "hidden":
                            continue
                        after = draw.choice((0, draw.randrange(1_200)))
                        asked = {**words, "user": user, "page_token": str(after or "")}
                        own_only = not user or "name" in words
                        expected = [
                            job.job_id
                            for job in read.all_jobs.values()
                            if job.job_id > after and passes(job)
                            and (user or job.user == caller.name)
                            and (caller.may_see(job) if own_only else may_list(read, caller, job))
                        ]  # fmt: skip
                        assert await _found(read, caller, asked) == expected, (caller, asked)


def test_a_block_that_a_caller_sees_is_all_his() -> None:
    draw, seen = Random(4), set[bool | None]()
    for mixed in (False, True):
        read = _read(_jobs(draw, mixed))
        for number in read.block_numbers(EVERYBODY, 0):
            block = read.block(EVERYBODY, number)
            for caller in CALLERS:
                sees, each = sees_block(caller, block), {caller.may_see(it) for it in block.jobs}
                assert sees is None or each == {sees}
                seen.add(sees)
    assert seen == {True, False, None}


@pytest.mark.parametrize("field", ["user", "queue", "name", "team", "gpu_type"])
async def test_words_of_a_list_are_short_since_notes_keep_them(field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{field} has more than 1024") as refused:
        await _found(_read({}), Caller("alice", "user"), {field: "x" * 1_025})
    assert refused.value.field == field
