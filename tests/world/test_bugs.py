"""The world finds bugs: some planted ones in every run. `make world-bugs` looks for all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.extent import LONG
from world.bugs import BUGS
from world.seeds import hunt, play

# Each is found by its first seeds; the others take longer.
QUICK = ("keeps_the_epoch", "forgets_ends_when_sent", "takes_the_row_early")
SOME = (
    "answers_before_the_commit", "forgets_a_row", "notes_ends_twice", "forgets_cancels",
    "acknowledges_reports_early", "ignores_boots", "shims_outlive_the_hold",
)  # fmt: skip
MOST = 1_000
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "planted-bugs.md"


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_found(bug: str) -> None:
    found = hunt(bug, most=5)
    assert found.seeds, BUGS[bug].words


@pytest.mark.long("world/test_bugs.py::test_a_planted_bug_is_found")
@pytest.mark.parametrize("bug", tuple(BUGS) if LONG else SOME)
def test_more_planted_bugs_are_found(bug: str) -> None:
    found = hunt(bug, most=MOST)
    assert found.seeds, BUGS[bug].words


def test_the_page_of_planted_bugs_has_each_of_them_and_no_other() -> None:
    told = re.findall(r"(?m)^\| `(\w+)` \|", PAGE.read_text())
    assert sorted(told) == sorted(BUGS)
    assert len(told) == len(set(told)) >= 20


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = play(1).digest
    assert hunt("answers_before_the_commit", most=5).seeds
    assert play(1).digest == before
