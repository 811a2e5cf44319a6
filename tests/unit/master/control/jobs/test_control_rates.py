"""How fast and how much one user may submit: never refused is a repeat of what was accepted."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.errors import DlqError, QuotaExceeded, TryAgain
from dlq_master.control.config import JobsConfig, MasterConfig
from dlq_master.control.jobs.submit_rates import MOST_BUCKETS, SubmitRates, tokens_of
from dlq_master.control.stimuli import AskedArray, Caller, SubmitMany
from support.master_harness import ALICE, Master, config_of

Masters = Callable[..., Master]
BOB = Caller("bob", "user")


def limited(rate: float = 2.0, burst: int = 3, queued: int = 10_000) -> MasterConfig:
    jobs = JobsConfig(submit_rate=rate, submit_burst=burst, queued_per_user=queued)
    return replace(config_of(), jobs=jobs)


def test_a_bucket_gives_what_it_holds_and_fills_at_its_rate() -> None:
    rates = SubmitRates(2.0, 3)
    assert [rates.take("alice", 1, 100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert rates.take("alice", 1, 100.4) == pytest.approx(0.1)
    assert rates.take("alice", 1, 100.5) == 0.0
    assert rates.take("alice", 3, 101.5) == pytest.approx(0.5)
    assert rates.take("alice", 3, 102.0) == 0.0
    assert rates.take("bob", 3, 102.0) == 0.0, "everybody has their own"


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    rates = SubmitRates(2.0, 3)
    assert rates.take("alice", 3, 0.0) == 0.0
    assert rates.take("alice", 3, 1e6) == 0.0
    assert rates.take("alice", 1, 1e6) == 0.5


def test_more_than_a_bucket_holds_needs_it_full() -> None:
    rates = SubmitRates(2.0, 3)
    assert rates.take("alice", 50, 0.0) == 0.0
    assert rates.take("alice", 50, 1.0) == pytest.approx(0.5)
    assert rates.take("alice", 50, 1.5) == 0.0


def test_a_clock_that_stands_still_or_goes_back_fills_nothing() -> None:
    rates = SubmitRates(2.0, 1)
    assert rates.take("alice", 1, 10.0) == 0.0
    assert rates.take("alice", 1, 9.0) == 0.5


def test_buckets_of_users_who_came_once_are_forgotten() -> None:
    rates = SubmitRates(1.0, 1)
    for number in range(5 * MOST_BUCKETS):
        assert rates.take(f"user{number}", 1, float(number)) == 0.0
    assert len(rates) <= MOST_BUCKETS


def test_a_user_who_submits_too_fast_is_told_when_to_come_again(masters: Masters) -> None:
    master = masters(limited())
    outcomes = master.turn(*(master.submission() for _ in range(5)))
    assert [type(each) for each in outcomes[3:]] == [TryAgain, TryAgain]
    refusal = outcomes[3]
    assert refusal.metadata == {"retry_after_s": "1", "limit": "submit_rate"}
    assert "nothing was submitted" in refusal.hint
    assert len(master.state.cluster.jobs) == 3
    assert master.submit(caller=BOB).user == "bob", "others are not touched"

    master.clock.advance(0.5)
    assert master.submit().job_id == 5


def test_a_repeat_of_what_was_accepted_is_never_refused(masters: Masters) -> None:
    master = masters(limited(rate=0.001, burst=1))
    job = master.submit(request_id="mine")
    for _ in range(5):
        assert master.submit(request_id="mine") == job
    with pytest.raises(TryAgain):
        master.submit(request_id="other")
    master.restart()  # buckets are full again, and the answer is still known
    assert master.submit(request_id="mine") == job
    assert master.submit(request_id="other").job_id == 2


def test_a_refused_submission_may_be_repeated_with_its_own_key(masters: Masters) -> None:
    master = masters(limited(rate=1.0, burst=1))
    master.submit(request_id="first")
    with pytest.raises(TryAgain):
        master.submit(request_id="second")
    master.clock.advance(1.0)
    job = master.submit(request_id="second")
    assert master.submit(request_id="second") == job


def test_a_check_takes_a_token_too(masters: Masters) -> None:
    master = masters(limited(burst=1))
    check = replace(master.submission(request_id=""), validate_only=True)
    master.ask(check)
    with pytest.raises(TryAgain):
        master.ask(check)


def test_an_array_takes_a_token_for_each_of_its_tasks(masters: Masters) -> None:
    master = masters(limited(rate=1.0, burst=10))
    tasks = AskedArray(indexes=tuple(range(8)), step=1, concurrent=100)
    master.ask(replace(master.submission(), array=tasks))
    with pytest.raises(TryAgain) as caught:
        master.ask(replace(master.submission(), array=tasks))
    assert caught.value.metadata["retry_after_s"] == "6"


def test_the_limit_of_queued_jobs_holds_within_one_turn_too(masters: Masters) -> None:
    """Many requests in flight are one turn: none of them may see the others as not there."""
    master = masters(limited(burst=100, queued=4))
    master.submit()
    outcomes = master.turn(*(master.submission() for _ in range(6)), master.submission(caller=BOB))
    refused = [each for each in outcomes if isinstance(each, DlqError)]
    assert [type(each) for each in refused] == [QuotaExceeded] * 3
    assert [each.metadata["used"] for each in refused] == ["4"] * 3
    assert len(master.state.cluster.jobs) == 5, "four of alice, one of bob"

    master.cancel(next(iter(master.state.cluster.jobs)))
    assert master.submit().user == "alice"
    with pytest.raises(QuotaExceeded):
        master.submit()


def test_a_user_can_see_how_many_more_are_taken_before_it_is_met(masters: Masters) -> None:
    master = masters(config=limited(rate=2.0, burst=3, queued=4))
    limits = master.loop.published.submit_limits
    assert limits("alice", master.clock.now_s()) == (3, 2.0)
    for _ in range(2):
        master.submit(1)
    assert limits("alice", master.clock.now_s()) == (1, 2.0)
    assert limits("bob", master.clock.now_s()) == (3, 2.0)
    master.clock.advance(60.0)
    assert limits("alice", master.clock.now_s()) == (2, 2.0), "no more than may live at once"


def test_a_large_script_counts_as_many_jobs(masters: Masters) -> None:
    """Specs are kept for good: a user would fill the master's disk with scripts of 4 MiB."""
    assert [tokens_of(1, bytes(size)) for size in (0, 65_536, 65_537)] == [1, 1, 2]
    assert [tokens_of(9, bytes(size)) for size in (0, 4 << 20)] == [9, 64]
    master = masters(limited(rate=1.0, burst=100))
    asks = [replace(master.submission(), spec=bytes(4 << 20)) for _ in range(4)]
    first, second = master.turn(*asks[:2])
    assert not isinstance(first, DlqError)
    assert isinstance(second, TryAgain)
    assert second.metadata["retry_after_s"] == "28"
    assert "64 KiB of a spec count as one" in second.what
    master.clock.advance(64.0)
    both = SubmitMany(caller=ALICE, request_id="many", asks=tuple(asks[2:]))
    assert [isinstance(each, TryAgain) for each in master.ask(both)] == [False, True]
