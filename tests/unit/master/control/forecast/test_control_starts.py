"""First ranges of starts: what is written of them, and what goes."""

from __future__ import annotations

from math import inf

from dlq_master.control.forecast.accuracy import WRITTEN_AT_ONCE, Starts
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import HoldKind, JobState
from dlq_master.planner.forecasts import Range
from dlq_master.store.tables.tenants import MOST_COMPARED, Foreseen
from support.builders import a_job, a_waiting_job

RANGE = Range(200.0, 400.0, 500.0)
JOBS = {JobId(n): a_waiting_job(n) for n in range(1, 6)}


def row(job: int, started_s: float | None = None) -> Foreseen:
    return Foreseen(JobId(job), 100.0, *RANGE, started_s)


def test_a_first_range_is_written_once_and_the_start_with_it() -> None:
    starts = Starts()
    starts.foreseen({JobId(1): RANGE, JobId(2): Range(1.0, inf, inf)}, 100.0, JOBS)
    assert starts.rows([]) == [row(1)]
    starts.foreseen({JobId(1): Range(1.0, 2.0, 3.0)}, 200.0, JOBS)
    assert starts.rows(JOBS.values()) == []
    assert starts.rows([JOBS[JobId(1)]._replace(first_start_time_s=450.0)]) == [row(1, 450.0)]
    assert (starts.dropped(), starts.quality().jobs) == ([], 1)


def test_who_ends_or_is_held_before_it_starts_is_dropped() -> None:
    starts = Starts([row(1), row(2), row(3)], JOBS)
    ended = JOBS[JobId(1)]._replace(state=JobState.CANCELLED)
    held = JOBS[JobId(2)]._replace(state=JobState.HELD, hold=HoldKind.USER)
    assert starts.rows([ended, held, JOBS[JobId(3)]]) == []
    assert starts.dropped() == [1, 2]
    assert starts.dropped() == []


def test_what_was_stored_counts_and_of_jobs_that_are_gone_nothing_is_kept() -> None:
    starts = Starts([row(1, 450.0), row(2), row(9)], JOBS)
    assert starts.quality().jobs == 1
    assert starts.dropped() == [9]
    assert starts.rows([JOBS[JobId(2)]._replace(first_start_time_s=300.0)]) == [row(2, 300.0)]
    assert starts.quality().late_median_s in (-100.0, 50.0)


def test_the_oldest_comparison_makes_room() -> None:
    loaded = [row(n, 1_000.0 - n / 100) for n in range(1, MOST_COMPARED + 3)]
    starts = Starts(loaded)
    assert starts.quality().jobs == MOST_COMPARED
    assert starts.dropped() == [MOST_COMPARED + 2, MOST_COMPARED + 1], "the first that started"


def test_a_long_queue_is_written_over_several_turns() -> None:
    count = 2 * WRITTEN_AT_ONCE + 1
    jobs = {JobId(n): a_job(n) for n in range(1, count + 1)}
    starts = Starts()
    starts.foreseen(dict.fromkeys(jobs, RANGE), 100.0, jobs)
    assert [len(starts.rows([])) for _ in range(4)] == [WRITTEN_AT_ONCE, WRITTEN_AT_ONCE, 1, 0]
