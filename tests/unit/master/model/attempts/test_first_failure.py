"""Who failed first is told by when each rank ended, not by who was heard first."""

import itertools

import pytest

from dlq_master.model.attempts import attempt_steps as on
from dlq_master.model.attempts import gang
from dlq_master.model.attempts.attempt import Attempt, AttemptState, RankPhase, RankStatus
from dlq_master.model.attempts.first_failure import CLOCKS_DIFFER_S
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import EndReason, RunRules
from dlq_master.model.transitions import StopCause
from support.builders import an_attempt

END_S = 50.0


def ended(number: int, after_s: float = 0.0, **fields: object) -> RankStatus:
    base = RankStatus(NodeId(f"n{number + 1}"), RankPhase.EXITED, exited_time_s=END_S + after_s)
    return base._replace(**fields)  # type: ignore[arg-type]  # a builder takes any field


def a_gang(**fields: object) -> Attempt:
    slots = [("n1", 0b1), ("n2", 0b1), ("n3", 0b1)]
    attempt = an_attempt(slots=slots, state=AttemptState.RUNNING)
    return attempt._replace(**{"started_time_s": 10.0, **fields})  # type: ignore[arg-type]


def heard(attempt: Attempt, *statuses: RankStatus, asked_after_s: float = 0.01) -> Attempt:
    """As the master hears them: the first that failed makes it stop the others."""
    for status in statuses:
        rank = int(status.node_id[1:]) - 1
        attempt = gang.heard(attempt, rank, status)
        if gang.must_stop(attempt):
            stop = on.StopRequested(cause=StopCause.GANG_FAILURE, grace_s=0.0)
            attempt = on.step(attempt, stop, at_s=END_S + asked_after_s)
    return attempt


def test_a_rank_that_failed_before_and_was_heard_after_is_the_first() -> None:
    late = ended(1, -2.0, exit_code=9)
    attempt = heard(a_gang(), ended(0, exit_code=1), ended(2, 5.0, signal=9), late)
    assert attempt.first_failed_rank == 1
    verdict = gang.verdict(attempt, RunRules())
    assert verdict == on.Failed(reason=EndReason.USER_ERROR, exit_code=9)


def test_the_order_of_the_reports_does_not_matter() -> None:
    ends = [
        ended(0, 0.3, exit_code=1, peer_lost=True),
        ended(1, 0.0, exit_code=9),
        ended(2, 2.5, signal=9),
    ]
    for order in itertools.permutations(ends):
        assert heard(a_gang(), *order, asked_after_s=2.4).first_failed_rank == 1, order


@pytest.mark.parametrize(
    "effect", [{"exit_code": 1, "peer_lost": True}, {"signal": 15}, {"exit_code": 143}]
)
def test_of_ends_that_no_clock_tells_apart_the_cause_is_named(effect: dict[str, object]) -> None:
    """The effect may even seem to be the earlier one: reports are late by their way."""
    ends = (ended(0, 0.0, **effect), ended(1, 0.5 * CLOCKS_DIFFER_S, exit_code=3))
    assert heard(a_gang(), *ends).first_failed_rank == 1
    apart = (ended(0, 0.0, **effect), ended(1, 2.0 * CLOCKS_DIFFER_S, exit_code=3))
    assert heard(a_gang(), *apart).first_failed_rank == 0, "time tells"


def test_what_is_killed_because_a_rank_failed_has_not_failed_first() -> None:
    killed = ended(0, 0.02, exit_code=137)
    peer = ended(1, 0.0, exit_code=1, peer_lost=True)
    assert heard(a_gang(), peer, killed, ended(2, 0.03, signal=9)).first_failed_rank == 1


def test_a_kill_from_outside_is_a_cause() -> None:
    peer = ended(1, 0.4, exit_code=1)
    assert heard(a_gang(), peer, ended(0, 0.0, signal=9)).first_failed_rank == 0


def test_a_rank_of_whom_nobody_will_hear_is_named_before_all_others() -> None:
    """The verdict is its node's too."""
    lost = ended(1, 30.0, lost=True)
    attempt = heard(a_gang(), ended(0, exit_code=1), lost, ended(2, 1.0, signal=9))
    assert attempt.first_failed_rank == 1
    assert isinstance(gang.verdict(attempt, RunRules()), on.NodeLost)


def test_what_leaves_because_it_was_told_to_has_not_failed() -> None:
    stopping = a_gang(stop_cause=StopCause.PREEMPT, notice_time_s=END_S - 1.0)
    assert heard(stopping, ended(0, exit_code=1)).first_failed_rank is None
    before = ended(1, -2.0, exit_code=4)
    assert heard(stopping, ended(0, exit_code=1), before).first_failed_rank == 1


def test_a_shim_that_ends_its_rank_for_silence_is_no_failure_of_the_job() -> None:
    attempt = gang.heard(a_gang(), 0, ended(0, exit_code=143, hold_expired=True))
    assert attempt.first_failed_rank is None


def test_a_gang_that_was_given_up_at_its_barrier_names_whom_it_waited_for() -> None:
    late = RankStatus(NodeId("n2"), RankPhase.PREPARING, start_error="n2: not ready 10m")
    gang_of_3 = a_gang(first_failed_rank=1, started_time_s=None)
    waited = gang_of_3._replace(ranks=(gang_of_3.ranks[0], late, gang_of_3.ranks[2]))
    assert gang.heard(waited, 0, ended(0, exit_code=1)).first_failed_rank == 1
