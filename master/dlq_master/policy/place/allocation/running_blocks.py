"""Running jobs of one priority, as blocks between which waiting jobs may stand."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.order.keys import STARTED_BASE, STARTED_END
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.running import RunningByKey


class RunningBlock(NamedTuple):
    """Jobs that stand together: every waiting job ranks before all of them or after all of them.

    `job_ids` None: all of the priority that do not stand in a block of their own. A caller that can
    treat them as one sum (`gpus`) never has to list them.
    """

    position: int
    gpus: int
    job_ids: tuple[JobId] | None


def blocks(lineup: Lineup, priority: int, *, apart: bool) -> list[RunningBlock]:
    """The running jobs of a priority in order; `apart` False: no job waits there, so one block is
    enough."""
    running = lineup.running
    if priority not in running.by_priority:
        return []
    gpus = running.gpus_by_priority[priority]
    if not apart:
        return [RunningBlock(STARTED_BASE, gpus, None)]
    places = running.places
    if not lineup.together or isinstance(running, RunningByKey):
        return [
            RunningBlock(running.position(job), places[job].gpus, (job,))
            for job in running.in_order(priority)
        ]
    together = running.gpus_together[priority]
    found = [RunningBlock(STARTED_BASE, together, None)] if together else []
    if together != gpus:  # promoted ones before the others, demoted ones behind
        found += [
            RunningBlock(places[job].sequence, places[job].gpus, (job,))
            for job in running.by_priority[priority]
            if not STARTED_BASE <= places[job].sequence < STARTED_END
        ]
        found.sort(key=lambda block: block.position)
    return found


def members(
    lineup: Lineup, priority: int, block: RunningBlock, *, in_order: bool
) -> Collection[JobId]:
    """The block's jobs; `in_order`: the one that is kept first first."""
    if block.job_ids is not None:
        return block.job_ids
    running = lineup.running
    places = running.places
    everyone = running.in_order(priority) if in_order else running.by_priority[priority]
    if block.gpus == running.gpus_by_priority[priority]:
        return everyone
    return [job for job in everyone if STARTED_BASE <= places[job].sequence < STARTED_END]
