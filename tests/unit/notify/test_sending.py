"""Letters arrive at least once and with one id, are tried again for a day, and then are dead."""

from __future__ import annotations

import fcntl
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlq_notify.command import main
from dlq_notify.config import NotifySection
from dlq_notify.letters import Content
from dlq_notify.rules import Rule, RuleBook
from dlq_notify.sending import Sending
from dlq_notify.store import DEAD, Digest, KnownStart, NotifyLetter, NotifyStore
from dlq_notify.targets.refusal import NotSent, answered
from dlq_notify.wording import JobNotice
from support.fake_clock import FakeClock
from support.notify_site import a_book, a_letter, a_rule, a_store, due_letters
from support.waiting import wait_until
from support.wire_jobs import EPOCH_S

DAY_S = 86_400.0


class FakeTarget:
    """A target that keeps what it is sent, and fails as it is told."""

    def __init__(self) -> None:
        self.taken: list[Content] = []
        self.error: NotSent | None = None

    def send(self, rule: Rule, content: Content) -> None:
        if self.error is not None:
            raise self.error
        self.taken.append(content)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[NotifyStore]:
    with a_store(tmp_path) as store:
        yield store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(EPOCH_S + 10.0)


@pytest.fixture
def target() -> FakeTarget:
    return FakeTarget()


def put(store: NotifyStore, *letters: NotifyLetter) -> None:
    with store.write():
        for letter in letters:
            store.put_letter(letter)


def a_sending(
    store: NotifyStore,
    target: FakeTarget,
    clock: FakeClock,
    read: Callable[[str, int, int], tuple[str, ...]] = lambda *_: (),
) -> Sending:
    rng = random.Random(3)
    return Sending(store, NotifySection(), {"webhook": target}, clock, rng, "lab", read)


def send_all(sending: Sending, book: RuleBook | None = None) -> None:
    sending.begin_due(book or a_book())
    wait_until(lambda: sending.collect() >= 0 and not sending.flying, what="letters are settled")


