"""A search finds the same jobs in memory and on the disk, whatever its words are made of."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dlq_common.errors import InvalidRequest
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.rpc.jobs.lists.places import order_of, place_of
from dlq_master.rpc.specs.intake import search_words
from dlq_master.store.batch import PastJobs
from dlq_master.store.list_order import KEYS, ListOrder, has_words
from dlq_master.store.past_jobs import count_of, jobs_by_number, jobs_in_order
from dlq_master.store.sqlite.open import connect, create_database
from dlq_master.store.tables.codec import encode
from support.forged_places import forged
from support.stored_values import a_job

# Signs of LIKE, of GLOB, of SQL and of its escape; letters that other rules of case take for ASCII.
LETTERS = "aAbB%_!*?[]^'\"\\.- \u00e9\u00c9\u0130\u0131\u017f\u212a1207"
NUMBERS = (
    *("7", "007", "0", "12_0", "12_2", "12_02", "1_", "_1", "9" * 18, "9" * 19),
    *("\u0663", "\uff112"),  # digits that are not of ASCII
)


def some_text(draw: Random, most: int) -> str:
    return "".join(draw.choice(LETTERS) for _ in range(draw.randint(1, most)))


def some_jobs(draw: Random, many: int) -> list[Job]:
    found = []
    for number in range(1, many + 1):
        array = Array(JobId(max(1, number - 3)), 9, 0, 0, 8, 1) if draw.random() < 0.3 else None
        job = a_job(number, name=some_text(draw, 8), state=JobState.COMPLETED, end_time_s=5.0)
        user, index = draw.choice(("alice", "Bob_1", "b%b", "b!b")), draw.choice((0, 2))
        found.append(job._replace(user=user, array=array, array_index=index if array else 0))
    return found


def test_words_find_the_same_in_memory_and_on_the_disk(tmp_path: Path) -> None:
    draw, path = Random(3), tmp_path / "dlq.db"
    jobs, found = some_jobs(draw, 80), 0
    create_database(path)
    with closing(connect(path, mode="rw")) as db:
        for job in jobs:
            row = job.job_id, job.user, job.name, job.queue, "completed", 1, 0.0, 5.0, encode(job)
            db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        for _ in range(300):
            text = draw.choice(NUMBERS) if draw.random() < 0.2 else some_text(draw, 4)
            words = search_words(text)
            expected = [job.job_id for job in jobs if has_words(words, job)]
            wanted = PastJobs(words=words)
            told = [job.job_id for job in jobs_by_number(db, wanted, 0, len(jobs))]
            assert told == expected, text
            recent = wanted._replace(ended_from_s=1.0)
            told = [job.job_id for job in jobs_by_number(db, recent, 0, 10)]
            assert told == expected[:10], text
            for order in (ListOrder("number", True), ListOrder("user"), ListOrder("gpus", True)):
                sorted_ids = [one.job_id for one in sorted(jobs, key=order.rank)]
                behind = [one for one in sorted_ids if one in expected]
                told = [one.job_id for one in jobs_in_order(db, recent, order, None, 10)]
                assert told == behind[:10], (text, order)
            rest = [job.job_id for job in jobs_by_number(db, wanted, 40, len(jobs))]
            assert rest == [job_id for job_id in expected if job_id > 40], text
            assert count_of(db, wanted) == len(expected), text
            found += bool(0 < len(expected) < len(jobs))
    assert found > 50


def test_no_token_of_a_page_is_a_fault_of_the_master() -> None:
    """It is a place, or it is refused."""
    draw, places = Random(4), 0
    numbers = (0, -1, 1.5, 10**20, 10**400, -(10**30), 1e308)
    lists: tuple[Any, ...] = ([], [1], [-97, 1], [10**30, 1], [-(10**30), 1], [[1], 1])
    values: tuple[Any, ...] = (None, True, *numbers, "x", "\ud800", {}, *lists)
    for _ in range(3_000):
        word = draw.choice(("", "-")) + draw.choice(list(KEYS))
        place = [draw.choice(values) for _ in range(draw.choice((2, 3, 3, 3, 3, 4)))]
        if len(place) == 3 and draw.random() < 0.7:
            place[::2] = draw.choice((True, False)), draw.choice((1, -1))
        try:
            places += place_of(order_of(word), forged(word, *place)) is not None
        except InvalidRequest:
            continue
    assert places > 50


@pytest.mark.parametrize("text", ["\0", "a\0", "a \0b"])
def test_the_character_0_is_refused(text: str) -> None:
    """SQLite takes it for the end of a word, and would find all jobs."""
    with pytest.raises(InvalidRequest, match="character 0"):
        search_words(text)


@pytest.mark.parametrize("words", [("train",), ("train", "ann")])
@pytest.mark.parametrize("order", [ListOrder(), ListOrder("number", True), ListOrder("end")])
def test_words_are_looked_for_in_the_index_alone(
    tmp_path: Path, words: tuple[str, ...], order: ListOrder
) -> None:
    """A row is read for a job that is found. Nothing but the index says which these are."""
    create_database(tmp_path / "dlq.db")
    with closing(connect(tmp_path / "dlq.db", mode="rw")) as db:
        asked: list[str] = []
        db.set_trace_callback(asked.append)
        wanted = PastJobs(words=words, ended_from_s=1.0)
        jobs_in_order(db, wanted, order, None, 9)
        jobs_by_number(db, wanted, 0, 9)
        count_of(db, wanted)
        db.set_trace_callback(None)
        assert len(asked) == 3
        for sql in asked:
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
            assert any("USING COVERING INDEX jobs_by_end" in step for step in plan), plan
            assert not any("SCAN jobs" in step for step in plan), plan
