"""When a plan may take GPUs away from work that runs, and at what price."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.attempts.grace import grace_s
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import decision_time_s
from dlq_master.model.view import View
from dlq_master.policy.transit.guards import NONE, Guards

_NEVER_S = float("inf")


class Taking(StrEnum):
    NEVER = "never"  # work that runs is renewed at every boundary
    BOUNDARY = "boundary"  # at a boundary of the best-effort grid, decided early enough to save
    AT_ONCE = "at-once"  # at any event, with the time to save; terms end on the grid all the same
    FREE = "free"  # at any event and at no cost; simulations only
    # In settings only: as at-once, and without a save for a short job.
    SUSPEND = "suspend"


class LeaseRules(NamedTuple):
    """`grid`: leases end on the boundaries of the term grid; without it a lease never ends by
    itself. `taking`: when a job that runs may lose its GPUs; `resizing`: when it may get another
    number. `by_band`: the band of a job says what kind of lease it gets. `rule`: the order in
    words, for the owners of the jobs that it stops.
    """

    grid: bool = True
    taking: Taking = Taking.NEVER
    resizing: Taking = Taking.NEVER
    by_band: bool = False
    guards: Guards = NONE
    rule: str = ""


def due(view: View, lead_s: float) -> tuple[list[AttemptKey], float]:
    """Attempts whose term ends so soon that renew or lapse has to be decided now, in key order.
    Also the time of the next decision (inf: there is none).
    """
    now_s = view.now_s
    found: list[AttemptKey] = []
    next_s = _NEVER_S
    for term_end_s, ending in view.cluster.by_term.items():
        decided_s = decision_time_s(term_end_s, lead_s)
        if decided_s <= now_s:
            found += ending
        elif decided_s < next_s:
            next_s = decided_s
    if found:
        found.sort()
    return found, next_s


def price_s(taking: Taking, job: Job) -> float:
    """The grace that a job gets to save its work."""
    return 0.0 if taking is Taking.FREE else grace_s(job.saves, job.rules)
