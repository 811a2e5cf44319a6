"""Asking servers back from outside of the loop: a choice that takes long is made in a thread."""

import asyncio
from dataclasses import replace

from dlq_master.control.loop.ports import StimulusSink
from dlq_master.control.stimuli.loans import Found, Reclaimed, ReclaimServers, ToChoose

TRIES = 3  # of a choice that takes long, while the cluster changes; then one that is found at once


async def ask_back(control: StimulusSink, ask: ReclaimServers) -> Reclaimed:
    """The effects of the reclaim, done or planned. A choice counts if the cluster is still as it
    was when it was asked for.
    """
    for _ in range(TRIES):
        answer = await control.ask(ask)
        if isinstance(answer, Reclaimed):
            return answer
        assert isinstance(answer, ToChoose)
        choice = await asyncio.to_thread(answer.choose, answer.demand)
        ask = replace(ask, found=Found(choice, answer.basis))
    answer = await control.ask(replace(ask, hurry=True))
    assert isinstance(answer, Reclaimed)
    return answer
