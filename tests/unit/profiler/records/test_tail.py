"""The work times of steps among the times between sends."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import pytest
from benchmarks.support.record_files import record_file

from dlq_profiler.records.tail import long_gaps, look


def test_the_longest_kind_of_times_between_sends_is_the_work_of_a_step() -> None:
    work = [0.9 + 0.01 * step for step in range(20)]
    found = long_gaps([*work, *[0.1] * 60, *[0.001] * 500, 0.0, -0.5])
    assert found is not None
    assert found.steps == 20
    assert found.logs == pytest.approx(sum(map(log, work)))
    assert found.squares == pytest.approx(sum(log(gap) ** 2 for gap in work))


def test_a_few_very_long_ones_are_no_kind_of_their_own() -> None:
    found = long_gaps([30.0, 12.0, *[1.0] * 40, *[0.01] * 100])
    assert found is not None
    assert found.steps == 42
    assert exp(found.logs / found.steps) < 1.2


def test_of_too_few_nothing_is_said() -> None:
    assert long_gaps([]) is None
    assert long_gaps([1.0] * 9) is None


def test_a_look_tells_the_last_send_and_the_times_between_sends(tmp_path: Path) -> None:
    (tmp_path / "7-1.dlqprof").write_bytes(record_file(1, 2048, step_ns=1_000_000))
    found = look(tmp_path, 4_000_000_000)
    assert found is not None
    assert found.sent_ago_s == pytest.approx(4.0 - 2.048, abs=1e-6)
    assert found.quiet_s == pytest.approx(0.001, abs=1e-6)
    assert found.work is not None
    assert found.work.steps == 2047
    assert found.work.logs == pytest.approx(2047 * log(0.001 - 10e-9))
    since = look(tmp_path, 4_000_000_000, 2_000_000_000)
    assert since is not None
    assert since.work is not None
    assert since.work.steps == 49


def test_a_look_reads_so_many_records_whatever_the_files_say(tmp_path: Path) -> None:
    content = record_file(256, 4096)
    for number in range(64):
        (tmp_path / f"{number}-1.dlqprof").write_bytes(content)
    found = look(tmp_path, 10**9)
    assert found is not None
    assert found.work is not None
    assert found.work.steps <= 65_536 // 64
