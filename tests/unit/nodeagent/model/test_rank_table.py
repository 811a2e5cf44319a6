"""The machine of one rank: every cell of its table, and walks of random events."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_nodeagent.model.port import ExitRecord, ExitWhy
from dlq_nodeagent.model.rank import (
    ALIVE,
    SUSPENSION,
    TABLE,
    Acknowledged,
    BackAsked,
    CameBack,
    Effect,
    Exited,
    HandedOver,
    IllegalRankEvent,
    LaunchFailed,
    LetGo,
    MainStarted,
    NoticeDue,
    OutAsked,
    Prepared,
    Rank,
    RankEvent,
    RankState,
    RankSuspension,
    Released,
    StayedIn,
    StopAsked,
    Stopping,
    Stranded,
    UsersFound,
    WentOut,
    accept,
    notice_due_s,
    step,
)
from dlq_nodeagent.model.report import phase_of, report_of
from support.agent_bench import a_launch, a_stop

LAUNCH = a_launch()
RECORD = ExitRecord(key=LAUNCH.key, epoch=7, why=ExitWhy.EXITED, code=0, signal=None)
EVENTS: tuple[RankEvent, ...] = (
    Prepared(0),
    LetGo(LAUNCH),
    LaunchFailed("no"),
    HandedOver(),
    MainStarted(11.0),
    StopAsked(a_stop(LAUNCH)),
    OutAsked(5),
    BackAsked(6),
    BackAsked(7, (1,)),
    UsersFound((11,), 1 << 30),
    WentOut(1 << 30, 0.5, own_only="old"),
    StayedIn("no room"),
    CameBack(0.5),
    Stranded("no way back"),
    NoticeDue(0),
    Exited(RECORD),
    Released(),
    Acknowledged(),
)


def a_rank(state: RankState) -> Rank:
    """A rank in that state, with a stop in progress where there must be one."""
    stopping = Stopping(cause="preempt", grace_s=60.0, due_s=10.0, noticed_s=None)
    if state is RankState.STOPPING:
        stopping = Stopping(cause="preempt", grace_s=60.0, due_s=10.0, noticed_s=10.0)
    needs = state in (RankState.STOP_WAITING, RankState.STOPPING)
    suspension = RankSuspension(number=1, out=True) if state in SUSPENSION else None
    asked = stopping if needs else None
    return Rank(launch=LAUNCH, state=state, stopping=asked, suspension=suspension)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("state", RankState)
def test_every_cell_of_the_table_is_taken_or_refused(state: RankState, event: RankEvent) -> None:
    target = TABLE.get((state, type(event)))
    if target is None:
        with pytest.raises(IllegalRankEvent):
            step(a_rank(state), event, now_s=20.0)
    else:
        assert step(a_rank(state), event, now_s=20.0).rank.state is target


def test_every_event_has_a_row_and_every_state_can_be_reached() -> None:
    assert {kind for _, kind in TABLE} == {type(event) for event in EVENTS}
    assert set(TABLE.values()) | {RankState.PREPARING} == set(RankState)


def test_nothing_leaves_the_last_state() -> None:
    assert {to for (state, _), to in TABLE.items() if state is RankState.KEPT} == {RankState.KEPT}


@given(st.integers(0, 2**32))
def test_phases_never_go_back_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    order = ["preparing", "started", "stopping", "exited", "start_failed"]
    rank, highest = accept(LAUNCH, now_s=0.0).rank, 0
    for now_s in range(1, 30):
        try:
            rank = step(rank, rng.choice(EVENTS), now_s=float(now_s)).rank
        except IllegalRankEvent:
            continue
        place = order.index(phase_of(rank).value)
        assert place >= highest
        highest = min(place, 3)
        assert report_of(rank, sequence=1, now_s=100.0).key == LAUNCH.key


@given(st.integers(0, 2**32))
def test_the_end_is_told_exactly_once_before_it_is_confirmed(seed: int) -> None:
    rng = random.Random(seed)
    rank, told = accept(LAUNCH, now_s=0.0).rank, 0
    events = [event for event in EVENTS if not isinstance(event, StopAsked)]
    for now_s in range(1, 60):
        before = rank.state
        try:
            done = step(rank, rng.choice(events), now_s=float(now_s))
        except IllegalRankEvent:
            continue
        rank = done.rank
        if rank.state is RankState.ENDED and before is not RankState.ENDED:
            told += done.effects.count(Effect.TELL)
    assert told == (1 if rank.state in (RankState.ENDED, RankState.KEPT) else 0)


def test_a_notice_of_a_saving_stop_waits_for_a_beat_or_the_start_up_grace() -> None:
    waiting = Rank(
        launch=LAUNCH,
        state=RankState.STOP_WAITING,
        started_s=100.0,
        stopping=Stopping(cause="preempt", grace_s=60.0, due_s=105.0),
    )
    from dataclasses import replace

    assert notice_due_s(waiting, startup_grace_s=20.0) == 120.0
    assert notice_due_s(replace(waiting, beaten=True), startup_grace_s=20.0) == 105.0
    assert waiting.state in ALIVE


def test_a_reclaim_ends_when_it_was_promised_also_in_the_start_up_grace() -> None:
    asked = Stopping(cause="reclaim", grace_s=6.0, due_s=105.0)
    waiting = Rank(launch=LAUNCH, state=RankState.STOP_WAITING, started_s=100.0, stopping=asked)
    assert notice_due_s(waiting, startup_grace_s=20.0) == 108.0
    for noticed_s, ends_s in ((105.5, 111.0), (108.0, 111.0), (300.0, 303.0)):
        told = step(waiting, NoticeDue(0), now_s=noticed_s).rank.stopping
        assert told is not None
        assert told.end_s == ends_s, "who was away gives it half of its grace all the same"
