"""The lease core beside a simulated row: who leads, until when, and what makes it stop."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from dlq_client.line.connection import STANDBY_DELAY_S
from dlq_common.fence import LeaderFence
from dlq_master.control.config import LeaderConfig
from dlq_master.leader.lease import (
    SPEAKS,
    Ask,
    LeaderLease,
    LeaseTerms,
    RowQuestion,
    Standing,
    carried_out,
)
from dlq_master.leader.row import HeldLease, RowUnknown
from support.simulated_lease import LeaseServer, SimulatedRow

TERMS = LeaseTerms(ttl_s=6.0, renew_s=1.0, poll_s=0.5)


@dataclass
class Candidate:
    """One master: its core, its session, and the host's clock."""

    name: str
    server: LeaseServer
    row: SimulatedRow = field(init=False)
    lease: LeaderLease = field(init=False)

    def __post_init__(self) -> None:
        self.row = SimulatedRow(self.server)
        self.lease = LeaderLease(self.name, TERMS)

    def step(self, now_s: float) -> None:
        """Ask what is due, and give back the answer."""
        self.lease.is_over(now_s)
        while (ask := self.lease.due(now_s)) is not None:
            try:
                told = carried_out(ask, self.lease, self.row, f"{self.name}:7320")
            except RowUnknown:
                self.lease.unknown(ask, now_s)
            else:
                self.lease.answered(ask, told, now_s)


@dataclass
class Pair:
    """Two masters at one database; the clocks of all three go alike."""

    server: LeaseServer = field(default_factory=LeaseServer)
    now_s: float = 100.0

    def __post_init__(self) -> None:
        self.one, self.two = Candidate("one", self.server), Candidate("two", self.server)

    def pass_s(self, span_s: float, *running: Candidate) -> None:
        """Time goes by in tenths of a second; the named ones run."""
        for _ in range(round(span_s * 10)):
            for each in running:
                each.step(self.now_s)
            self.now_s += 0.1
            self.server.now_s += 0.1

    def speak(self) -> list[str]:
        return [it.name for it in (self.one, self.two) if it.lease.may_speak(self.now_s)]


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.pass_s(1.0, made.one, made.two)
    assert made.speak() == ["one"]
    return made


def test_one_leads_and_the_other_knows_where(pair: Pair) -> None:
    pair.pass_s(60.0, pair.one, pair.two)
    assert pair.speak() == ["one"]
    assert pair.two.lease.leader == "one:7320"
    assert pair.one.lease.fence == LeaderFence("71", 1, 1)


def test_a_planned_hand_over_takes_less_than_a_second(pair: Pair) -> None:
    pair.one.lease.step_down(pair.now_s)
    assert pair.speak() == []
    pair.pass_s(0.8, pair.one, pair.two)
    assert pair.one.lease.standing is Standing.OVER
    assert pair.speak() == ["two"]
    assert pair.two.lease.fence.epoch == 2


def test_a_master_that_stepped_down_leaves_the_lead_to_others_for_the_time_of_one_lease() -> None:
    pair = Pair()
    pair.one.lease.waits_until_s = pair.now_s + TERMS.ttl_s
    pair.pass_s(TERMS.ttl_s - 1.0, pair.one)
    assert pair.speak() == []
    pair.pass_s(1.0, pair.one, pair.two)
    assert pair.speak() == ["two"]
    pair.two.lease.step_down(pair.now_s)
    pair.pass_s(0.8, pair.two, pair.one)
    assert pair.speak() == ["one"], "it waits no more, since another one has led"
    alone = Pair()
    alone.one.lease.waits_until_s = alone.now_s + TERMS.ttl_s
    alone.pass_s(TERMS.ttl_s + 1.0, alone.one)
    assert alone.speak() == ["one"]


def test_both_tell_how_long_the_lease_lasts(pair: Pair) -> None:
    pair.pass_s(5.0, pair.one, pair.two)
    for each in (pair.one, pair.two):
        assert TERMS.ttl_s - TERMS.renew_s - 0.6 < each.lease.left_s(pair.now_s) <= TERMS.ttl_s
    pair.pass_s(2.0, pair.two)
    assert pair.two.lease.left_s(pair.now_s) < TERMS.ttl_s - 2.0