def test_a_letter_that_was_taken_is_gone(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    put(store, a_letter())
    sending = a_sending(store, target, clock)
    send_all(sending)
    send_all(sending)
    sending.close()
    assert [one.letter_id for one in target.taken] == ["7-n1-1"]


def test_a_process_killed_between_send_and_store_sends_again_with_the_same_id(
    tmp_path: Path, target: FakeTarget, clock: FakeClock
) -> None:
    with a_store(tmp_path) as store:
        put(store, a_letter())
        killed = a_sending(store, target, clock)
        killed.begin_due(a_book())
        wait_until(lambda: bool(target.taken), what="the letter is taken")
        killed._pool.shutdown(wait=True)  # and nothing is stored any more
    with a_store(tmp_path) as store:
        sending = a_sending(store, target, clock)
        send_all(sending)
        sending.close()
        assert due_letters(store, clock.now_s()) == []
    first, second = target.taken
    assert first.letter_id == second.letter_id
    assert first.document == second.document


def test_what_does_not_arrive_is_tried_again_ever_more_rarely_for_a_day(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    put(store, a_letter(made_s=clock.now_s()))
    target.error = answered(503)
    sending, waits = a_sending(store, target, clock), []
    while not store.dead_letters():
        send_all(sending)
        letter = store.letter("7-n1-1")
        assert letter is not None
        waits.append(letter.next_s - clock.now_s())
        clock.advance(max(waits[-1], 0.0) + 1.0)
    sending.close()
    assert waits[0] < waits[1] < waits[2] < waits[3]
    assert max(waits) <= 3_600.0 * 1.2
    assert 24 <= len(waits) <= 60
    (dead,) = store.dead_letters()
    assert (dead.fault, dead.tries) == ("the server answered 503", len(waits))


def test_a_target_says_when_to_come_back(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    put(store, a_letter(made_s=clock.now_s()))
    target.error = answered(429, after_s=1_000.0)
    sending = a_sending(store, target, clock)
    send_all(sending)
    sending.close()
    assert due_letters(store, clock.now_s() + 999.0) == []
    assert len(due_letters(store, clock.now_s() + 1_000.0)) == 1


def test_a_refusal_for_good_is_dead_at_once_and_a_person_may_send_it_again(
    tmp_path: Path, target: FakeTarget, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.error = answered(404)
    with a_store(tmp_path) as store:
        put(store, a_letter(made_s=clock.now_s()))
        sending = a_sending(store, target, clock)
        send_all(sending)
        sending.close()
        assert due_letters(store, clock.now_s() + DAY_S) == []
    monkeypatch.setenv("DLQ_NOTIFY__STATE_DIR", str(tmp_path))
    listed = CliRunner().invoke(main, ["dead", "list"])
    assert "7-n1-1  alice" in listed.output
    assert "the server answered 404" in listed.output
    assert "hooks.example.org" not in CliRunner().invoke(main, ["dead", "list", "--json"]).output
    assert CliRunner().invoke(main, ["dead", "retry", "8-n1-1"]).exit_code == 1
    assert CliRunner().invoke(main, ["dead", "retry", "7-n1-1"]).exit_code == 0
    with a_store(tmp_path) as store:
        assert store.dead_letters() == []
        assert store.letter("7-n1-1") is not None


def test_letters_of_a_rule_that_is_gone_are_dropped_and_never_sent(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    put(store, a_letter())
    sending = a_sending(store, target, clock)
    send_all(sending, RuleBook())
    with store.write():
        store.keep_rules(set())
    send_all(sending)
    sending.close()
    assert target.taken == []


def test_a_later_try_waits_for_the_end_of_quiet_hours(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    put(store, a_letter())
    book = a_book(a_rule(quiet=(7 * 60, 9 * 60)))  # the clock shows 8:00:10
    sending = a_sending(store, target, clock)
    send_all(sending, book)
    assert target.taken == []
    clock.advance(3_590.0)
    send_all(sending, book)
    sending.close()
    assert len(target.taken) == 1


def test_letters_of_one_rule_go_one_after_another(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    put(store, a_letter("7-n1-1"), a_letter("9-n1-2", made_s=EPOCH_S + 1.0))
    sending = a_sending(store, target, clock)
    sending.begin_due(a_book())
    assert sending.flying == 1
    send_all(sending)
    send_all(sending)
    sending.close()
    assert [one.letter_id for one in target.taken] == ["7-n1-1", "9-n1-2"]


def test_output_is_read_only_for_rules_that_want_it_and_may_be_missing(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    asked: list[tuple[str, int, int]] = []

    def read(job_id: str, attempt: int, rank: int) -> tuple[str, ...]:
        asked.append((job_id, attempt, rank))
        if len(asked) > 1:
            raise OSError("gone")
        return ("ValueError: no data",)

    failed = JobNotice(7, "failed", "job_failed", EPOCH_S, "failed", "17", attempt=2, rank=3)
    for number, wanted in enumerate((False, True, True), start=1):
        put(store, a_letter(f"7-n1-{number}", notices=[failed]))
        sending = a_sending(store, target, clock, read)
        send_all(sending, a_book(a_rule(with_output=wanted)))
        sending.close()
    assert asked == [("17", 2, 3), ("17", 2, 3)]
    assert ["no data" in one.text for one in target.taken] == [False, True, False]


def test_one_user_does_not_take_all_lines(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    rules = [a_rule(f"n{number}") for number in range(1, 6)] + [a_rule("n9", user="bob")]
    put(
        store,
        *[a_letter(f"7-{one.rule_id}-1", rule_id=one.rule_id, user=one.user) for one in rules],
    )
    sending = a_sending(store, target, clock)
    sending.begin_due(a_book(*rules))
    assert sending.flying == 3, "two of alice, and that of bob"
    for _ in range(3):
        send_all(sending, a_book(*rules))
    sending.close()
    assert len(target.taken) == 6


def test_a_backlog_of_one_user_does_not_hold_up_the_others(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    put(store, *[a_letter(f"7-n1-{number}", made_s=float(number)) for number in range(300)])
    put(store, a_letter("9-n9-1", rule_id="n9", user="bob"))
    sending = a_sending(store, target, clock)
    send_all(sending, a_book(a_rule("n1"), a_rule("n9", user="bob")))
    sending.close()
    assert sorted(one.user for one in target.taken) == ["alice", "bob"]


def test_users_take_turns(store: NotifyStore, target: FakeTarget, clock: FakeClock) -> None:
    """However many wait for slow servers."""
    rules = [a_rule(f"n{at}", user=f"u{at}", address=f"https://h{at}/") for at in range(40)]
    for rule in rules:
        put(
            store,
            *[
                a_letter(f"{at}-{rule.rule_id}-1", rule_id=rule.rule_id, user=rule.user)
                for at in range(3)
            ],
        )
    sending = a_sending(store, target, clock)
    for _ in range(3):
        send_all(sending, a_book(*rules))
    sending.close()
    assert {one.user for one in target.taken} == {rule.user for rule in rules}


def test_a_server_that_hangs_leaves_room_for_the_others(
    store: NotifyStore, target: FakeTarget, clock: FakeClock
) -> None:
    slow = [a_rule(f"n{at}", user=f"u{at}") for at in range(40)]
    rules = [*slow, a_rule("n99", user="bob", address="https://other.example.org/x")]
    put(
        store,
        *[a_letter(f"7-{one.rule_id}-1", rule_id=one.rule_id, user=one.user) for one in rules],
    )
    sending = a_sending(store, target, clock)
    sending.begin_due(a_book(*rules))
    assert sending.flying == 8 + 1
    sending.close()
    assert "bob" in {one.user for one in target.taken}


def test_dead_letters_of_a_user_do_not_grow_without_bound(store: NotifyStore) -> None:
    dead = [a_letter(f"{at}-n1-1", state=DEAD, made_s=EPOCH_S + at) for at in range(150)]
    put(store, *dead, a_letter("1-n9-1", state=DEAD, rule_id="n9", user="bob"))
    with store.write():
        store.forget(EPOCH_S + 200.0, DAY_S)
    left = store.dead_letters()
    assert len(left) == 101
    assert min(one.made_s for one in left if one.user == "alice") == EPOCH_S + 50.0


def test_instants_of_a_clock_that_was_ahead_hold_nothing_up(store: NotifyStore) -> None:
    ahead_s, now_s = EPOCH_S + 365 * DAY_S, EPOCH_S
    put(store, a_letter(made_s=ahead_s, next_s=ahead_s))
    with store.write():
        store.put_digest(Digest("n1", "", ahead_s, ahead_s, {}, []))
        store.note_sent("alice", ahead_s)
        store.put_start("17", KnownStart(now_s, ahead_s), now_s)
        store.mend_clock(now_s)
    (letter,), (digest,) = due_letters(store, now_s), store.due_digests(now_s)
    assert (letter.made_s, digest.due_s) == (now_s, now_s)
    assert store.sent_since("alice", now_s - 3_600.0) == 0
    assert store.start("17") == KnownStart(now_s, now_s)


def test_a_second_daemon_does_not_send_everything_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("DLQ_NOTIFY__STATE_DIR", str(tmp_path))
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ended = CliRunner().invoke(main, ["run"])
    assert (ended.exit_code, "another dlq-notify runs" in ended.output) == (1, True)


def test_a_command_that_is_refused_says_its_way_out_once(tmp_path: Path) -> None:
    config = tmp_path / "notify.toml"
    config.write_text(f'[notify]\nstate_dir = "{tmp_path / "none"}"\n')
    told = CliRunner().invoke(main, ["dead", "list", "--config", str(config)])
    assert told.exit_code == 1
    assert told.output.count("has dlq-notify run here?") == 1
