"""Lines of the log are written behind their caller, whole, in order, and never for ever."""

import io
import json
import logging
import threading

import structlog

from dlq_common.daemon import log_lines
from dlq_common.daemon.log_lines import LogLines
from dlq_common.daemon.logs import configure_logging, get_logger, keep_time_by
from dlq_common.text.instants import format_instant
from support.fake_clock import FakeClock


class Stalled(io.StringIO):
    """A stream whose reader takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()
        self.came = threading.Event()
        self.writes = 0

    def write(self, text: str) -> int:
        self.came.set()
        assert self.let.wait(timeout=30)
        self.writes += 1
        return super().write(text)


def test_a_caller_does_not_wait_for_the_reader_and_lines_share_writes() -> None:
    stream = Stalled()
    lines = LogLines(stream, behind=True)
    lines.put(["first"], logging.INFO)
    assert stream.came.wait(timeout=30)
    for number in range(100):
        lines.put([str(number)], logging.INFO)
    stream.let.set()
    lines.flush()
    assert stream.getvalue().split() == ["first", *map(str, range(100))]
    assert stream.writes == 2


def test_a_warning_is_written_before_its_caller_goes_on_behind_all_before_it() -> None:
    stream = Stalled()
    stream.let.set()
    lines = LogLines(stream, behind=True)
    lines.put(["said"], logging.INFO)
    lines.put(["warned"], logging.WARNING)
    assert stream.getvalue().split() == ["said", "warned"]


def test_of_a_reader_that_stalls_lines_are_lost_and_counted() -> None:
    stream = Stalled()
    lines = LogLines(stream, behind=True)
    lines.put(["first"], logging.INFO)
    assert stream.came.wait(timeout=30)
    for _ in range(log_lines.MOST_BEHIND + 7):
        lines.put(["more"], logging.INFO)
    stream.let.set()
    lines.flush()
    told = stream.getvalue().splitlines()
    assert len(told) == log_lines.MOST_BEHIND + 2
    assert json.loads(told[-1])["lines"] == 7


def test_a_closed_stream_ends_nothing() -> None:
    stream = io.StringIO()
    lines = LogLines(stream, behind=False)
    stream.close()
    lines.put(["unheard"], logging.ERROR)


def test_another_clock_leaves_the_level_as_it_was() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        configure_logging(FakeClock(), stream=stream, level="error")
        keep_time_by(FakeClock(now_s=1_900_000_000.0))
        get_logger("x").warning("unheard")
        get_logger("x").error("heard")
    finally:
        structlog.reset_defaults()
        root.handlers[:], root.level = handlers, level
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["time"]) == ("heard", format_instant(1_900_000_000.0))
