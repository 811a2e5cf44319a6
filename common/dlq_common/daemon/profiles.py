"""Profiles of this process while it serves, for one caller at a time.

The event loop goes on meanwhile. Nothing is stored: a process that is killed takes the samples
along. Sampling ends with the context of its caller, however that ends: the caller went away, or the
line was silent for too long. A process that stops tells its samples so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.daemon.stacks import StackProfile, StackSampler
from dlq_common.errors import TryAgain

STOPPING: Final = "the master stopped"
_log = get_logger("profile")
# Makes the answer of the samples, and of the cause of an early end. Another thread calls it.
AnswerOf = Callable[[StackProfile, str], bytes]


class OwnProfiles:
    """Profiles of this process, one at a time. Used by the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now: Sampling | None = None

    @contextmanager
    def begun(self, by: str, seconds: float, answer_of: AnswerOf) -> Iterator[Sampling]:
        """Sampling that goes on until its answer is asked for, or until the context ends. TryAgain
        while another goes on.
        """
        if self._now is not None:
            raise TryAgain(
                f"{self._now.by} takes a profile of {self._now.seconds:g} s at the moment",
                hint="there is one profile at a time",
            )
        self._now = sampling = Sampling(by, seconds, self._clock, answer_of)
        _log.info("profile_begun", by=by, seconds=seconds)
        try:
            sampling.sampler.start()
            yield sampling
        finally:
            self._now = None
            sampling.sampler.stop()
            _log.info("profile_ended", by=by, samples=sampling.sampler.samples)

    def leave(self) -> None:
        """The process stops: a profile ends now, and is told as far as it came."""
        if self._now is not None:
            self._now.end(STOPPING)


class Sampling:
    """One profile in the making."""

    def __init__(self, by: str, seconds: float, clock: Clock, answer_of: AnswerOf) -> None:
        self.by, self.seconds = by, seconds
        self.sampler = StackSampler(tell_s=clock.boottime_s)
        self._clock, self._until_s = clock, clock.boottime_s() + seconds
        self._answer_of = answer_of
        self._ended = asyncio.Event()
        self._early = ""

    def end(self, why: str) -> None:
        """End before the time, and say so in the answer."""
        self._early = why
        self._ended.set()

    async def over(self, patience_s: float) -> bool:
        """Wait for the end, so long at the most; true once it has come."""
        left_s = max(0.0, self._until_s - self._clock.boottime_s())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), min(patience_s, left_s))
        self.sampler.learn_names()
        return self._ended.is_set() or self._clock.boottime_s() >= self._until_s

    async def answer(self) -> bytes:
        """The answer. A thread makes it: a large one takes some tens of milliseconds."""
        self.sampler.stop()
        return await asyncio.to_thread(lambda: self._answer_of(self.sampler.profile(), self._early))
