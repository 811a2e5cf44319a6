"""Answers that are kept for a reader: as long as they are fresh, and no longer."""

from __future__ import annotations

import gc
import weakref
from typing import cast

from dlq_web.line.calls import Asking
from dlq_web.pages.kept import KeptAnswers
from support.fake_clock import FakeClock

LINE = cast(Asking, None)


class LargeAnswer:
    """What a page keeps."""


async def ask(_line: Asking) -> LargeAnswer:
    return LargeAnswer()


async def test_an_answer_is_asked_for_once_while_it_is_fresh() -> None:
    clock = FakeClock()
    kept = KeptAnswers[LargeAnswer](clock, 5.0)
    first = await kept.by("alice", LINE, ask)
    clock.advance(4.0)
    assert await kept.by("alice", LINE, ask) is first
    clock.advance(1.0)
    assert await kept.by("alice", LINE, ask) is not first


async def test_answers_of_readers_that_went_leave_the_memory() -> None:
    clock = FakeClock()
    kept = KeptAnswers[LargeAnswer](clock, 5.0)
    went = [weakref.ref(await kept.by(f"u{number}", LINE, ask)) for number in range(3)]
    clock.advance(6.0)
    await kept.by("alice", LINE, ask)
    gc.collect()
    assert [one() for one in went] == [None] * 3
