"""How long the planning process is waited for."""

from __future__ import annotations

from dlq_master.planner.process import FACTOR, KEPT, LEAST_S, START_S, PlannerPatience


def test_who_answers_soon_is_not_waited_for_long() -> None:
    patience = PlannerPatience(20.0)
    assert patience.of("promises", starting=True) == LEAST_S + START_S
    patience.answered("promises", 3.0, starting=True)
    assert patience.of("promises", starting=False) == LEAST_S, "its start says nothing of the next"
    patience.answered("promises", 0.05, starting=False)
    assert patience.of("promises", starting=False) == LEAST_S


def test_who_takes_long_is_waited_for_longer_but_never_beyond_the_limit() -> None:
    patience = PlannerPatience(20.0)
    patience.answered("slot", 0.7, starting=False)
    assert patience.of("slot", starting=False) == FACTOR * 0.7
    assert patience.of("promises", starting=False) == LEAST_S, "other questions take another time"
    patience.answered("slot", 9.0, starting=False)
    assert patience.of("slot", starting=True) == 20.0
    for _ in range(KEPT):
        patience.answered("slot", 0.01, starting=False)
    assert patience.of("slot", starting=False) == LEAST_S, "what was long ago is forgotten"


def test_who_was_given_up_is_asked_again_with_twice_the_patience() -> None:
    patience = PlannerPatience(20.0)
    told = []
    for _ in range(5):
        told.append(patience.of("slot", starting=False))
        patience.exhausted()
    assert told == [LEAST_S, 2 * LEAST_S, 4 * LEAST_S, 8 * LEAST_S, 20.0]
    patience.answered("slot", 0.1, starting=False)
    assert patience.of("slot", starting=False) == LEAST_S
