"""Grow-shrink (Gandiva, OSDI 2018, 3.2, as Aryl compares with it in 7.1): elastic jobs take up GPUs
while nobody waits for any."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_master.model.ids import JobId
from dlq_master.policy.size.sizing import Candidate


def grow(candidates: Sequence[Candidate], left: int, short: bool) -> dict[JobId, int]:
    """A grown job keeps GPUs that no other job can use. Jobs grow only if no job waits, the first
    in line as far as it can.
    """
    sizes: dict[JobId, int] = {}
    for candidate in candidates:
        wanted = _largest(candidate, max(candidate.held, candidate.base), left)
        left -= wanted - candidate.base
        sizes[candidate.job.job_id] = wanted
    if short:
        return sizes
    for candidate in candidates:
        size = sizes[candidate.job.job_id]
        wanted = _largest(candidate, candidate.job.request.sizes[-1], left + size - candidate.base)
        left -= wanted - size
        sizes[candidate.job.job_id] = wanted
    return sizes


def _largest(candidate: Candidate, most: int, left: int) -> int:
    """The largest size up to `most` that takes no more than is left beyond its base."""
    size = candidate.base
    while (larger := candidate.next_size(size)) is not None:
        if larger > most or larger - candidate.base > left:
            break
        size = larger
    return size