def test_a_standby_looks_again_at_the_end_of_the_lease(pair: Pair) -> None:
    pair.pass_s(3.0, pair.one, pair.two)
    ends_s = pair.one.lease.left_s(pair.now_s) + pair.now_s
    looks = list[float]()
    while not pair.two.lease.may_speak(pair.now_s):
        pair.pass_s(0.1, pair.two)
        looks.append(pair.two.lease.due_s())
    assert any(abs(look_s - ends_s) < 0.02 for look_s in looks), "it did not wait for its next poll"
    assert pair.now_s <= ends_s + 0.2


def test_the_default_lease_leaves_a_second_and_a_half_of_six_for_everything_else() -> None:
    """A takeover of a leader that stands still takes one lease, and a client's longest pause. What
    is left of 6 s is for questions to the database, reading the last turns, and opening the ports.
    """
    config, terms = LeaderConfig(), LeaseTerms()
    assert (config.ttl, config.renew, config.poll) == (terms.ttl_s, terms.renew_s, terms.poll_s)
    assert 6.0 - config.ttl - STANDBY_DELAY_S >= 1.5
    assert SPEAKS * config.ttl >= 2.5 * config.renew, "two renewals may be late"


def test_the_end_of_the_leaders_session_frees_the_row_at_once(pair: Pair) -> None:
    pair.one.row.end()
    pair.pass_s(0.8, pair.two)
    assert pair.two.lease.may_speak(pair.now_s)


def test_a_stopped_leader_is_silent_before_a_rival_leads(pair: Pair) -> None:
    silent_s = pair.one.lease.speaks_until_s()
    took_s = 0.0
    while not pair.two.lease.may_speak(pair.now_s):
        pair.pass_s(0.1, pair.two)
        took_s += 0.1
    assert silent_s < pair.now_s
    assert took_s <= TERMS.ttl_s + 2 * TERMS.poll_s
    assert not pair.one.lease.may_speak(pair.now_s)
    assert pair.one.lease.is_over(pair.now_s)
    assert pair.one.lease.due(pair.now_s) is None


def test_lost_answers_silence_the_leader_at_two_thirds_and_end_it_at_the_full_time(
    pair: Pair,
) -> None:
    pair.one.row.cut = pair.one.row.lost = True
    end_s = pair.one.lease.speaks_until_s() + TERMS.ttl_s / 3
    while not pair.one.lease.is_over(pair.now_s):
        assert pair.one.lease.may_speak(pair.now_s) == (
            pair.now_s < pair.one.lease.speaks_until_s()
        )
        pair.pass_s(0.1, pair.one)
    assert pair.now_s == pytest.approx(end_s, abs=0.11)
    assert "no renewal" in pair.one.lease.why


def test_a_renewal_that_comes_in_the_last_third_lets_it_speak_again(pair: Pair) -> None:
    pair.one.row.cut = pair.one.row.lost = True
    pair.pass_s(4.5, pair.one)
    assert pair.speak() == []
    pair.one.row.cut = pair.one.row.lost = False
    pair.pass_s(0.5, pair.one)
    assert pair.speak() == ["one"]


def test_a_lost_session_silences_the_leader_until_the_row_is_renewed(pair: Pair) -> None:
    pair.one.row.end()
    pair.one.lease.session_lost(pair.now_s)
    assert pair.speak() == []
    pair.one.row.reopened()
    pair.pass_s(0.1, pair.one)
    assert pair.speak() == ["one"]
    assert pair.one.lease.fence.epoch == 1


def finds_its_lost_try(pair: Pair) -> None:
    """The second master has taken the row without an answer, and reads that it is its own."""
    pair.one.row.end()
    pair.two.row.cut = True
    ask = Ask(RowQuestion.TRY, LeaderFence("71", 1, 1), pair.now_s)
    with pytest.raises(RowUnknown):
        carried_out(ask, pair.two.lease, pair.two.row, "two:7320")
    pair.two.row.cut = False
    pair.now_s = pair.two.lease.due_s()
    found = pair.two.lease.due(pair.now_s)
    assert found is not None
    assert found.question is RowQuestion.READ
    told = carried_out(found, pair.two.lease, pair.two.row, "two:7320")
    pair.two.lease.answered(found, told, pair.now_s)


def test_a_row_that_was_taken_without_an_answer_is_renewed_before_a_word(pair: Pair) -> None:
    finds_its_lost_try(pair)
    assert not pair.two.lease.may_speak(pair.now_s)
    pair.two.step(pair.now_s)
    assert pair.two.lease.may_speak(pair.now_s)


