"""Logs: one JSON object a line, on the product's time axis, for our own and for foreign loggers."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from dlq_common.clock import FakeClock
from dlq_common.instants import format_instant
from dlq_common.logs import configure_logging, get_logger


@pytest.fixture(autouse=True)
def _logging_is_put_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_object_with_its_facts_and_the_products_time() -> None:
    stream, clock = io.StringIO(), FakeClock(now_s=1_800_000_000.5)
    configure_logging(clock, stream=stream)
    get_logger("master.loop").bind(cycle=4).info("attempt_lost", attempt_id="17.2", silent_s=30.0)
    (line,) = lines(stream)
    assert line == {
        "event": "attempt_lost",
        "attempt_id": "17.2",
        "silent_s": 30.0,
        "cycle": 4,
        "level": "info",
        "time": format_instant(1_800_000_000.5),
    }


def test_a_foreign_logger_comes_out_in_the_same_form() -> None:
    stream = io.StringIO()
    configure_logging(FakeClock(), stream=stream)
    logging.getLogger("apscheduler").warning("missed %s", "tick")
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["level"]) == (
        "missed tick",
        "apscheduler",
        "warning",
    )


def test_an_exception_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure_logging(FakeClock(), stream=stream)
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        get_logger("x").exception("turn_failed")
    (line,) = lines(stream)
    assert "RuntimeError" in json.dumps(line["exception"])


def test_below_the_level_nothing_is_written() -> None:
    stream = io.StringIO()
    configure_logging(FakeClock(), stream=stream, level="warning")
    get_logger("x").info("unheard")
    get_logger("x").warning("heard")
    assert [line["event"] for line in lines(stream)] == ["heard"]


def test_readable_text_on_request() -> None:
    stream = io.StringIO()
    configure_logging(FakeClock(), stream=stream, as_json=False)
    get_logger("x").info("node_up", node="gpu01")
    assert "node_up" in stream.getvalue()
    assert "node=gpu01" in stream.getvalue()
