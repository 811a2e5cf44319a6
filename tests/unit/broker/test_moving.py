"""A job that waits moves to another cluster: it ends at one before it comes to be at the other."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import pytest

from dlq_broker.carrying import Carrier
from dlq_broker.handover import HandOver, HandOverState, MovingJob, NextAct, digest_of
from support.fake_clusters import (
    NOW_S,
    FakeCluster,
    Killed,
    MemoryRecords,
    MortalDoor,
    MortalRecords,
)

SPEC = b"spec"
VERSION = 7


class Move(NamedTuple):
    """Job 3 waits at a, and is to move to b, or else to be submitted at a again."""

    records: MemoryRecords
    a: FakeCluster
    b: FakeCluster

    def process(self, dies_at: int = -1) -> Carrier:
        mortal = MortalRecords(self.records, dies_at)
        doors = {site.name: MortalDoor(site, mortal) for site in (self.a, self.b)}
        return Carrier(mortal, doors, lambda: NOW_S)

    def go_on(self, times: int = 9, dies_at: int = -1) -> HandOver:
        left = iter([True] * times)
        return self.process(dies_at).go_on("m1", lambda: next(left, False))

    @property
    def there(self) -> list[str]:
        """All jobs that may run."""
        waits = [f"a:{job}" for job in self.a.versions]
        made = [f"{site.name}:{job}" for site in (self.a, self.b) for job in site.jobs.values()]
        return waits + made


def a_move(*line: str) -> Move:
    move = Move(MemoryRecords(), FakeCluster("a", line=[*line]), FakeCluster("b"))
    move.a.versions["3"] = VERSION
    move.records.write(
        HandOver(
            number="m1",
            made_s=NOW_S,
            name="train",
            digest=digest_of(SPEC),
            spec=SPEC,
            order=("b", "a"),
            sites=("fake", "fake"),
            act=NextAct.TAKE,
            moving=MovingJob("a", "fake", "3", VERSION),
        )
    )
    return move


@pytest.mark.parametrize(
    "line",
    [(), ("lost",), ("late",), ("away",), ("late", "lost"), ("lost", "away", "late")],
    ids=str,
)
@pytest.mark.parametrize("b_refuses", ["", "full"])
@pytest.mark.parametrize("started", [False, True])
def test_a_kill_at_any_step_leaves_one_job(
    line: tuple[str, ...], b_refuses: str, started: bool
) -> None:
    """`started`: it starts at a just before, so its version is another one."""
    for dies_at in count():
        move = a_move(*line)
        move.b.refuses = b_refuses
        if started:
            move.a.versions["3"] += 1
        died = False
        try:
            move.go_on(2, dies_at)
        except Killed:
            died = True
        assert len(move.there) <= 1
        hand = move.go_on()
        for site in (move.a, move.b):
            site.deliver()
        assert not hand.is_open
        assert move.there == [hand.global_name]
        if started:
            assert (hand.state, hand.global_name) == (HandOverState.STAYED, "a:3")
        if not died:
            return


def test_a_job_that_has_changed_stays_and_is_named() -> None:
    move = a_move()
    move.a.versions["3"] += 1
    hand = move.go_on()
    assert (hand.state, hand.global_name) == (HandOverState.STAYED, "a:3")
    assert hand.story == ("a keeps it: it has changed",)
    assert hand.spec == b""


def test_where_all_others_refuse_it_is_submitted_at_its_own_cluster_again() -> None:
    move = a_move()
    move.b.refuses = "full"
    hand = move.go_on()
    assert (hand.state, move.there) == (HandOverState.PLACED, [hand.global_name])
    assert hand.cluster == "a"


def test_an_order_that_is_late_is_proven_before_the_job_counts_as_kept() -> None:
    move = a_move("late")
    assert move.go_on(0).in_doubt
    move.a.versions["3"] += 1  # the next try is refused
    hand = move.go_on()
    assert (hand.state, move.there) == (HandOverState.STAYED, ["a:3"])
    move.a.versions["3"] = VERSION
    move.a.deliver()
    assert move.there == ["a:3"]


def test_giving_up_a_move_keeps_the_job_if_its_cluster_has_it() -> None:
    move = a_move()
    assert move.process().give_up("m1", lambda: False).state is HandOverState.STAYED
    assert move.there == ["a:3"]
    late = a_move("late")
    late.go_on(0)
    assert late.process().give_up("m1", lambda: False).state is HandOverState.STAYED
    late.a.deliver()
    assert late.there == ["a:3"]


def test_the_orders_of_a_move_have_keys_of_their_own() -> None:
    move = a_move()
    hand = move.records.read("m1")
    assert hand is not None
    assert (hand.key, hand.cluster) == ("m1:take", "a")
    after = move.go_on()
    assert (after.key, after.cluster) == ("m1.b", "b")