def test_a_rival_may_take_a_row_whose_lost_session_ended_before_the_renewal(pair: Pair) -> None:
    finds_its_lost_try(pair)
    pair.two.row.end()  # its lost session ends on the server
    third = Candidate("third", pair.server)
    pair.pass_s(1.0, third)
    pair.two.row.reopened()
    pair.pass_s(1.0, pair.two, third)
    assert third.lease.may_speak(pair.now_s)
    assert pair.two.lease.standing is Standing.STANDBY


def test_a_promoted_second_server_ends_the_leader_and_keeps_the_epochs_going(pair: Pair) -> None:
    pair.server.promote()
    pair.one.row.reopened()
    pair.two.row.reopened()
    pair.pass_s(2.0, pair.one, pair.two)
    assert pair.one.lease.is_over(pair.now_s)
    assert pair.speak() == ["two"]
    assert pair.two.lease.fence == LeaderFence("71", 2, 2)


def test_a_second_server_that_lacks_an_epoch_is_refused(pair: Pair) -> None:
    pair.server.synchronous = False
    pair.one.lease.allow_async = pair.two.lease.allow_async = True
    pair.one.lease.step_down(pair.now_s)
    pair.pass_s(1.0, pair.one, pair.two)  # epoch 2, which the second server has not heard of
    assert pair.speak() == ["two"]
    pair.server.promote()
    late = Candidate("late", pair.server)
    late.lease.allow_async, late.lease.known = True, pair.two.lease.known
    pair.pass_s(10.0, late)
    assert late.lease.standing is Standing.STANDBY
    assert "the database lost commits: epoch 1 after 2" in late.lease.why


def test_a_second_server_that_lacks_a_turn_is_refused_before_anybody_leads_there(
    pair: Pair,
) -> None:
    pair.server.promote()
    pair.server.row.turn = 812
    late = Candidate("late", pair.server)
    late.lease.known, late.lease.turn = pair.one.lease.known, 815
    pair.pass_s(10.0, late)
    assert late.lease.standing is Standing.STANDBY
    assert "lost commits: its last turn is 812, and turn 815 was seen" in late.lease.why
    assert pair.server.row.epoch == late.lease.known.epoch, "the right server has as high an epoch"
    pair.server.row.turn = 815
    pair.pass_s(1.0, late)
    assert late.lease.may_speak(pair.now_s)


def test_a_server_that_lacks_a_turn_and_comes_between_the_look_and_the_try_is_refused(
    pair: Pair,
) -> None:
    pair.one.row.end()
    pair.server.row.turn = 815
    lease, row = pair.two.lease, pair.two.row
    lease.turn = 815
    pair.now_s = lease.due_s()
    look = lease.due(pair.now_s)
    assert look is not None
    lease.answered(look, carried_out(look, lease, row, "two:7320"), pair.now_s)
    pair.server.row.turn = 812  # a server that lags is promoted, and the epoch is the same there
    ask = lease.due(pair.now_s)
    assert ask is not None
    assert ask.question is RowQuestion.TRY
    told = carried_out(ask, lease, row, "two:7320")
    assert told.holder == "two"
    lease.answered(ask, told, pair.now_s)
    assert lease.standing is Standing.STANDBY
    assert "its last turn is 812, and turn 815 was seen" in lease.why
    pair.pass_s(10.0, pair.two)
    assert not pair.two.lease.may_speak(pair.now_s)


def test_another_database_is_refused_until_an_operator_names_the_former_one(pair: Pair) -> None:
    other = LeaseServer(system="72")
    late = Candidate("late", other)
    late.lease.known = pair.one.lease.known
    pair.server = other
    pair.pass_s(3.0, late)
    assert "the system 72 is not 71" in late.lease.why
    late.lease.former = ("71",)
    pair.pass_s(1.0, late)
    assert late.lease.may_speak(pair.now_s)


def test_without_a_second_server_nobody_leads_unless_it_is_asked_for() -> None:
    pair = Pair(LeaseServer(synchronous=False))
    pair.pass_s(3.0, pair.one, pair.two)
    assert pair.speak() == []
    assert "no second server" in pair.one.lease.why
    pair.one.lease.allow_async = True
    pair.pass_s(1.0, pair.one, pair.two)
    assert pair.speak() == ["one"]


