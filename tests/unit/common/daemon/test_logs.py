"""Logs: one JSON object a line, on the product's time axis, for our own and for foreign loggers."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from dlq_common.daemon.logs import configure_logging, for_journal, get_logger
from dlq_common.text.instants import format_instant
from support.extent import spread
from support.fake_clock import FakeClock


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


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """A stream that JOURNAL_STREAM names, as systemd does it: by device and inode."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    with (tmp_path / "journal").open("w") as stream:
        found = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        yield stream


def written(stream: TextIO) -> list[str]:
    stream.flush()
    return Path(stream.name).read_text().splitlines()


def test_each_line_for_the_journal_begins_with_its_priority(journal: TextIO) -> None:
    configure_logging(FakeClock(), stream=journal, level="debug")
    log = get_logger("x")
    for level in ("critical", "error", "warning", "info", "debug"):
        getattr(log, level)("said", level_told=level)
    logging.getLogger("foreign").warning("missed")
    lines = written(journal)
    assert [line[:3] for line in lines] == ["<2>", "<3>", "<4>", "<6>", "<7>", "<4>"]
    assert json.loads(lines[0][3:])["level"] == "critical"


def test_text_of_several_lines_has_the_priority_on_each(journal: TextIO) -> None:
    configure_logging(FakeClock(), stream=journal, as_json=False)
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        get_logger("x").exception("turn_failed")
    lines = written(journal)
    assert len(lines) > 3
    assert {line[:3] for line in lines} == {"<3>"}


def test_what_nobody_catches_is_one_critical_line_of_the_journal(journal: TextIO) -> None:
    configure_logging(FakeClock(), stream=journal)
    error = ValueError("never\ncaught")
    sys.excepthook(ValueError, error, None)
    (line,) = written(journal)
    assert line.startswith("<2>")
    assert json.loads(line[3:])["event"] == "uncaught_exception"


def test_another_stream_than_that_of_the_journal_has_no_priorities(
    journal: TextIO, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w") as elsewhere:
        configure_logging(FakeClock(), stream=elsewhere)
        get_logger("x").warning("said")
        assert for_journal("text", logging.ERROR, elsewhere) == "text"
        (line,) = written(elsewhere)
    assert line.startswith("{")
    assert for_journal("a\nb", logging.ERROR, journal) == "<3>a\n<3>b"


@pytest.mark.parametrize("program", spread(["dlq-nodeagent", "dlq-master"], 1))
def test_a_daemon_that_cannot_start_says_so_as_an_error(program: str, tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w") as stream:
        found = os.fstat(stream.fileno())
        done = subprocess.run(
            [Path(sys.executable).parent / program, "run", "--config", tmp_path / "none.toml"],
            env={**os.environ, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"},
            stderr=stream,
            check=False,
        )
    assert done.returncode > 0
    lines = (tmp_path / "journal").read_text().splitlines()
    assert lines[0].startswith(f"<3>{program}: ")
