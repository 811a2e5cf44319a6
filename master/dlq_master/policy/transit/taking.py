"""When a plan may preempt running jobs, and how long they may save."""

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
    NEVER = "never"  # every running job is renewed at every boundary
    BOUNDARY = "boundary"  # at a boundary of the best-effort grid, decided early enough to save
    AT_ONCE = "at-once"  # at any event, with the time to save; terms end on the grid all the same
    FREE = "free"  # at any event and at no cost; simulations only
    # In settings only: as at-once, and without a save for a short job.
    SUSPEND = "suspend"


class LeaseRules(NamedTuple):
    """The settings of the transit stage.

    `grid`: leases end on the boundaries of the term grid; False: a lease has no end.
    `taking`: when a running job may be preempted; `resizing`: when it may be resized.
    `by_band`: the kind of a lease follows from the band of its job.
    `rule`: the order in words, told to owners of preempted jobs.
    """

    grid: bool = True
    taking: Taking = Taking.NEVER
    resizing: Taking = Taking.NEVER
    by_band: bool = False
    guards: Guards = NONE
    rule: str = ""


def terms_due(view: View, lead_s: float) -> tuple[list[AttemptKey], float]:
    """The attempts whose terms must be decided now (renew or lapse), in key order. Also the instant
    of the next decision (inf: there is none). `lead_s`: from the decision to the end of a term.
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


def save_grace_s(taking: Taking, job: Job) -> float:
    """Seconds that a preempted job gets to save; 0 where preemption is free."""
    return 0.0 if taking is Taking.FREE else grace_s(job.saves, job.rules)