def test_a_leader_whose_second_server_is_named_no_more_is_silent_and_ends(pair: Pair) -> None:
    """The setting can change under a leader: a reload is enough."""
    pair.server.synchronous = False
    pair.pass_s(TERMS.renew_s + 0.1, pair.one, pair.two)
    assert pair.speak() == [], "the next renewal shows it"
    assert "no second server" in pair.one.lease.why
    pair.pass_s(TERMS.ttl_s, pair.one, pair.two)
    assert pair.one.lease.is_over(pair.now_s)
    assert "no second server" in pair.one.lease.why
    assert pair.speak() == [], "and nobody else leads"


def test_a_leader_whose_second_server_is_named_again_soon_goes_on(pair: Pair) -> None:
    pair.server.synchronous = False
    pair.pass_s(TERMS.renew_s + 0.1, pair.one)
    pair.server.synchronous = True
    pair.pass_s(TERMS.poll_s + 0.1, pair.one)
    assert pair.speak() == ["one"]
    assert pair.one.lease.why == ""


def test_a_leader_that_may_lose_commits_by_name_goes_on_with_one_server(pair: Pair) -> None:
    pair.one.lease.allow_async = True
    pair.server.synchronous = False
    pair.pass_s(TERMS.ttl_s, pair.one)
    assert pair.speak() == ["one"]


def test_a_leader_that_leaves_a_database_with_one_server_gives_the_lease_back(pair: Pair) -> None:
    pair.server.synchronous = False
    pair.one.lease.step_down(pair.now_s)
    pair.pass_s(1.0, pair.one)
    assert pair.one.lease.standing is Standing.OVER
    assert pair.server.told().free


def test_a_second_server_that_goes_between_the_look_and_the_try_leaves_nobody_leading() -> None:
    pair = Pair()
    lease, row = pair.one.lease, pair.one.row
    look = lease.due(pair.now_s)
    assert look is not None
    lease.answered(look, carried_out(look, lease, row, "one:7320"), pair.now_s)
    pair.server.synchronous = False
    pair.pass_s(TERMS.ttl_s, pair.one)
    assert pair.speak() == []
    assert "no second server" in lease.why


def test_a_renewal_of_a_row_that_a_rival_has_taken_ends_the_leader(pair: Pair) -> None:
    ask = Ask(RowQuestion.RENEW, pair.one.lease.fence, pair.now_s)
    taken = HeldLease(2, "two", "two:7320", 5.0, "71", 1, synchronous=True)
    pair.one.lease.answered(ask, taken, pair.now_s)
    assert pair.one.lease.is_over(pair.now_s)
    assert pair.one.lease.why == "another master leads, in epoch 2, at two:7320"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_fails_two_masters_never_speak_at_once(seed: int) -> None:
    """Sessions break, answers are lost, hosts are stopped, and the clocks differ in speed."""
    rng, server, now_s = random.Random(seed), LeaseServer(), 0.0
    masters = [Candidate(f"m{number}", server) for number in range(3)]
    speeds = {it.name: 1 + rng.uniform(-2e-4, 2e-4) for it in masters}
    stopped = {it.name: 0.0 for it in masters}
    epochs: list[int] = []
    speak: list[Candidate] = []
    led = 0
    for tick in range(6000):
        now_s += 0.05
        server.now_s = now_s
        calm = tick > 5000
        for number, each in enumerate(masters):
            host_s = now_s * speeds[each.name]
            if not calm and rng.random() < 0.004:
                stopped[each.name] = now_s + rng.uniform(0.1, 12.0)
            if not calm and rng.random() < 0.004:
                each.row.cut, each.row.lost = True, rng.random() < 0.5
            if calm or rng.random() < 0.02:
                each.row.cut = each.row.lost = False
            if each.lease.is_over(host_s) and stopped[each.name] <= now_s:
                each.row.end()
                masters[number] = Candidate(f"{each.name}+", server)
                speeds[f"{each.name}+"] = speeds[each.name]
                stopped[f"{each.name}+"] = 0.0
                continue
            if stopped[each.name] <= now_s:
                each.step(host_s)
        speak = [it for it in masters if it.lease.may_speak(now_s * speeds[it.name])]
        assert len(speak) <= 1, f"{[it.name for it in speak]} at {now_s}"
        led += bool(speak)
        if speak and (not epochs or epochs[-1] != speak[0].lease.fence.epoch):
            epochs.append(speak[0].lease.fence.epoch)
    assert epochs == sorted(set(epochs))
    assert speak
    assert led > 1000
