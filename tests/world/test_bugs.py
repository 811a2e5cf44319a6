"""The world finds bugs: some planted ones in every run. `make world-bugs` looks for all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.prove.campaigns import CAMPAIGNS

from support.extent import LONG
from world.bugs import BUGS
from world.seeds import Hunt, hunt, play

# Each is found by its first seeds; the others take longer.
QUICK = ("keeps_the_epoch", "forgets_ends_when_sent", "takes_the_row_early")
SOME = (
    "answers_before_the_commit", "forgets_a_row", "notes_ends_twice", "forgets_cancels",
    "acknowledges_reports_early", "ignores_boots", "shims_outlive_the_hold",
    "waits_for_lost_shims", "counts_requests_anew",
)  # fmt: skip
MOST = 1_000
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "planted-bugs.md"


def check(found: Hunt) -> None:
    """A plant that does not fit the code any more breaks at once, and finds nothing."""
    assert found.seeds, BUGS[found.bug].words
    assert not re.search(r"(Type|Attribute|Name)Error", found.broken), found


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_found(bug: str) -> None:
    check(hunt(bug, most=5))


@pytest.mark.long("world/test_bugs.py::test_a_planted_bug_is_found")
@pytest.mark.parametrize("bug", tuple(BUGS) if LONG else SOME)
def test_more_planted_bugs_are_found(bug: str) -> None:
    check(hunt(bug, most=MOST))


def test_the_page_of_planted_bugs_has_each_of_them_and_no_other() -> None:
    listed = re.findall(r"(?m)^\| `(\w+)` \|", PAGE.read_text())
    assert sorted(listed) == sorted(BUGS)
    assert len(listed) == len(set(listed)) >= 20


def test_the_campaign_of_planted_bugs_has_as_many_as_there_are() -> None:
    (campaign,) = [each for each in CAMPAIGNS if each.name == "bugs"]
    assert campaign.commands[0].whole() == len(BUGS)


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = play(1).digest
    assert hunt("answers_before_the_commit", most=5).seeds
    assert play(1).digest == before
