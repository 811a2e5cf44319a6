"""Instants for people: in their own zone and with it, UTC with `--utc`, and RFC 3339 for
programs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dlq_cli.output.render import OutputLook, absolute, moment, when
from dlq_cli.output.zone import in_viewers_zone, local_text, show_utc

AT_S = 1_795_473_000.0  # 2026-11-23T22:30:00Z
TERMINAL, PIPE = (OutputLook(tty=tty, color=False, now_s=AT_S - 7500.0) for tty in (True, False))


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    show_utc(yes=False)
    monkeypatch.undo()
    time.tzset()


def test_an_instant_is_in_the_viewers_zone_and_names_it() -> None:
    assert local_text(AT_S) == "2026-11-23 23:30 CET"
    assert local_text(AT_S - 150 * 86_400 + 5) == "2026-06-27 00:30:05 CEST"
    show_utc(yes=True)
    assert local_text(AT_S) == "2026-11-23 22:30 UTC"


def test_a_terminal_says_how_far_away_and_a_pipe_says_rfc_3339() -> None:
    assert when(AT_S, TERMINAL) == "in 2h05m"
    assert when(AT_S - 7520.0, TERMINAL) == "20s ago"
    assert moment(AT_S, TERMINAL) == "2026-11-23 23:30 CET (in 2h05m)"
    assert absolute(AT_S, TERMINAL) == "2026-11-23 23:30 CET"
    for form in (when, moment, absolute):
        assert form(AT_S, PIPE) == "2026-11-23T22:30:00.000Z"


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("not to begin before 2026-11-23T22:30:00Z, in 5 s", "not to begin before 2026-11-23 "
                                                             "23:30 CET, in 5 s"),
        ("n1 is reserved from 2026-11-23T22:30:05.250Z (m1)", "n1 is reserved from 2026-11-23 "
                                                              "23:30:05 CET (m1)"),
        ("the earliest: --deadline 2026-11-23T22:30:00Z", "the earliest: --deadline "
                                                          "2026-11-23T22:30:00Z"),
        ("begin=2026-11-23T22:30:00Z", "begin=2026-11-23T22:30:00Z"),
        ("run-2026-11-23T22:30:00Z-a", "run-2026-11-23T22:30:00Z-a"),
        ("2026-99-23T22:30:00Z", "2026-99-23T22:30:00Z"),
    ],
)  # fmt: skip
def test_instants_in_sentences_of_the_master_are_shown_like_all_others(
    told: str, shown: str
) -> None:
    assert in_viewers_zone(told) == shown
