"""The reader of events: it comes back where it was, waits for a slow taker, and ends when told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from dlq_client import service
from dlq_client.line.identity import Identity
from dlq_common.errors import (
    CursorExpired,
    DlqError,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from dlq_notify import line as module
from dlq_notify.line import EventBatch, EventReader, NotifierLine
from support.fake_clock import FakeClock
from support.notify_site import told
from support.waiting import wait_until


class FakeLine:
    """A journal that grows by one event for each batch, and fails as it is told."""

    def __init__(self, *errors: DlqError) -> None:
        self.errors = list(errors)
        self.begun: list[int] = []
        self.last = 6

    def events(self, cursor: int) -> Iterator[EventBatch]:
        self.begun.append(cursor)
        for sequence in range(cursor + 1, self.last + 1):
            if sequence % 2 and self.errors:
                raise self.errors.pop(0)
            yield EventBatch([told(sequence, "job_ran")], sequence)
        raise Unavailable("the master is away")


class Taker:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.lost: list[DlqError] = []
        self.open = threading.Event()
        self.open.set()

    def take(self, _reader: EventReader, batch: EventBatch) -> None:
        self.open.wait(60.0)
        self.taken += [one.event.sequence for one in batch.told]

    def lose(self, _reader: EventReader, error: DlqError) -> None:
        self.lost.append(error)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.002)


def a_reader(line: FakeLine, taker: Taker) -> EventReader:
    return EventReader(cast(NotifierLine, cast(Any, line)), 0, taker.take, taker.lose)


def test_a_lost_line_is_resumed_where_it_was() -> None:
    line, taker = FakeLine(Unavailable("away"), Unavailable("away")), Taker()
    reader = a_reader(line, taker)
    wait_until(lambda: len(taker.taken) >= 6, what="all events are taken")
    reader.stop()
    assert taker.taken == [1, 2, 3, 4, 5, 6]
    assert taker.lost == [], "a master that is away is no fault"


def test_a_position_behind_the_journal_ends_the_reader_with_its_cause() -> None:
    line, taker = FakeLine(CursorExpired("cut")), Taker()
    a_reader(line, taker)
    wait_until(lambda: bool(taker.lost), what="it has said so")
    assert (taker.taken, len(taker.lost), line.begun) == ([], 1, [0])


def test_a_refusal_is_said_and_tried_again() -> None:
    line, taker = FakeLine(PermissionDenied("the role is gone")), Taker()
    reader = a_reader(line, taker)
    wait_until(lambda: len(taker.taken) >= 6, what="it goes on once it may")
    reader.stop()
    assert [type(error) for error in taker.lost] == [PermissionDenied]


def test_a_reader_hands_over_no_more_than_is_taken() -> None:
    line, taker = FakeLine(), Taker()
    taker.open.clear()
    reader = a_reader(line, taker)
    wait_until(lambda: bool(line.begun), what="it has begun")
    assert taker.taken == []
    reader.stop()
    taker.open.set()
    wait_until(lambda: len(taker.taken) == 1, what="what it had in hand is taken")


def test_a_certificate_that_has_ended_is_replaced_by_the_login_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master was away for longer than it lasts."""
    clock = FakeClock(1_000.0)
    given = [an_identity(0.0, 2_000.0), an_identity(2_500.0, 4_000.0)]
    monkeypatch.setattr(service, "load_identity", lambda _home: given.pop(0))
    monkeypatch.setattr(service, "save_identity", lambda _home, _identity: None)
    monkeypatch.setattr(service, "login", lambda _socket, _name: given.pop(0))
    line = NotifierLine(tmp_path, tmp_path / "login.sock", clock)
    clock.advance(1_700.0)
    assert line.renew_in_time()
    assert not line.renew_in_time()
    line.close()


def test_a_revoked_certificate_is_replaced_and_a_change_of_the_ca_renews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, told = FakeClock(1_000.0), [Unauthenticated("revoked"), True, False]
    kept = [an_identity(0.0, 9e9) for _ in range(3)]
    monkeypatch.setattr(service, "load_identity", lambda _home: kept.pop())
    monkeypatch.setattr(service, "save_identity", lambda _home, _identity: None)
    monkeypatch.setattr(service, "login", lambda _socket, _name: kept.pop())
    monkeypatch.setattr(module, "renew", lambda _connection: kept.pop())

    def wanted(_connection: object) -> bool:
        answer = told.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    monkeypatch.setattr(module, "renewal_wanted", wanted)
    line = NotifierLine(tmp_path, tmp_path / "login.sock", clock)
    assert not line.renew_in_time(), "it is asked now and then"
    for expected in (True, True, False):
        clock.advance(61.0)
        assert line.renew_in_time() is expected
    assert kept == []
    line.close()


def an_identity(issued_s: float, expires_s: float) -> Identity:
    return Identity(
        key=b"key", certificate=b"certificate", ca=b"ca", address="127.0.0.1:1", cluster="lab",
        user="dlq-notify", role="notifier", issued_s=issued_s, expires_s=expires_s,
    )  # fmt: skip
