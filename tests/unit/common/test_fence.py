"""Which leader may be obeyed after another one was."""

from __future__ import annotations

import pytest

from dlq_common.fence import LeaderFence, later, refusal

KNOWN = LeaderFence("71", 2, 7)


@pytest.mark.parametrize(
    "told",
    [
        KNOWN,
        LeaderFence("71", 2, 8),
        LeaderFence("71", 3, 8),  # a standby was promoted, and a leader came after it
    ],
)
def test_a_leader_of_the_same_system_with_no_lower_numbers_is_obeyed(told: LeaderFence) -> None:
    assert refusal(KNOWN, told) == ""
    assert later(KNOWN, told) == told


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (LeaderFence("71", 2, 6), "epoch 6 is lower than 7"),
        (LeaderFence("71", 1, 9), "timeline 1 is older than 2"),
        (LeaderFence("71", 3, 7), "epoch 7 was given on timeline 2 already"),
        (LeaderFence("72", 9, 99), "the system 72 is not 71"),
        (LeaderFence("", 0, 99), "a master without a system is not 71"),
    ],
)
def test_any_other_leader_is_refused_in_words(told: LeaderFence, words: str) -> None:
    assert words in refusal(KNOWN, told)


def test_another_system_is_obeyed_once_an_operator_has_named_the_former_one() -> None:
    told = LeaderFence("72", 1, 3)
    assert refusal(KNOWN, told, former=("71",)) == ""
    assert later(KNOWN, told) == told
    assert "is not 72" in refusal(told, KNOWN)  # and the former one no more


def test_a_master_with_its_own_database_may_move_into_a_system() -> None:
    alone = LeaderFence(epoch=40)
    assert refusal(alone, LeaderFence("71", 1, 1)) == ""
    assert "lower" in refusal(alone, LeaderFence(epoch=39))
    assert refusal(alone, LeaderFence(epoch=41)) == ""
