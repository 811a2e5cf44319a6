"""A page of a list in an order other than by number.

Not all jobs are sorted. The first and the last place of each block are noted. Blocks are read in
the order of their first place, until no further block can have a job of this page. SQLite sorts
ended jobs that have left memory, outside the loop. Both are merged. Of a job in both, the value in
memory counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from dlq_master.control.read_model.job_blocks import JobBlock
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.reads import LOOKED_AT
from dlq_master.rpc.jobs.lists.wanted import Wanted
from dlq_master.store.list_order import Rank

_Placed = tuple[Rank, Job]
_place = itemgetter(0)


class RankedPage(NamedTuple):
    """The jobs of a page, and the place of its last job if others follow."""

    jobs: Sequence[Job]
    last: Rank | None


async def ranked(wanted: Wanted, after: Rank | None, most: int) -> RankedPage:
    """At most `most` jobs of the list behind this place, in order."""
    if wanted.named is not None:
        jobs = await wanted.selection.of_some(list(wanted.named.values()))
        found = _behind(wanted, jobs, after)
    else:
        found = await _of_memory(wanted, after, most)
        if wanted.past is not None:
            known = {job.job_id for _, job in found}
            past = await _of_disk(wanted, after, most)
            found += [placed for placed in past if placed[1].job_id not in known]
    found.sort(key=_place)
    page = found[:most]
    last = page[-1][0] if len(found) > most else None
    return RankedPage([job for _, job in page], last)


async def _of_memory(wanted: Wanted, after: Rank | None, most: int) -> list[_Placed]:
    read, user, breathe = wanted.read, wanted.user, wanted.selection.breathe
    first: list[tuple[Rank, int]] = []
    for number in read.block_numbers(user, 0):
        reach = await _reach(wanted, read.block(user, number))
        if reach is not None and (after is None or reach[1] > after):
            first.append((reach[0], number))
    first.sort()
    found: list[_Placed] = []
    edge: Rank | None = None  # the last place of a full page
    for begin, number in first:
        if edge is not None and begin > edge:
            break
        jobs = await wanted.selection.of_block(read.block(user, number))
        await breathe(LOOKED_AT * len(jobs))
        found += _behind(wanted, jobs, after)
        if len(found) > 2 * most:
            found.sort(key=_place)
            del found[most + 1 :]
            edge = found[most][0]
    return found


async def _reach(wanted: Wanted, block: JobBlock) -> tuple[Rank, Rank] | None:
    """The first and the last place of the block's jobs; None: it has none."""
    if not block.jobs:
        return None
    if wanted.order.key == "number":
        await wanted.selection.breathe(LOOKED_AT)
        ends = wanted.rank(block.jobs[0]), wanted.rank(block.jobs[-1])
        return min(ends), max(ends)
    notes = wanted.notes.about(("reach", wanted.rank_subject))
    reach: tuple[Rank, Rank] | None = notes.get(block)
    if reach is None:
        await wanted.selection.breathe(LOOKED_AT * len(block.jobs))
        places = [wanted.rank(job) for job in block.jobs]
        reach = notes[block] = min(places), max(places)
    else:
        await wanted.selection.breathe(LOOKED_AT)
    return reach


async def _of_disk(wanted: Wanted, after: Rank | None, most: int) -> list[_Placed]:
    assert wanted.past is not None
    found: list[_Placed] = []
    limit = most + 1  # at once: where no index helps, SQLite looks at all rows for each chunk
    while len(found) <= most:
        chunk = await wanted.read.past_in_order(wanted.past, wanted.order, after, limit)
        jobs = await wanted.selection.of_some(chunk)
        found += [(wanted.rank(job), job) for job in jobs]
        if len(chunk) < limit:
            break
        after = wanted.order.rank(chunk[-1])
    return found


def _behind(wanted: Wanted, jobs: Sequence[Job], after: Rank | None) -> list[_Placed]:
    placed = [(wanted.rank(job), job) for job in jobs]
    return placed if after is None else [one for one in placed if one[0] > after]
