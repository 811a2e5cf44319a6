"""The world finds bugs: some of the planted ones in every run, all of them by `make world-bugs`."""

from __future__ import annotations

import pytest

from support.extent import LONG
from world.bugs import BUGS
from world.seeds import hunt, play

# Each is found by its first seeds; the others take longer.
QUICK = ("answers_before_the_commit", "keeps_the_epoch")
SOME = ("forgets_a_row", "notes_ends_twice", "forgets_cancels", "forgets_quotas")
MOST = 200


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_found(bug: str) -> None:
    found = hunt(bug, most=5)
    assert found.seeds, BUGS[bug].words


@pytest.mark.long("world/test_bugs.py::test_a_planted_bug_is_found")
@pytest.mark.parametrize("bug", sorted(BUGS) if LONG else SOME)
def test_more_planted_bugs_are_found(bug: str) -> None:
    found = hunt(bug, most=MOST)
    assert found.seeds, BUGS[bug].words


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = play(1).digest
    assert hunt("answers_before_the_commit", most=5).seeds
    assert play(1).digest == before
