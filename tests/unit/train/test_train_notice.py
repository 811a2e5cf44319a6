"""A process learns of a stop by file or by signal, once and for good."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_train.notice import LOOK_EVERY_S, STOP_SIGNALS, Notice, SaveWatch, StopWatch
from support.fake_clock import FakeClock


@pytest.fixture(autouse=True)
def _handlers_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_without_file_and_signal_nothing_stops() -> None:
    watch = StopWatch(None)
    assert not watch.should_stop()
    assert watch.notice() is None


def test_the_notice_file_is_looked_for_at_most_every_tenth_of_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = StopWatch(tmp_path / "preempt", steady_s=clock.now_s)
    assert not watch.should_stop()
    (tmp_path / "preempt").touch()
    clock.advance(LOOK_EVERY_S * 0.9)
    assert not watch.should_stop()
    clock.advance(LOOK_EVERY_S * 0.2)
    assert watch.should_stop()


def test_a_request_to_stop_is_never_taken_back(tmp_path: Path) -> None:
    (tmp_path / "preempt").touch()
    watch = StopWatch(tmp_path / "preempt")
    assert watch.should_stop()
    (tmp_path / "preempt").unlink()
    assert watch.should_stop()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_stops_at_once(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    watch = StopWatch(None)
    watch.install_handlers()
    signal.raise_signal(number)
    assert watch.should_stop()
    assert watch.notice() == Notice("signal", number.name, None)


def test_a_handler_that_was_there_still_runs() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    watch = StopWatch(None)
    watch.install_handlers()
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    assert watch.should_stop()


def test_outside_the_main_thread_no_handler_is_touched() -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=StopWatch(None).install_handlers)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_notice_says_kind_reason_and_deadline(tmp_path: Path) -> None:
    path = tmp_path / "preempt"
    path.write_text('{"v": 1, "kind": "reclaim", "reason": "loan ends", "deadline_s": 17.5}')
    assert StopWatch(path).notice() == Notice("reclaim", "loan ends", 17.5)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00"])
def test_an_unreadable_notice_still_counts(tmp_path: Path, content: str) -> None:
    path = tmp_path / "preempt"
    path.write_text(content)
    watch = StopWatch(path)
    assert watch.should_stop()
    assert watch.notice() == Notice("preempt", "", None)


def asked(path: Path, number: object) -> None:
    path.write_text(json.dumps({"v": 1, "number": number}))


def test_each_request_to_save_is_told_once(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = SaveWatch(tmp_path / "save", steady_s=clock.now_s)
    told = []
    for number in (None, 5, 5, 9, 9, 3):
        if number is not None:
            asked(tmp_path / "save", number)
        clock.advance(LOOK_EVERY_S * 1.1)
        told.append(watch.should_save())
    assert told == [False, True, False, True, False, False]


def test_requests_to_save_are_looked_for_as_seldom_as_stops(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = SaveWatch(tmp_path / "save", steady_s=clock.now_s)
    assert not watch.should_save()
    asked(tmp_path / "save", 1)
    assert not watch.should_save()
    clock.advance(LOOK_EVERY_S * 1.1)
    assert watch.should_save()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"number": "5"}', '{"v": 1}'])
def test_a_save_file_that_says_nothing_asks_for_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "save").write_text(content)
    assert not SaveWatch(tmp_path / "save").should_save()
    assert not SaveWatch(None).should_save()
