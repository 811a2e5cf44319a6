"""The bar of a long replay: only for people, with its rate and the time that is left."""

from __future__ import annotations

import io
import re
from itertools import count

import pytest

from dlq_simulator.replay.progress import LONG, progress_bar


class Screen(io.StringIO):
    """A terminal that remembers."""

    def isatty(self) -> bool:
        return True


def test_a_person_sees_how_far_how_fast_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(
        "time.time", lambda: float(next(clock))
    )  # the bar looks at most once a second
    screen = Screen()
    with progress_bar("fifo", LONG, screen) as advance:
        assert advance is not None
        for _ in range(LONG // 2):
            advance(1)
    shown = screen.getvalue()
    assert "fifo" in shown
    assert f"{LONG // 2}/{LONG}" in shown
    assert re.search(r"\d\d:\d\d:\d\d", shown)
    assert "jobs/s" in shown


@pytest.mark.parametrize(("jobs", "screen"), [(LONG - 1, Screen()), (LONG, io.StringIO())])
def test_short_replays_and_files_get_no_bar(jobs: int, screen: io.StringIO) -> None:
    with progress_bar("fifo", jobs, screen) as advance:
        assert advance is None
    assert screen.getvalue() == ""
