"""What is recorded in tests/data/identical is still so: a refactoring changes no plan, no journal,
no figure, no spec.

Some stories of each kind are told in `make test`, all of them in `make identical`. A change of
behaviour that is wanted is recorded by `make record`.
"""

from __future__ import annotations

import os

import pytest

from support import recorded

EVERY = os.environ.get("EVERY") == "1"
SPARSE = {"plans": 50, "traces": 12, "streams": 100, "specs": 1, "fields": 6}


def told(kind: str) -> list[recorded.Story]:
    stories = list(recorded.KINDS[kind]())
    return stories if EVERY else stories[:: SPARSE[kind]]


@pytest.mark.parametrize("kind", recorded.KINDS)
def test_the_record_has_every_story(kind: str) -> None:
    assert list(recorded.read(kind)) == [story.name for story in recorded.KINDS[kind]()]


@pytest.mark.parametrize("kind", recorded.KINDS)
def test_each_story_is_told_as_it_was(kind: str) -> None:
    before = recorded.read(kind)
    changed = [story.name for story in told(kind) if story.digest != before[story.name]]
    assert changed == []
