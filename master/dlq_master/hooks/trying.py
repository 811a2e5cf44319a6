"""A file of hooks is tried on starts and ends that have been. Nothing of it is stored.

The journal has them. A trial tells them to the function as the follower of the journal would, and
reads the answers as it does. But it tells each one once, and leaves its place in the journal alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import HookResult
from dlq_master.hooks.desk import HookDesk
from dlq_master.hooks.following import ToldAttempt, hook_for, result_of, told_of
from dlq_master.hooks.process import HookFailed, HookFile

PAGE: Final = 500  # events that are read at once, on the master's loop
MOST_READ: Final = 50_000  # events in which a trial looks for starts and ends


class TriedAttempt(NamedTuple):
    """The result that a hook would have had, and its prints."""

    told: ToldAttempt
    result: HookResult
    said: str


async def tried_attempts(
    desk: HookDesk, read: Published, file: HookFile, hook: str, count: int
) -> Sequence[TriedAttempt]:
    """The results of on_start or on_end of this file for the newest `count` events, the newest
    first. ConfigError: the file cannot be loaded.
    """
    told, policy = await _newest(read, hook, count), desk.policy(hook)
    answers = await desk.trial(file, hook, [one.facts for one in told])
    return [
        TriedAttempt(
            one,
            result_of(hook, one.key, answer, policy),
            answer.said if isinstance(answer, HookFailed) else str(answer.get("said", "")),
        )
        for one, answer in zip(told, answers, strict=True)
    ]


async def _newest(read: Published, hook: str, count: int) -> Sequence[ToldAttempt]:
    found: list[ToldAttempt] = []
    end = read.last_sequence
    begin = max(0, end - MOST_READ)
    while end > begin and len(found) < count:
        after = max(begin, end - PAGE)
        # Where the journal was cut, the page reaches beyond its end.
        events = [event for event in read.events(after, end - after) if event.seq <= end]
        wanted = (event for event in reversed(events) if hook_for(event) == hook)
        told = (told_of(read, hook, event) for event in wanted)
        found += islice(filter(None, told), count - len(found))
        end = after
        await asyncio.sleep(0)  # the loop has other work
    return found
