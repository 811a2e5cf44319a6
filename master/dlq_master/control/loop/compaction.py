"""The journal is kept for a time and up to a length. Older events are dropped, a little at a time.

Once an hour (`compact_every`). The reading thread looks for events to drop. The writer's thread
drops them in transactions so small that a waiting turn does not notice. A restart in between loses
nothing: the horizon is written with the first slice, and the next hour goes on. Agents and silence
do not matter here. The story of a job that lives, or that ended within the time, is kept whole.
The list of its steps goes with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from dlq_common.clock import Clock
from dlq_master.control.config import RetentionConfig
from dlq_master.model.ids import AttemptKey
from dlq_master.store.batch import JournalCut

FIRST_SLICE: Final = 100  # events
SMALLEST_SLICE: Final = 20
LARGEST_SLICE: Final = 1_000
STEP_LISTS: Final = 20  # that go at a time
WANTED_S: Final = 0.003  # for one slice, with its sync and the wait for a batch before it
# Of the writer's time at most one part in so many goes into this.
SHARE: Final = 20
SHORTEST_PAUSE_S: Final = 0.02


class CompactedJournal(Protocol):
    """What may go."""

    async def journal_cut(self, from_s: float, most: int) -> JournalCut: ...
    async def journal_behind(self, cut: JournalCut, after: int, limit: int) -> Sequence[int]: ...
    async def steps_behind(self, ended_before_s: float, limit: int) -> Sequence[AttemptKey]: ...


class Pruner(Protocol):
    """Who drops it."""

    async def prune_journal(self, sequences: Sequence[int], horizon: int) -> None: ...
    async def drop_steps(self, keys: Sequence[AttemptKey]) -> None: ...


async def compact(
    journal: CompactedJournal,
    pruner: Pruner,
    retention: RetentionConfig,
    clock: Clock,
    horizon: int,
    move_horizon: Callable[[int], None],
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> int:
    """Cut what retention does not keep; returns how many events that were.

    `move_horizon` is called before anything is dropped: a reader behind it may miss events from
    then on. `horizon` is where it stands; it never goes back.
    """
    from_s = clock.now_s() - retention.journal_kept
    cut = await journal.journal_cut(from_s, retention.journal_most)
    horizon = max(horizon, cut.horizon)
    size, after, count = FIRST_SLICE, 0, 0
    while sequences := await journal.journal_behind(cut, after, size):
        move_horizon(horizon)
        began_s = clock.boottime_s()
        await pruner.prune_journal(sequences, horizon)
        took_s = clock.boottime_s() - began_s
        after, count = sequences[-1], count + len(sequences)
        size = next_size(size, took_s)
        await pause(max(SHORTEST_PAUSE_S, SHARE * took_s))
    while keys := await journal.steps_behind(from_s, STEP_LISTS):
        began_s = clock.boottime_s()
        await pruner.drop_steps(keys)
        await pause(max(SHORTEST_PAUSE_S, SHARE * (clock.boottime_s() - began_s)))
    return count


def next_size(size: int, took_s: float) -> int:
    """How many events the next slice drops, when one of `size` took so long."""
    if took_s > WANTED_S:
        return max(SMALLEST_SLICE, size // 2)
    return min(LARGEST_SLICE, size + size // 4)
