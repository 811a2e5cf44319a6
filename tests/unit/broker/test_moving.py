"""A job that waits moves to another cluster: it ends at one before it comes to be at the other."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count, product
from typing import NamedTuple

import pytest

from dlq.v1 import job_pb2
from dlq_broker.carrying import Carrier, why_open
from dlq_broker.doors import Declined, Tried
from dlq_broker.handover import (
    BeforeMove,
    HandOver,
    HandOverState,
    MovingJob,
    NextAct,
    digest_of,
)
from dlq_common.text.wire import from_timestamp, to_timestamp
from support.fake_clusters import (
    NOW_S,
    SAVED,
    FakeCluster,
    Killed,
    MemoryRecords,
    MortalDoor,
    MortalRecords,
)

SPEC = job_pb2.JobSpec(name="train").SerializeToString()
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

    def goes_on_after_death(self, times: int, dies_at: int) -> tuple[HandOver, bool]:
        """It ends, with one job, though its process dies there; and whether that came so far."""
        died = False
        try:
            self.go_on(times, dies_at)
        except Killed:
            died = True
        assert len(self.there) <= 1
        hand = self.go_on()
        for site in (self.a, self.b):
            site.deliver()
        assert not hand.is_open
        assert self.there == [hand.global_name]
        return hand, died

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
        hand, died = move.goes_on_after_death(2, dies_at)
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


@pytest.mark.parametrize(
    ("line", "refuses", "words"),
    [
        (["", "away"], "", "a was not reached: away"),
        ([], "too many submissions", "a refused it: too many submissions"),
        (["", "late"], "too many submissions", "a refused it: too many submissions"),
    ],
    ids=["away", "refused", "refused in doubt"],
)
def test_a_job_that_its_own_cluster_does_not_take_back_at_once_is_not_lost(
    line: list[str], refuses: str, words: str
) -> None:
    """It stays open with its spec, one command does not ask for ever, and the next one has it."""
    move = a_move(*line)
    move.b.away, move.a.refuses = True, refuses
    hand = move.go_on(0)
    if hand.in_doubt:
        hand = move.go_on(0)
    assert (hand.is_open, hand.spec, move.there) == (True, SPEC, [])
    assert hand.story[-1] == words
    if not hand.in_doubt:
        doors = {"a": MortalDoor(move.a, MortalRecords(move.records))}
        assert why_open(hand, doors, NOW_S) == (
            f"no cluster has the job yet, and a is asked for it next ({words})"
        )
    move.a.refuses, move.a.line = "", []
    hand = move.go_on()
    move.a.deliver()
    assert (hand.state, hand.global_name) == (HandOverState.PLACED, "a:17")
    assert move.there == ["a:17"]


def test_a_job_that_no_cluster_takes_any_more_can_be_given_up() -> None:
    move = a_move()
    move.a.refuses = move.b.refuses = "full"
    assert move.go_on(3).is_open
    assert move.process().give_up("m1", lambda: False).state is HandOverState.GIVEN_UP


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


def a_running_one(*line: str) -> Move:
    """The same job, but it runs: it is to be paused first."""
    move = a_move(*line)
    move.a.running.add("3")
    hand = move.records.read("m1")
    assert hand is not None
    assert hand.moving is not None
    moving = hand.moving._replace(before=BeforeMove.RUNS)
    move.records.write(replace(hand, act=NextAct.PAUSE, moving=moving))
    return move


CUTS = ("away", "late", "lost")  # before it has left, on its way, and after it has acted


def faults() -> list[tuple[str, ...]]:
    """Each message of a move cut in each way, for one try and for two."""
    single = [("",) * at + (cut,) for at in range(5) for cut in CUTS]
    double = [("",) * at + cuts for at in range(5) for cuts in product(CUTS, CUTS)]
    return [(), *single, *double]


@pytest.mark.parametrize("line", faults(), ids=str)
def test_a_running_job_that_moves_is_cut_off_or_killed_anywhere_and_is_there_once(
    line: tuple[str, ...],
) -> None:
    """It is at one cluster in the end, and nowhere paused."""
    for dies_at in count():
        move = a_running_one(*line)
        hand, died = move.goes_on_after_death(3, dies_at)
        assert not move.a.paused
        if hand.cluster == "b":
            assert move.b.specs == [SPEC + SAVED]
        if not died:
            return


@pytest.mark.parametrize("line", faults(), ids=str)
def test_a_move_that_is_given_up_anywhere_leaves_the_job_running(line: tuple[str, ...]) -> None:
    for messages in range(5):
        move = a_running_one(*line)
        move.a.saves_for = 2
        with suppress(Killed):
            move.go_on(9, dies_at=4 * messages)
        hand = move.process().give_up("m1", lambda: True)
        for site in (move.a, move.b):
            site.deliver()
        assert not hand.is_open
        assert len(move.there) <= 1
        assert not move.a.paused
        if hand.state is HandOverState.STAYED:
            assert move.there == ["a:3"]
        if hand.state is HandOverState.GIVEN_UP:  # its cluster had ended it, and no other has it
            assert move.there == []


def test_a_paused_job_that_changes_is_looked_at_again_and_moves() -> None:
    move = a_running_one()
    move.a.saves_for = 0

    class Changed(FakeCluster):
        """Its user changes it just before it is taken, once."""

        def take(self, job: str, version: int, key: str) -> Tried:
            if version == VERSION + 1:
                self.versions[job] += 1
            return super().take(job, version, key)

    changed = Changed("a", running={"3"}, saves_for=0, versions={"3": VERSION})
    moved = move._replace(a=changed)
    hand = moved.go_on()
    assert (hand.state, moved.there) == (HandOverState.PLACED, [hand.global_name])
    assert hand.cluster == "b"


def test_a_paused_job_that_its_cluster_does_not_end_goes_on_there() -> None:
    move = a_running_one()

    class Kept(FakeCluster):
        def take(self, job: str, version: int, key: str) -> Tried:
            return Declined("not today", "PERMISSION_DENIED")

    moved = move._replace(a=Kept("a", running={"3"}, saves_for=0, versions={"3": VERSION}))
    hand = moved.go_on()
    assert (hand.state, moved.there) == (HandOverState.STAYED, ["a:3"])
    assert not moved.a.paused
    assert hand.story[-1] == "a lets it go on"


def test_a_job_whose_user_resumes_it_meanwhile_stays() -> None:
    move = a_running_one()
    move.a.saves_for = 9
    move.go_on(2)
    move.a.paused.discard("3")
    hand = move.go_on()
    assert (hand.state, move.there) == (HandOverState.STAYED, ["a:3"])
    assert hand.story[-1] == "a keeps it: it is paused no more"


def due_at(spec: job_pb2.JobSpec, *instants_s: float) -> bytes:
    """The spec with deadlines at these instants, and lateness that costs from the first one."""
    for due_s in instants_s:
        spec.deadlines.add().due_time.CopyFrom(to_timestamp(due_s))
    spec.lateness.due_time.CopyFrom(to_timestamp(instants_s[0]))
    return spec.SerializeToString(deterministic=True)


@pytest.mark.parametrize("passes_after_s", [-60.0, 5.0], ids=["before", "between two tries"])
def test_a_deadline_that_passes_on_the_way_does_not_change_what_is_asked_again(
    passes_after_s: float,
) -> None:
    """The first try is accepted, and its answer is lost. A repeat must be the same request."""
    move = a_move()
    hand = move.records.read("m1")
    assert hand is not None
    spec = due_at(job_pb2.JobSpec(name="train", on_miss="cancel"), NOW_S + passes_after_s)
    move.records.write(replace(hand, spec=spec, digest=digest_of(spec)))
    move.b.line = ["lost", "lost"]
    minutes = count()
    carrier = Carrier(move.records, {"a": move.a, "b": move.b}, lambda: NOW_S + 60 * next(minutes))
    left = iter([True] * 9)
    placed = carrier.go_on("m1", lambda: next(left, False))
    assert (placed.state, move.there) == (HandOverState.PLACED, ["b:17"])
    assert placed.story[1:] == ("b did not answer: no answer", "b has it as job 17")
    (asked,) = [job_pb2.JobSpec.FromString(one) for one in move.b.specs]
    assert (len(asked.deadlines), asked.on_miss) == (0, "")
    assert from_timestamp(asked.lateness.due_time) > NOW_S


def test_each_cluster_is_asked_without_the_deadlines_that_have_passed_by_then() -> None:
    move = a_move()
    hand = move.records.read("m1")
    assert hand is not None
    spec = due_at(job_pb2.JobSpec(name="train"), NOW_S - 60.0, NOW_S + 60.0, NOW_S + 9_000.0)
    move.records.write(replace(hand, spec=spec))
    clock_s = NOW_S

    class Slow(FakeCluster):
        def submit(self, spec: bytes, key: str) -> Tried:
            nonlocal clock_s
            clock_s += 120.0
            self.specs.append(spec)
            return Declined("full")

    slow = Slow("b")
    Carrier(move.records, {"a": move.a, "b": slow}, lambda: clock_s).go_on("m1", lambda: False)
    asked = [job_pb2.JobSpec.FromString(one) for one in (*slow.specs, *move.a.specs)]
    assert [len(one.deadlines) for one in asked] == [2, 1]


def test_a_job_comes_back_though_its_deadline_passed_between_two_tries_at_its_own_cluster() -> None:
    """The first try is late, and its repeat is refused: it has the deadlines of then."""
    move = a_move()
    hand = move.records.read("m1")
    assert hand is not None
    spec = due_at(job_pb2.JobSpec(name="train"), NOW_S + 90.0)
    move.records.write(replace(hand, spec=spec))
    move.b.refuses = "full"
    clock_s = NOW_S

    class Strict(FakeCluster):
        def _submit(self, spec: bytes, key: str) -> Tried:
            due = job_pb2.JobSpec.FromString(spec).lateness.due_time
            passed = key not in self.jobs and from_timestamp(due) <= clock_s
            return Declined("it is in the past") if passed else super()._submit(spec, key)

    a = Strict("a", versions=move.a.versions, line=["", "late"])
    carrier = Carrier(move.records, {"a": a, "b": move.b}, lambda: clock_s)
    assert carrier.go_on("m1", lambda: False).in_doubt
    clock_s += 120.0
    placed = carrier.go_on("m1", lambda: False)
    assert (placed.state, placed.key, a.jobs) == (
        HandOverState.PLACED,
        "m1:again1",
        {"m1:again1": "17"},
    )
    a.deliver()
    assert len(a.jobs) == 1


def test_a_new_job_is_submitted_as_it_is() -> None:
    """Its deadlines were read just now, and its cluster says what is wrong with them."""
    move = a_move()
    hand = move.records.read("m1")
    assert hand is not None
    late = due_at(job_pb2.JobSpec(name="late"), NOW_S - 60.0)
    for number, spec in (
        ("n1", late),
        ("n2", job_pb2.JobSpec(on_miss="cancel").SerializeToString()),
    ):
        new = replace(hand, number=number, spec=spec, moving=None, act=NextAct.SUBMIT)
        move.records.write(new)
        move.process().go_on(number, lambda: False)
        assert move.b.specs[-1] == spec
