"""The jobs of blocks that belong to a list.

If all jobs of a block do, or none, they are not tested one by one. The result of such tests holds
until one of the jobs changes (`BlockNotes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dlq_master.control.read_model.job_blocks import BlockNotes, JobBlock
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.reads import LOOKED_AT, Breathe
from dlq_master.rpc.jobs.lists.conditions import Condition, Conditions

AT_ONCE: Final = 32  # jobs: if none of them was encoded before, they fill a slice
A_BLOCK: Final = 4  # the cost of a look at one


class JobSelection:
    """Finds the jobs that meet some conditions; other callers run meanwhile."""

    def __init__(self, conditions: Conditions, notes: BlockNotes, breathe: Breathe) -> None:
        self._conditions = conditions.each
        self._still = [one for one in conditions.each if not one.moves]
        self._passing = notes.about(("passing", conditions.subject))
        self.breathe = breathe

    async def of_some(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Those of these jobs that belong to the list, in order."""
        found: list[Job] = []
        for first in range(0, len(jobs), AT_ONCE):
            here = jobs[first : first + AT_ONCE]
            await self.breathe(LOOKED_AT * len(here))
            found += _through(self._conditions, here)
        return found

    async def of_block(self, block: JobBlock) -> Sequence[Job]:
        """The jobs of a block that belong to the list; the block's own sequence if all do."""
        await self.breathe(A_BLOCK)
        open_ones: list[Condition] = []
        for condition in self._conditions:
            verdict = condition.block(block)
            if verdict is False:
                return ()
            if verdict is None:
                open_ones.append(condition)
        moving = [condition for condition in open_ones if condition.moves]
        jobs: Sequence[Job] = block.jobs
        if len(moving) < len(open_ones):
            jobs = await self._of_still(block)
        if moving and jobs:
            await self.breathe(LOOKED_AT * len(jobs))
            jobs = _through(moving, jobs)
        return jobs

    async def _of_still(self, block: JobBlock) -> Sequence[Job]:
        """The jobs that meet the conditions that do not move; a bit per job is kept."""
        bits = self._passing.get(block)
        if bits is None:
            await self.breathe(LOOKED_AT * len(block.jobs))
            passing = {job.job_id for job in _through(self._still, block.jobs)}
            bits = sum(1 << at for at, job in enumerate(block.jobs) if job.job_id in passing)
            self._passing[block] = bits
        if bits == (1 << len(block.jobs)) - 1:
            return block.jobs
        return [job for place, job in enumerate(block.jobs) if bits >> place & 1] if bits else ()


def _through(conditions: Iterable[Condition], jobs: Sequence[Job]) -> Sequence[Job]:
    """The jobs that meet the conditions; the given sequence itself if all do."""
    found = jobs
    for condition in conditions:
        passes = condition.job
        found = [job for job in found if passes(job)]
    return jobs if len(found) == len(jobs) else found
