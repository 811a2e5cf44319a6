"""Lists in any order: their pages together are the filtered, ordered set, and its count. Nobody
learns a hidden field of another user's job by searching, ordering or counting.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_master.control.read_model.job_blocks import BlockNotes, JobBlocks
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import CORE_TYPE, Request
from dlq_master.rpc.jobs.job_service import list_jobs
from dlq_master.rpc.jobs.lists.places import order_of, place_of, token_of
from dlq_master.rpc.jobs.visible import may_list
from dlq_master.rpc.views.job_rows import JobRows
from dlq_master.store.list_order import KEYS, has_type, has_words
from support.counted_calls import counted_calls
from support.fake_clock import FakeClock
from support.fake_control import FakeControl, FakeRead
from support.forged_places import forged

NOW_S = 10_000.0
ALICE = Caller("alice", "user", "alice#2", 500.0)  # to whom the name was given later
OLGA = Caller("olga", "operator", "", 0.0)
ORDERS = [sign + key for key in KEYS for sign in ("", "-")]
ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"text": "TRAIN"},
    {"text": "bo 2"},
    {"team": "vision"},
    {"gpu_type": "H100"},
    {"queue": "few", "text": "n-1"},
    {"states": ["held", "completed"]},
    {"ended_within_seconds": 100},
)


class World:
    """Jobs of two people in memory and on the disk, and what was noted about them."""

    def __init__(self, draw: Random, jobs: int = 500) -> None:
        self.draw = draw
        self.control = FakeControl(FakeClock())
        self.read: FakeRead = self.control.published
        self.next = 1
        for _ in range(jobs):
            job = self._job()
            ended = job.end_time_s == NOW_S - 150.0 and draw.random() < 0.5
            (self.read.past if ended else self.read.all_jobs)[job.job_id] = job
        self.read.complete_from_s = NOW_S - 120.0
        self.blocks = JobBlocks(self.read.all_jobs)
        self.read.block, self.read.block_numbers = self.blocks.block, self.blocks.numbers  # type: ignore[method-assign] # made once
        self.rows, self.notes = JobRows(), BlockNotes()

    def _job(self) -> Job:
        draw, number = self.draw, self.next
        self.next += draw.choice((1, 1, 1, 40))
        request = Request(gpus=draw.choice((1, 2, 8)), gpu_type=draw.choice((None, "H100")))
        if draw.random() < 0.1:
            request = Request(gpus=3, gpu_type=CORE_TYPE)
        state = draw.choice((JobState.QUEUED, JobState.QUEUED, JobState.HELD, JobState.COMPLETED))
        user = draw.choice(("alice", "bob"))
        return Job(
            JobId(number), user, draw.choice(("train-1", "Train-2", "évaluation-1", "x")), request,
            float(number), state=state, queue=draw.choice(("default", "few")),
            end_time_s=NOW_S - draw.choice((50.0, 150.0)) if state is JobState.COMPLETED else None,
            first_start_time_s=draw.choice((None, 100.0, 200.5)),
            priority_base=draw.choice((0, 7)), team=draw.choice(("", "vision")),
            gpu_type_ran=draw.choice(("", "H100")),
            person=draw.choice(("", "alice#1", "alice#2")) if user == "alice" else "",
            array=Array(JobId(number - 3), 9, 0, 0, 8, 1) if draw.random() < 0.2 else None,
            array_index=2,
        )  # fmt: skip

    def change(self) -> None:
        """One job comes, one becomes another, and one leaves memory."""
        jobs, draw = self.read.all_jobs, self.draw
        new = self._job()._replace(state=JobState.QUEUED, end_time_s=None)
        jobs[new.job_id] = new
        self.blocks.changed(None, new)
        before = jobs[draw.choice(list(jobs))]
        jobs[before.job_id] = before._replace(priority_base=draw.choice((0, 3, 9)), name="changed")
        self.blocks.changed(before, jobs[before.job_id])
        gone = draw.choice([job for job in jobs.values() if job.end_time_s == NOW_S - 150.0])
        self.read.past[gone.job_id] = jobs.pop(gone.job_id)
        self.blocks.gone(gone)

    async def ask(self, caller: Caller, **words: Any) -> wire.ListJobsResponse:
        """One answer."""
        call: Any = SimpleNamespace(
            read=self.read, caller=caller, now_s=NOW_S, breathe=lambda: _rests,
            parts=SimpleNamespace(rows=self.rows, notes=self.notes),
        )  # fmt: skip
        return wire.ListJobsResponse.FromString(
            await list_jobs(call, wire.ListJobsRequest(**words))
        )

    async def pages(self, caller: Caller, **words: Any) -> list[int]:
        """The numbers on all pages; each page tells the same count."""
        found, token, totals = list[int](), "", set[int]()
        while True:
            size = self.draw.choice((3, 20, 64, 300))
            answer = await self.ask(
                caller, page_size=size, page_token=token, with_total=True, **words
            )
            assert len(answer.jobs) <= size
            found += [int(job.job_id) for job in answer.jobs]
            totals.add(answer.total_count)
            token = answer.next_page_token
            if not token:
                assert totals == {len(found)}
                return found

    def expected(self, caller: Caller, words: dict[str, Any]) -> list[Job]:
        """The jobs that belong into a list, in the order of their numbers."""
        everybody = {**self.read.past, **self.read.all_jobs}
        return [
            job
            for _, job in sorted(everybody.items())
            if self._belongs(job, caller, words)
        ]  # fmt: skip

    def _belongs(self, job: Job, caller: Caller, words: dict[str, Any]) -> bool:
        own = caller.may_see(job)
        named = own or self.read.others_shown == "named"
        text = words.get("text", "").lower().split()
        since_s = NOW_S - words.get("ended_within_seconds", NOW_S)
        return (
            (words["user"] == "*" or job.user == caller.name)
            and (own if not words["user"] or "team" in words else may_list(self.read, caller, job))
            and words.get("queue", job.queue) == job.queue
            and words.get("team", job.team) == job.team
            and ("states" not in words or job.state in words["states"])
            and (job.end_time_s is None or job.end_time_s >= since_s)
            and ("gpu_type" not in words or has_type(words["gpu_type"], job, known=own))
            and has_words(text, job, known=own, named=named)
        )


async def _rests(_cost: int) -> None:
    """Nobody else is there."""


def _value(job: Job, caller: Caller, read: FakeRead, key: str) -> Any:
    own = caller.may_see(job)
    hidden = key == "priority" or (key == "user" and read.others_shown != "named")
    return None if hidden and not own else KEYS[key].value(job)


def _sorted(jobs: list[Job], caller: Caller, read: FakeRead, word: str) -> list[int]:
    """By the plainest way there is."""
    key, falling = word.removeprefix("-"), word.startswith("-")
    with_value = [job for job in jobs if _value(job, caller, read, key) is not None]
    without = [job for job in jobs if _value(job, caller, read, key) is None]
    with_value.sort(key=lambda job: (_value(job, caller, read, key), job.job_id), reverse=falling)
    without.sort(key=lambda job: job.job_id, reverse=falling)
    return [job.job_id for job in with_value + without]


@pytest.mark.parametrize("caller", [ALICE, OLGA], ids=lambda caller: caller.role)
@pytest.mark.parametrize("shown", ["named", "nameless"])
async def test_pages_together_are_the_ordered_set(caller: Caller, shown: str) -> None:
    world = World(Random(5), jobs=160)
    world.read.others_shown = shown
    for words in ASKED:
        for user in ("", "*"):
            asked = {**words, "user": user}
            expected = world.expected(caller, asked)
            for word in ORDERS:
                found = await world.pages(caller, order=word, **asked)
                assert found == _sorted(expected, caller, world.read, word), (asked, word)


@pytest.mark.parametrize("word", ORDERS)
async def test_pages_miss_and_repeat_nothing_while_jobs_come_and_go(word: str) -> None:
    world = World(Random(6))
    before = {job.job_id: job for job in world.expected(OLGA, {"user": "*"})}
    found, token = list[int](), ""
    while True:
        answer = await world.ask(OLGA, user="*", order=word, page_size=40, page_token=token)
        found += [int(job.job_id) for job in answer.jobs]
        token = answer.next_page_token
        if not token:
            break
        world.change()
    after = {job.job_id: job for job in world.expected(OLGA, {"user": "*"})}
    stayed = [job for job_id, job in before.items() if after.get(job_id) == job]
    assert len(stayed) > 400
    kept = {job.job_id for job in stayed}
    assert [one for one in found if one in kept] == _sorted(stayed, OLGA, world.read, word)


async def test_a_page_of_old_jobs_is_one_search_of_the_disk() -> None:
    """A search without an index looks at all rows: it is not made again for each thousand."""
    world = World(Random(6))
    old = next(iter(world.read.past.values()))
    for number in range(100_000, 103_000):
        world.read.past[JobId(number)] = old._replace(job_id=JobId(number))
    answer = await world.ask(OLGA, user="*", order="-gpus", page_size=2_500)
    assert (len(answer.jobs), world.read.past_reads) == (2_500, 1)


async def test_no_answer_depends_on_a_hidden_field_of_another_users_job() -> None:
    """Two clusters that differ in what is hidden alone: alice gets the same bytes from both."""
    for shown in ("named", "nameless"):
        one, two = World(Random(8), jobs=70), World(Random(8), jobs=70)
        one.read.others_shown = two.read.others_shown = shown
        for job_id, job in list(two.read.all_jobs.items()):
            if not ALICE.may_see(job):
                secret = job._replace(
                    name="secret", team="hidden", priority_base=99, gpu_type_ran="B300", level=3,
                    user=job.user if shown == "named" else f"u{job_id}",
                )  # fmt: skip
                two.read.all_jobs[job_id] = secret
                two.blocks.changed(job, secret)
        two.blocks = JobBlocks(two.read.all_jobs)
        two.read.block, two.read.block_numbers = two.blocks.block, two.blocks.numbers  # type: ignore[method-assign] # made once
        searched = [
            *ASKED, {"name": "secret"}, {"team": "hidden"}, {"text": "secret"}, {"text": "hidden"},
            {"gpu_type": "B300"}, {"gpu_type": "H100"}, {"text": "u1"},
        ]  # fmt: skip
        for words in searched:
            for word in ORDERS:
                for size in (3, 500):
                    asked = {**words, "user": "*", "order": word, "page_size": size,
                             "with_total": True}  # fmt: skip
                    first, second = await one.ask(ALICE, **asked), await two.ask(ALICE, **asked)
                    assert first == second, (shown, asked)
                    asked["page_token"] = first.next_page_token
                    assert await one.ask(ALICE, **asked) == await two.ask(ALICE, **asked)


async def test_jobs_of_a_node_are_those_that_hold_something_of_it() -> None:
    world = World(Random(9), jobs=60)
    world.control.add_node("gpu01")
    job_id = next(job.job_id for job in world.read.all_jobs.values() if not job.ended)
    world.control.place(job_id, "gpu01")
    answer = await world.ask(OLGA, user="*", node_id="gpu01", with_total=True)
    assert ([int(job.job_id) for job in answer.jobs], answer.total_count) == ([job_id], 1)


async def test_a_search_that_was_made_before_looks_at_changed_blocks_alone() -> None:
    world = World(Random(10), jobs=2_000)
    asked = {"user": "*", "text": "nothing like it", "order": "-gpus", "with_total": True}
    world.read.past.clear()
    world.read.complete_from_s = 0.0
    await world.ask(OLGA, **asked, ended_within_seconds=10)
    with counted_calls() as calls:
        await world.ask(OLGA, **asked, ended_within_seconds=10)
    assert not calls["store/list_order.py:has_words"]
    before = next(job for job in world.read.all_jobs.values() if not job.ended)
    world.read.all_jobs[before.job_id] = before._replace(name="nothing like it")
    world.blocks.changed(before, world.read.all_jobs[before.job_id])
    with counted_calls() as calls:
        answer = await world.ask(OLGA, **asked, ended_within_seconds=10)
    assert answer.total_count == 1
    assert 0 < calls["store/list_order.py:has_words"] <= 64


async def test_a_page_token_of_before_and_one_of_another_order() -> None:
    world = World(Random(11), jobs=50)
    old = await world.ask(OLGA, user="*", page_size=10)
    assert old.next_page_token == old.jobs[-1].job_id
    assert not old.HasField("total_count")
    follows = await world.ask(OLGA, user="*", page_token=old.next_page_token, order="number")
    assert int(follows.jobs[0].job_id) > int(old.jobs[-1].job_id)
    for word in ("-number", "user"):
        with pytest.raises(InvalidRequest, match="page token"):
            await world.ask(OLGA, user="*", page_token=old.next_page_token, order=word)


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ("gpus", "gpus.W10"), ("gpus", "gpus.bnVsbA"), ("gpus", "gpus.é"), ("gpus", "gpus."),
        ("gpus", "-gpus.W2ZhbHNlLDEsMV0="), ("gpus", "gpus.W2ZhbHNlLE5hTiwxXQ=="),
        ("gpus", "gpus.W2ZhbHNlLCJ4IiwxXQ=="), ("gpus", "gpus.W2ZhbHNlLDEsLTFd"),
        ("-user", "-user.W2ZhbHNlLFsxMDBdLC0xXQ=="), ("user", "user.W2ZhbHNlLDcsMV0="),
        ("-user", "-user.W2ZhbHNlLFstNTU0MDAsMV0sLTFd"), ("gpus", "gpus." + "A" * 4_000),
        ("gpus", forged("gpus", False, 10**400, 1)), ("user", forged("user", True, 10**400, 1)),
        ("-user", forged("-user", False, [-(10**30), 1], -1)),
    ],
)  # fmt: skip
def test_a_token_that_no_master_made_is_refused(order: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match="page token"):
        place_of(order_of(order), told)


def test_a_place_comes_back_from_its_token() -> None:
    draw = Random(12)
    world = World(draw, jobs=40)
    for word in ORDERS:
        order = order_of(word)
        for job in world.read.all_jobs.values():
            rank = order.rank(job)
            if word != "number":
                assert place_of(order, token_of(order, rank)) == rank


@pytest.mark.parametrize("words", [{"order": "colour"}, {"order": "-"}, {"text": "a " * 200},
                                   {"text": "a b c d e f g h i"}, {"text": "\0"}])  # fmt: skip
async def test_a_list_that_nobody_understands(words: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        await World(Random(1), jobs=5).ask(OLGA, **words)
