"""SLURM_TIME_FORMAT: instants as Slurm 22.05 prints them."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta

import pytest

from dlq_cli.slurm.instants import _relative, shown_instant

AT_S = datetime(2026, 3, 4, 5, 6, 7).timestamp()  # noqa: DTZ001 - the zone of this host


@pytest.fixture
def worded(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("SLURM_TIME_FORMAT", raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("", "2026-03-04T05:06:07"),
        ("standard", "2026-03-04T05:06:07"),
        ("%D %T", "03/04/26 05:06:07"),
        ("%s", str(int(AT_S))),
        ("bogus", "2026-03-04T05:06:07"),  # it holds no %
        ("%Y" * 20, "2026-03-04T05:06:07"),  # longer than Slurm takes
        ("%H\x1b[31m", "05?[31m"),
    ],
)
def test_an_instant_has_the_format_of_the_variable(
    worded: pytest.MonkeyPatch, word: str, text: str
) -> None:
    worded.setenv("SLURM_TIME_FORMAT", word)
    assert shown_instant(AT_S, "Unknown") == text
    assert shown_instant(0.0, "Unknown") == "Unknown"


@pytest.mark.parametrize(
    ("days", "format_"),
    [
        (0, "%H:%M:%S"), (1, "Tomorr %H:%M"), (-1, "Ystday %H:%M"), (2, "%a %H:%M"),
        (6, "%a %H:%M"), (7, "%-d %b %H:%M"), (-2, "%-d %b %H:%M"), (-365, "%-d %b %H:%M"),
        (366, "%-d %b %Y"), (-366, "%-d %b %Y"),
    ],
)  # fmt: skip
def test_a_relative_instant_goes_by_the_days_between(days: int, format_: str) -> None:
    today = date(2026, 11, 29)
    at = time.strptime(str(today + timedelta(days=days)), "%Y-%m-%d")
    assert _relative(at, today) == format_
