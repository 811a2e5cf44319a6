"""Tasks of arrays as people see them, and as they name them."""

from __future__ import annotations

from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_cli.lists.listing import ListLayout
from dlq_cli.lists.tasks import folded, id_key, shown_id, shown_ids
from dlq_cli.output.render import OutputLook
from support.wire_jobs import EPOCH_S, a_job

LOOK = OutputLook(tty=False, color=False, now_s=EPOCH_S + 600)


def a_task(index: int, state: str = "queued", *, array: int = 12, limit: int = 0) -> job_pb2.Job:
    place = job_pb2.ArrayTask(
        array_id=str(array), index=index, task_count=100, concurrent_count=limit
    )
    return a_job(array + 1 + index, state, array_task=place, name="sweep")


def layout(**more: Any) -> ListLayout:
    fields: dict[str, Any] = {
        "columns": ("id", "state"),
        "headings": False,
        "ids_only": False,
        "sort": "",
    }
    return ListLayout(**(fields | more))


def lines(jobs: list[job_pb2.Job], **more: Any) -> list[list[str]]:
    return [line.split() for line in layout(**more).text(jobs, LOOK).splitlines()]


def test_tasks_that_wait_are_one_line_with_the_limit_and_the_others_one_each() -> None:
    jobs = [a_job(3), a_task(0, "completed", limit=4), a_task(1, "running", limit=4)]
    jobs += [a_task(index, limit=4) for index in (4, 5, 6, 9)]
    jobs.append(a_task(7, "held", limit=4))
    assert lines(jobs) == [
        ["3", "queued"],
        ["12_0", "completed"],
        ["12_1", "running"],
        ["12_[4-6,9%4]", "queued"],
        ["12_7", "held"],
    ]


def test_every_task_has_its_line_when_asked_for() -> None:
    jobs = [a_task(index) for index in range(3)]
    assert lines(jobs, one_line_each=True) == [
        ["12_0", "queued"],
        ["12_1", "queued"],
        ["12_2", "queued"],
    ]
    assert lines(jobs, ids_only=True) == [["12_0"], ["12_1"], ["12_2"]]


def test_arrays_are_not_mixed_and_values_are_not_changed() -> None:
    jobs = [a_task(0), a_task(1), a_task(0, array=200), a_task(1, array=200)]
    assert [job.job_id for job in folded(jobs)] == ["12_[0-1]", "200_[0-1]"]
    assert [job.job_id for job in jobs] == ["13", "14", "201", "202"]


def test_lines_of_many_sort_by_their_array_and_first_index() -> None:
    jobs = [a_job(300), a_task(5), a_task(6), a_task(1, "running"), a_job(2)]
    assert [row[0] for row in lines(jobs, sort="id")] == ["2", "12_1", "12_[5-6]", "300"]
    assert id_key(a_task(5)) == (12, 5)


def test_several_jobs_are_named_in_few_words() -> None:
    assert shown_id(a_task(4)) == "12_4"
    jobs = [a_job(3), a_task(0), a_task(1), a_task(7), a_task(2, array=40)]
    assert shown_ids(jobs) == "3, 12_[0-1,7], 40_2"


@pytest.mark.parametrize("state", ["running", "failed", "unknown"])
def test_what_runs_or_has_ended_is_never_folded(state: str) -> None:
    assert len(folded([a_task(0, state), a_task(1, state)])) == 2
