"""What GPUs x time came to: work that stays, work that is lost and to what, and the way there and
back.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Checkpoint
from dlq_master.model.lease import LeaseKind
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.usage.accounting import DAY_S, Use, UseClass, by_day, charges, pieces, summed
from support.stored_values import a_job, an_attempt

OWN = {NodeId("gpu01"): "training"}


def saved(at_s: float) -> Checkpoint:
    return Checkpoint(path="/c", step=1, time_s=at_s, attempt=1)


def spans(attempt: Attempt, until_s: float, **of_job: Any) -> list[tuple[str, float]]:
    """Of those that last: what for, and for how long."""
    found = pieces(attempt, a_job(**of_job), until_s)
    return [(use.value, end_s - begin_s) for use, begin_s, end_s in found if end_s > begin_s]


def ended(state: AttemptState, **more: Any) -> Attempt:
    """Placed at 100, ran from 110 to 190."""
    times = {"assigned_time_s": 100.0, "started_time_s": 110.0, "ended_time_s": 190.0}
    return an_attempt(state=state, **{**times, **more})


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (ended(AttemptState.SUCCEEDED), [("transit", 10), ("useful", 80), ("transit", 10)]),
        # It saved at 150, and left; the master heard of that at 200.
        (
            ended(AttemptState.PREEMPTED, checkpoint=saved(150.0)),
            [("transit", 10), ("useful", 40), ("transit", 40), ("transit", 10)],
        ),
        (
            ended(AttemptState.PREEMPTED_LOST, checkpoint=saved(150.0)),
            [("transit", 10), ("useful", 40), ("preempted", 40), ("transit", 10)],
        ),
        (ended(AttemptState.NODE_LOST), [("transit", 10), ("failed", 80), ("transit", 10)]),
        (
            ended(AttemptState.FAILED, checkpoint=saved(180.0)),
            [("transit", 10), ("useful", 70), ("failed", 10), ("transit", 10)],
        ),
        (ended(AttemptState.CANCELLED), [("transit", 10), ("useful", 80), ("transit", 10)]),
        (ended(AttemptState.START_FAILED, started_time_s=None), [("failed", 100)]),
        (ended(AttemptState.PREEMPTED, started_time_s=None), [("transit", 100)]),
        (ended(AttemptState.RUNNING, ended_time_s=None), [("transit", 10), ("useful", 90)]),
    ],
)
def test_the_time_of_an_attempt_is_told_apart(
    attempt: Attempt, expected: list[tuple[str, float]]
) -> None:
    assert spans(attempt, 200.0) == expected


def test_loading_a_checkpoint_is_on_the_way() -> None:
    attempt = ended(AttemptState.SUCCEEDED, resume_from=saved(50.0))
    assert spans(attempt, 190.0, resumes=(99.0, 25.0)) == [("transit", 25), ("useful", 65)]


def test_who_is_charged_by_what_right_and_on_whose_nodes() -> None:
    slots = (Slot(NodeId("gpu01"), 0b11), Slot(NodeId("inf01"), 0b111))
    lease = an_attempt().lease._replace(allocation=Allocation(slots))
    attempt = ended(AttemptState.SUCCEEDED, lease=lease)
    pools = {**OWN, NodeId("inf01"): "inference"}
    found = summed(charges(attempt, a_job(team="nlp"), 190.0, pools))
    told = {(row.pool, row.user, row.team): used.held for row, used in found.items()}
    assert told == {("training", "alice", "nlp"): 180.0, ("inference", "alice", "nlp"): 270.0}


@pytest.mark.parametrize(
    ("kind", "of_job", "expected"),
    [
        (LeaseKind.BE, {}, UseClass.BEST_EFFORT),
        (LeaseKind.BE, {"band": Band.BORROW}, UseClass.BORROWED),
        (LeaseKind.BE, {"promised": 0}, UseClass.PROMISED),
        (LeaseKind.SLO, {}, UseClass.PROMISED),
        (LeaseKind.PROFILE, {"promised": 0}, UseClass.TRIAL),
    ],
)
def test_the_class_is_the_right_by_which_it_ran(
    kind: LeaseKind, of_job: dict[str, Any], expected: UseClass
) -> None:
    attempt = ended(AttemptState.SUCCEEDED, lease=an_attempt().lease._replace(kind=kind))
    rows = list(charges(attempt, a_job(**of_job), 190.0, OWN))
    assert {account.use_class for account, _ in rows} == {expected}


def test_a_night_is_cut_at_midnight_and_what_was_before_the_books_is_left_out() -> None:
    attempt = ended(AttemptState.RUNNING, ended_time_s=None, assigned_time_s=DAY_S - 10.0)
    attempt = attempt._replace(started_time_s=DAY_S - 10.0)
    found = summed(charges(attempt, a_job(), DAY_S + 20.0, OWN, DAY_S - 4.0))
    assert {row.day: used.useful for row, used in found.items()} == {0: 8.0, 1: 40.0}


def test_slow_gpus_are_charged_as_devices_and_besides_in_normalised_gpu_seconds() -> None:
    attempt = ended(AttemptState.SUCCEEDED, speed=0.25)
    (used,) = summed(charges(attempt, a_job(), 190.0, OWN)).values()
    assert (used.transit, used.useful, used.held) == (20.0, 160.0, 180.0)
    assert used.normalised == 45.0


TIMES = st.floats(0.0, 3e5)


@given(
    state=st.sampled_from(AttemptState),
    placed_s=TIMES,
    spans_s=st.tuples(TIMES, TIMES, TIMES),
    ran=st.booleans(),
    save_s=st.none() | st.floats(-1e5, 1e6),
    resume_s=st.none() | TIMES,
)
def test_no_second_is_lost_or_counted_twice(
    state: AttemptState,
    placed_s: float,
    spans_s: tuple[float, float, float],
    ran: bool,
    save_s: float | None,
    resume_s: float | None,
) -> None:
    started_s = placed_s + spans_s[0]
    ended_s = started_s + spans_s[1]
    until_s = ended_s + spans_s[2]
    attempt = an_attempt(
        state=state,
        assigned_time_s=placed_s,
        started_time_s=started_s if ran else None,
        ended_time_s=None if an_attempt(state=state).live else ended_s,
        checkpoint=None if save_s is None else saved(save_s),
        resume_from=None if resume_s is None else saved(0.0),
    )
    job = a_job(resumes=() if resume_s is None else (resume_s,))
    found = pieces(attempt, job, until_s)
    assert found[0][1] == placed_s
    assert found[-1][2] == until_s
    for (_, _, end_s), (_, begin_s, _) in pairwise(found):
        assert end_s == begin_s
    assert all(begin_s <= end_s for _, begin_s, end_s in found)
    assert sum(span_s for _, span_s in by_day(placed_s, until_s)) == pytest.approx(
        until_s - placed_s
    )
    if attempt.live:
        assert {use for use, begin_s, end_s in found if end_s > begin_s} <= {
            Use.USEFUL,
            Use.TRANSIT,
        }
