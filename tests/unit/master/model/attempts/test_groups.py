"""The consequences of a member's state for the others, by the present states alone."""

from typing import Any

import pytest

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.attempts.groups import KnownMember, consequences
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Array, GroupedMember, MemberEnds
from dlq_master.model.jobs.job import HoldKind, Job, JobState
from dlq_master.model.jobs.naming import member_name
from dlq_master.model.transitions import StopCause
from support.builders import a_waiting_job, an_attempt

ALL, EACH, ALONE = MemberEnds.ALL, MemberEnds.EACH, MemberEnds.ALONE
MEMBERS = (
    GroupedMember("learner", 1, ALL),
    GroupedMember("actor", 2, EACH),
    GroupedMember("evaluator", 1, ALONE),
)
GROUP = Array(JobId(10), 4, 0, 0, 3, 1, MEMBERS)
ENDED = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT


def member(index: int, **fields: Any) -> Job:
    return a_waiting_job(11 + index, array=GROUP, array_index=index, **fields)


def running(index: int, stop_cause: StopCause | None = None) -> KnownMember:
    attempt: Attempt = an_attempt(11 + index, stop_cause=stop_cause)
    return KnownMember(member(index, live_attempt=1), attempt)


def waiting(index: int, **fields: Any) -> KnownMember:
    return KnownMember(member(index, **fields))


def told(*known: KnownMember) -> set[tuple[int, bool]]:
    return {(it.job.job_id, it.ends) for it in consequences(known)}


def test_a_member_is_named_by_its_number_where_there_are_several() -> None:
    names = [member_name(member(index)) for index in range(4)]
    assert names == ["learner", "actor.0", "actor.1", "evaluator"]
    with pytest.raises(ValueError, match="no such member"):
        GROUP.member(4)


def test_nothing_follows_where_all_run_or_none_does() -> None:
    assert consequences([running(0), running(1)]) == []
    assert consequences([waiting(0), waiting(1)]) == []
    assert consequences([waiting(0, state=JobState.HELD, hold=HoldKind.USER), waiting(1)]) == []


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("index", [0, 1, 3])
def test_which_end_is_that_of_the_group(index: int, state: JobState) -> None:
    ends = GROUP.member(index)[0].ends
    concerns = ends is ALL or (ends is EACH and state is not JobState.COMPLETED)
    other = 2
    found = told(waiting(index, state=state), running(other))
    assert found == ({(11 + other, True)} if concerns else set())


def test_a_good_end_counts_before_the_cancels_that_follow() -> None:
    known = [
        waiting(0, state=JobState.COMPLETED),
        waiting(1, state=JobState.CANCELLED),
        running(2),
    ]
    (follows,) = consequences(known)
    assert follows.why == "member learner has completed, and with it the group"


@pytest.mark.parametrize(
    "cause", [StopCause.PREEMPT, StopCause.DRAIN, StopCause.PAUSE, StopCause.REQUEUE]
)
def test_all_leave_with_one_that_is_to_come_back(cause: StopCause) -> None:
    assert told(running(0), running(1, cause), running(2)) == {(11, False), (13, False)}


@pytest.mark.parametrize("cause", [StopCause.GANG_FAILURE, StopCause.TIME_LIMIT])
def test_the_end_of_one_that_fails_is_waited_for(cause: StopCause) -> None:
    assert told(running(0), running(1, cause)) == set()


def test_all_leave_once_one_has_left_and_waits() -> None:
    assert told(running(0), waiting(1), running(2, StopCause.CANCEL)) == {(11, False)}
