"""The world finds bugs: some planted ones in every run. `make world-bugs` looks for all of them."""

from __future__ import annotations

import pytest

from support.extent import LONG
from world.bugs import BUGS
from world.seeds import hunt, play

# Each is found by its first seeds; the others take longer.
QUICK = ("answers_before_the_commit", "keeps_the_epoch")
# All that eighty seeds found; docs/internals/world.md names the others.
FOUND = (
    "answers_before_the_commit", "forgets_a_row", "notes_ends_twice", "keeps_the_epoch",
    "keys_without_users", "forgets_requests", "forgets_cancels", "forgives_all_requeues",
    "takes_the_row_early", "forgets_contacts", "ignores_drains", "gives_away_at_once",
    "retries_after_an_error", "sends_before_the_commit", "forgets_quotas", "forgives_all_failures",
)  # fmt: skip
SOME = ("forgets_a_row", "notes_ends_twice", "forgets_cancels", "forgets_quotas")
MOST = 200


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_found(bug: str) -> None:
    found = hunt(bug, most=5)
    assert found.seeds, BUGS[bug].words


@pytest.mark.long("world/test_bugs.py::test_a_planted_bug_is_found")
@pytest.mark.parametrize("bug", FOUND if LONG else SOME)
def test_more_planted_bugs_are_found(bug: str) -> None:
    found = hunt(bug, most=MOST)
    assert found.seeds, BUGS[bug].words


def test_a_planted_bug_is_gone_afterwards() -> None:
    before = play(1).digest
    assert hunt("answers_before_the_commit", most=5).seeds
    assert play(1).digest == before
