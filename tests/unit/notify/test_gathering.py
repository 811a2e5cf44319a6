"""What is told to whom, in how many messages, and when."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import notify_service_pb2 as wire
from dlq_common.text.wire import to_timestamp
from dlq_notify.config import NotifySection
from dlq_notify.gathering import Gathering
from dlq_notify.letters import content_of
from dlq_notify.rules import RuleBook
from dlq_notify.store import MOST_NOTICES, NotifyLetter, NotifyStore
from support.notify_site import Told, a_book, a_rule, a_store, a_task, due_letters, told
from support.wire_jobs import EPOCH_S, a_job

NOW_S = EPOCH_S + 10_000.0


class Desk:
    """A gathering with its database."""

    def __init__(self, store: NotifyStore, **settings: Any) -> None:
        self.store = store
        self.gathering = Gathering(store, NotifySection(**settings))

    def take(self, *events: Told, book: RuleBook | None = None, at_s: float = NOW_S) -> None:
        cursor = max(event.cursor for event in events)
        self.gathering.take(events, cursor, book or a_book(), at_s)

    def letters(self, at_s: float, book: RuleBook | None = None) -> list[NotifyLetter]:
        """Those that are due once digests have been closed at that time."""
        self.gathering.close_due(book or a_book(), at_s)
        return due_letters(self.store, at_s)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with a_store(tmp_path) as store:
        yield Desk(store)


def test_events_that_come_together_are_one_message_after_a_moment(desk: Desk) -> None:
    desk.take(told(1, "job_failed", a_job(17, "failed", end_reason="oom_gpu", exit_code=1)))
    desk.take(told(2, "job_completed", a_job(18, "completed")), at_s=NOW_S + 5.0)
    assert desk.letters(NOW_S + 10.0) == []
    (letter,) = desk.letters(NOW_S + 16.0)
    assert letter.counts == {"job_failed": 1, "job_completed": 1}
    assert letter.letter_id.startswith("2-n1-"), "its last event"
    text = content_of(letter, "lab").text
    assert "job 17 (train-17) has failed: oom_gpu, exit 1" in text


def test_each_event_is_taken_once_also_by_another_process(desk: Desk, tmp_path: Path) -> None:
    event = told(5, "job_completed", a_job(17, "completed"))
    desk.take(event)
    with a_store(tmp_path) as again:
        Desk(again).take(event, told(6, "job_completed", a_job(18, "completed")))
    (letter,) = desk.letters(NOW_S + 60.0)
    assert (letter.total, desk.store.cursor) == (2, 6)


def test_a_rule_tells_its_owner_alone_of_their_own_jobs(desk: Desk) -> None:
    book = a_book(a_rule(), a_rule("n2", user="bob"))
    desk.take(told(1, "job_completed", a_job(17, "completed")), book=book)
    assert [one.rule_id for one in desk.letters(NOW_S + 60.0, book)] == ["n1"]


def test_a_rule_tells_nothing_from_before_it_and_nothing_of_an_earlier_person(desk: Desk) -> None:
    event = told(1, "job_completed", a_job(17, "completed"))
    book = a_book(a_rule(created_s=EPOCH_S + 100.0), a_rule("n2", owner_since_s=EPOCH_S + 100.0))
    desk.take(event, book=book)
    assert desk.letters(NOW_S + 60.0, book) == []


def test_a_rule_tells_only_what_it_names(desk: Desk) -> None:
    book = a_book(a_rule(words=("failed",)))
    desk.take(
        told(1, "job_completed", a_job(17, "completed")), told(2, "job_ran", a_job(18, "running")),
        book=book,
    )  # fmt: skip
    assert desk.letters(NOW_S + 60.0, book) == []


def test_an_array_of_ten_thousand_that_ends_is_one_message(desk: Desk) -> None:
    tasks = 10_000
    events = [
        told(index + 1, "job_completed", a_task(1_000 + index, index, tasks))
        for index in range(tasks)
    ]
    for first in range(0, tasks, 500):
        at_s = NOW_S + first / 10.0
        desk.take(*events[first : first + 500], at_s=at_s)
        assert desk.letters(at_s) == []
    (letter,) = desk.letters(NOW_S + tasks / 10.0 + 20.0)
    assert letter.counts == {"job_completed": tasks}
    content = content_of(letter, "lab")
    assert content.subject == "[dlq lab] array 100 (sweep): 10,000 completed"
    assert len(content.text) < 10_000
    assert len(letter.notices) == MOST_NOTICES


def test_the_first_failure_of_an_array_does_not_wait_for_its_end(desk: Desk) -> None:
    desk.take(told(1, "job_completed", a_task(1_000, 0, 100)))
    assert desk.letters(NOW_S + 60.0) == []
    desk.take(told(2, "job_failed", a_task(1_001, 1, 100, "failed")), at_s=NOW_S + 60.0)
    (letter,) = desk.letters(NOW_S + 80.0)
    assert letter.counts == {"job_completed": 1, "job_failed": 1}
    desk.take(told(3, "job_failed", a_task(1_002, 2, 100, "failed")), at_s=NOW_S + 90.0)
    assert len(desk.letters(NOW_S + 200.0)) == 1, "the second one waits"
    assert len(desk.letters(NOW_S + 90.0 + 3_601.0)) == 2, "an hour at the most"


def test_quiet_hours_keep_messages_until_they_end(desk: Desk) -> None:
    # NOW_S is 10:46:40 of UTC, and 11:46:40 in Berlin.
    book = a_book(a_rule(quiet=(11 * 60, 12 * 60), zone="Europe/Berlin"))
    desk.take(told(1, "job_completed", a_job(17, "completed")), book=book)
    assert desk.letters(NOW_S + 60.0, book) == []
    ends_s = NOW_S + 13 * 60.0 + 20.0
    assert desk.letters(ends_s - 1.0, book) == []
    assert len(desk.letters(ends_s + 1.0, book)) == 1


def test_quiet_hours_over_midnight(desk: Desk) -> None:
    book = a_book(a_rule(quiet=(22 * 60, 7 * 60)))
    rule = book.by_id["n1"]
    midnight_s = EPOCH_S + 16 * 3_600.0
    assert rule.wakes_s(midnight_s - 3_600.0) == midnight_s + 7 * 3_600.0
    assert rule.wakes_s(midnight_s + 3_600.0) == midnight_s + 7 * 3_600.0
    assert rule.wakes_s(midnight_s + 7 * 3_600.0) == midnight_s + 7 * 3_600.0


def test_beyond_the_messages_of_an_hour_events_wait_and_go_together(tmp_path: Path) -> None:
    with a_store(tmp_path) as store:
        desk = Desk(store, messages_per_hour=2)
        for number in range(1, 5):
            at_s = NOW_S + 60.0 * number
            desk.take(told(number, "job_completed", a_job(number, "completed")), at_s=at_s)
            desk.letters(at_s + 30.0)
        assert len(desk.letters(NOW_S + 400.0)) == 2
        third = desk.letters(NOW_S + 3_800.0)[-1]
        assert third.counts == {"job_completed": 2}


def test_a_rule_may_gather_for_longer_or_not_at_all(desk: Desk) -> None:
    book = a_book(a_rule(gather_s=600.0), a_rule("n2", gather_s=0.0))
    desk.take(told(1, "job_completed", a_task(1_000, 0, 100)), book=book)
    assert [one.rule_id for one in desk.letters(NOW_S, book)] == ["n2"]
    assert len(desk.letters(NOW_S + 601.0, book)) == 2


def test_a_test_goes_out_at_once_and_in_quiet_hours(desk: Desk) -> None:
    book = a_book(a_rule(quiet=(0, 23 * 60 + 59)))
    desk.take(told(1, "notify_rule_tested", data={"rule": "n1", "user": "alice"}), book=book)
    (letter,) = desk.letters(NOW_S, book)
    assert "this is a test of rule n1" in content_of(letter, "lab").text


def test_digests_of_a_rule_that_is_gone_are_dropped(desk: Desk) -> None:
    desk.take(told(1, "job_completed", a_job(17, "completed")))
    assert desk.letters(NOW_S + 60.0, RuleBook()) == []
    assert desk.letters(NOW_S + 61.0) == []


def test_lost_events_are_told_to_operators_who_want_it(desk: Desk) -> None:
    book = a_book(a_rule(), a_rule("n2", user="olga", words=("events_lost",)))
    desk.gathering.lost("events are lost: 5 to 90", 90, book, NOW_S)
    assert desk.store.cursor == 90
    (letter,) = desk.letters(NOW_S + 60.0, book)
    assert (letter.user, letter.notices[0].text) == ("olga", "events are lost: 5 to 90")


def estimate(likely_s: float) -> wire.StartEstimate:
    one = wire.StartEstimate(job_id="17", user="alice", name="train")
    one.start_estimate.likely_time.CopyFrom(to_timestamp(likely_s))
    return one


def test_a_start_that_moves_by_half_of_the_wait_is_told_once(desk: Desk) -> None:
    book = a_book(a_rule(words=("start_moved",)))
    for likely_s in (3_600.0, 4_000.0, 6_000.0, 6_500.0):
        desk.gathering.moves([estimate(NOW_S + likely_s)], book, NOW_S)
    (letter,) = desk.letters(NOW_S + 60.0, book)
    assert letter.total == 1
    assert "job 17 (train) will probably start 40m00s later" in letter.notices[0].text


def test_the_rank_that_failed_first_is_known_for_its_output(desk: Desk) -> None:
    job = a_job(17, "failed", attempt_count=2)
    exited = {"node_rank": "3", "exit_code": "1", "signal": ""}
    for sequence, rank in ((1, "3"), (2, "0")):
        desk.take(told(sequence, "rank_exited", job, attempt=2, data=exited | {"node_rank": rank}))
    desk.take(told(3, "job_failed", job))
    (letter,) = desk.letters(NOW_S + 60.0)
    assert (letter.notices[0].rank, letter.notices[0].attempt) == (3, 2)


def test_tests_count_among_the_messages_of_an_hour(tmp_path: Path) -> None:
    with a_store(tmp_path) as store:
        desk = Desk(store, messages_per_hour=2)
        for sequence in range(1, 6):
            desk.take(told(sequence, "notify_rule_tested", data={"rule": "n1"}))
        assert len(desk.letters(NOW_S)) == 2


def test_an_event_that_makes_no_sense_does_not_hold_up_the_next(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("of a newer release")

    with monkeypatch.context() as patch:
        patch.setattr("dlq_notify.gathering.notice_of", broken)
        desk.take(told(1, "job_completed", a_job(17, "completed")))
    desk.take(told(2, "job_completed", a_job(18, "completed")))
    (letter,) = desk.letters(NOW_S + 60.0)
    assert (letter.total, desk.store.cursor) == (1, 2)


def test_an_estimate_of_a_near_start_that_slides_is_not_told_again_and_again(desk: Desk) -> None:
    book = a_book(a_rule(words=("start_moved",)))
    for minutes in range(0, 60, 5):
        now_s = NOW_S + 60.0 * minutes
        desk.gathering.moves([estimate(now_s + 300.0)], book, now_s)
    assert sum(one.total for one in desk.letters(NOW_S + 7_200.0, book)) == 1


def test_a_fault_at_any_statement_leaves_each_event_taken_once(tmp_path: Path) -> None:
    """As a full disk or a kill would: nothing of the transaction stays, and it is made again."""
    events = [
        told(1, "job_completed", a_task(1_000, 0, 2)),
        told(2, "job_failed", a_task(1_001, 1, 2, "failed")),
        told(3, "job_completed", a_job(17, "completed")),
    ]
    outcomes: set[tuple[tuple[str, str], ...]] = set()
    at = 0
    while len(outcomes) < 2 and at < 200:
        at += 1
        place = tmp_path / str(at)
        place.mkdir()
        with a_store(place) as store:
            if not _fails_at(Desk(store), at, events):
                break
        with a_store(place) as store:
            desk = Desk(store)
            desk.take(*events)
            made = desk.letters(NOW_S + 60.0)
            outcomes.add(tuple(sorted((one.rule_id, str(one.counts)) for one in made)))
    assert at > 20, "so many places were tried"
    assert len(outcomes) == 1
    ((array, alone),) = outcomes
    assert "'job_failed': 1" in array[1] + alone[1]


def _fails_at(desk: Desk, number: int, events: list[Told]) -> bool:
    """Take events and close digests with a fault at this statement; False: there were fewer."""
    execute, count = desk.store.db.execute, [0]

    def counted(*words: Any) -> Any:
        count[0] += 1
        if count[0] == number:
            raise sqlite3.OperationalError("database or disk is full")
        return execute(*words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desk.store.db, "execute", counted)
        try:
            desk.take(*events)
            desk.letters(NOW_S + 60.0)
        except sqlite3.OperationalError:
            return True
    return False
