"""Words for jobs: members of a group go by the names of their file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from dlq.v1 import job_pb2
from dlq_cli.lists.select import Named, one_job, several_jobs, targets
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound


class Listed:
    """Group 12 with a learner and two actors, and a job that is called `12_other`."""

    def __init__(self) -> None:
        members = (("learner", 0), ("actor", 0), ("actor", 1))
        self.found = [
            job_pb2.Job(
                job_id=str(13 + at),
                array_task=job_pb2.ArrayTask(
                    array_id="12", index=at, member=name, member_index=number
                ),
            )
            for at, (name, number) in enumerate(members)
        ]
        self.found.append(job_pb2.Job(job_id="20", name="12_other"))
        self.jobs: Sequence[job_pb2.Job] = ()

    def list(self, *, job_ids: Sequence[str] = (), name: str = "") -> Any:
        answer = Listed()
        answer.jobs = [
            job
            for job in self.found
            if (name and job.name == name)
            or job.job_id in job_ids
            or job.array_task.array_id in job_ids
        ]
        return answer


JOBS = cast(Jobs, Listed())


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("12_learner", Named("13", 0)),
        ("12_learner.2", Named("13", 2)),  # its attempt: it is one job
        ("12_actor.1", Named("15", 0)),  # the second actor, as `dlq why` writes it
        ("12_actor.1.3", Named("15", 3)),
        ("12_other", Named("20", 0)),
    ],
)
def test_a_member_goes_by_its_name(word: str, meant: Named) -> None:
    assert one_job(JOBS, word) == meant


def test_a_member_of_several_jobs_is_all_of_them_or_one_has_to_be_said() -> None:
    assert targets(JOBS, ["12_actor", "12_learner"]) == ["14", "15", "13"]
    assert several_jobs(JOBS, ["12_actor"]) == ["14", "15"]
    with pytest.raises(InvalidRequest, match="'12_actor' are 2 jobs") as refused:
        one_job(JOBS, "12_actor")
    assert refused.value.hint == "say 12_actor.0 or 12_actor.1"


@pytest.mark.parametrize("word", ["12_critic", "12_actor.2", "12_learner.1.1", "99_learner"])
def test_what_no_group_has_is_not_found(word: str) -> None:
    with pytest.raises(NotFound, match="there is no job"):
        one_job(JOBS, word)


@pytest.mark.parametrize("word", ["", " ", "\t"])
def test_an_empty_word_is_no_job_and_not_the_only_one(word: str) -> None:
    """`dlq cancel "$JOB"` of a variable that is not set ended the only job of its user."""
    for refused in (one_job, lambda jobs, text: targets(jobs, ["13", text])):
        with pytest.raises(InvalidRequest, match="is empty"):
            refused(JOBS, word)
