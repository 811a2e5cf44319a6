"""Beats are rare, whole, and never in the way of the training."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from dlq_train.beat import BeatFile
from support.fake_clock import FakeClock


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_first_beat_is_written_at_once_and_the_next_after_a_second(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "beat"
    beats = BeatFile(path, steady_s=clock.now_s)
    beats.step(1, loss=0.5, total=10)
    assert read(path) | {"time_s": 0} == {"v": 1, "step": 1, "total": 10, "loss": 0.5, "time_s": 0}
    clock.advance(0.9)
    beats.step(2, loss=0.4, total=10)
    assert read(path)["step"] == 1
    clock.advance(0.2)
    beats.step(3, loss=0.3, total=10)
    assert (read(path)["step"], read(path)["loss"]) == (3, 0.3)
    assert [file.name for file in tmp_path.iterdir()] == ["beat"]


def test_the_longest_step_since_the_last_beat_is_told(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "beat"
    beats = BeatFile(path, steady_s=clock.now_s)
    for passed_s in (0.0, 0.7, 0.1, 0.3):
        clock.advance(passed_s)
        beats.step(1, loss=None, total=None)
    assert read(path)["step_s"] == pytest.approx(0.7)


def test_a_save_is_told_at_once_and_is_no_step(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "beat"
    beats = BeatFile(path, steady_s=clock.now_s)
    beats.step(1, loss=None, total=None)
    clock.advance(0.5)
    beats.saved(save_s=0.4, checkpoint="step-000001")
    assert (read(path)["last_save_s"], read(path)["checkpoint"]) == (0.4, "step-000001")
    clock.advance(8.5)
    beats.step(2, loss=None, total=None)
    assert "step_s" not in read(path)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_diverged_loss_is_null(tmp_path: Path, loss: float) -> None:
    BeatFile(tmp_path / "beat").step(1, loss=loss, total=None)
    assert read(tmp_path / "beat")["loss"] is None


def test_a_beat_that_cannot_be_written_warns_once_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beats = BeatFile(tmp_path / "missing" / "beat")
    with caplog.at_level(logging.WARNING):
        beats.write()
        beats.write()
    assert len(caplog.records) == 1


def test_work_times_are_steps_without_their_waits(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "beat"
    beats = BeatFile(path, steady_s=clock.now_s)
    beats.step(1, loss=None, total=None)
    for worked_s, waited_s in ((2.0, 1.0), (4.0, 0.5)):
        clock.advance(worked_s)
        with beats.waiting():
            clock.advance(waited_s)
        beats.step(1, loss=None, total=None)
    told = read(path)
    assert told["work_steps"] == 2
    assert told["work_log_sum"] == pytest.approx(math.log(2.0) + math.log(4.0))
    assert told["work_log_square_sum"] == pytest.approx(math.log(2.0) ** 2 + math.log(4.0) ** 2)


def test_a_step_without_waits_or_with_a_save_tells_no_work_time(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "beat"
    beats = BeatFile(path, steady_s=clock.now_s)
    for _ in range(3):
        clock.advance(2.0)
        beats.step(1, loss=None, total=None)
    with beats.waiting():
        clock.advance(1.0)
    beats.saved(save_s=1.0, checkpoint="step-000001")
    clock.advance(2.0)
    beats.step(2, loss=None, total=None)
    assert "work_steps" not in read(path)


def _wait_in_vain(beats: BeatFile, clock: FakeClock) -> None:
    with beats.waiting():
        clock.advance(1.0)
        raise TimeoutError


def test_a_wait_that_fails_counts_too(tmp_path: Path) -> None:
    clock = FakeClock()
    beats = BeatFile(tmp_path / "beat", steady_s=clock.now_s)
    beats.step(1, loss=None, total=None)
    with pytest.raises(TimeoutError):
        _wait_in_vain(beats, clock)
    clock.advance(2.0)
    beats.step(2, loss=None, total=None)
    assert read(tmp_path / "beat")["work_log_sum"] == pytest.approx(math.log(2.0))
