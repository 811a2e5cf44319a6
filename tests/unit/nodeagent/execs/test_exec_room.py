"""How many commands may run at once: the jobs of one user leave room for those of others."""

from __future__ import annotations

from dlq_nodeagent.execs.serving import MOST_AT_ONCE, MOST_OF_JOB, has_room
from dlq_nodeagent.model.launch import RankKey


def keys(job: str, count: int) -> list[RankKey]:
    return [RankKey(job, 1, number % 2) for number in range(count)]


def test_a_job_that_has_all_of_its_commands_gets_no_more_and_another_does() -> None:
    present = keys("1", MOST_OF_JOB)
    assert not has_room(present, RankKey("1", 1, 0))
    assert has_room(present, RankKey("2", 1, 0))
    assert has_room(present[1:], RankKey("1", 1, 0))


def test_a_user_with_all_of_their_streams_leaves_a_node_to_others() -> None:
    assert MOST_AT_ONCE >= 4 * MOST_OF_JOB


def test_a_node_has_a_bound_too() -> None:
    present = [RankKey(str(number), 1, 0) for number in range(MOST_AT_ONCE)]
    assert not has_room(present, RankKey("999", 1, 0))
