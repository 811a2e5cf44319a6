"""The right to run until an instant: terms on one grid (scheduling) and the hold (safety)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.ids import Fence
from dlq_master.model.resources import Allocation
from dlq_master.model.values import maker


class LeaseKind(StrEnum):
    PROFILE = "profile"
    SLO = "slo"
    BE = "be"


class Lease(NamedTuple):
    """A job runs only while it holds one. Instants are seconds on the master's steady axis."""

    kind: LeaseKind
    allocation: Allocation
    fence: Fence
    term_end_s: float  # the next instant at which the scheduler may take the GPUs away
    hold_s: float  # how long the job may go on while the master is silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Every constant of the lease protocol; all are configuration, in seconds unless named."""

    heartbeat_s: float = 5.0
    ttl_s: float = 20.0  # no heartbeat for this long: SUSPECT
    unreachable_s: float = 25.0  # ... and for this long: UNREACHABLE
    hold_s: float = 3600.0  # L, the silence a job survives
    hold_margin_s: float = 5.0  # waited beyond hold_until before anything is given away
    be_term_s: float = 300.0
    slo_term_s: float = 1200.0
    save_lead_s: float = 30.0  # a lapse is decided this long before its boundary
    resume_s: float = 30.0  # from a resumed start until work gets on, as plans reckon
    freeze_fraction: float = 0.20  # requeues freeze when more than this part of the nodes ...
    freeze_nodes: int = 3  # ... and at least this many ...
    freeze_window_s: float = 60.0  # ... vanish within this window
    freeze_longest_s: float = 14_400.0  # ... but a node's silence counts for no longer than this
    loop_lag_limit_s: float = 5.0  # ... or when the master's own loop lags more than this

    def __post_init__(self) -> None:
        if self.be_term_s <= 0 or self.slo_term_s % self.be_term_s:
            raise ValueError(
                "slo_term_s must be a whole multiple of be_term_s, which is more than 0"
            )
        if not 0 <= self.save_lead_s < self.be_term_s:
            raise ValueError(
                f"save_lead_s ({self.save_lead_s:g}) must be at least 0 and shorter than "
                f"be_term_s ({self.be_term_s:g})"
            )
        if not 0 <= self.resume_s < self.be_term_s:
            raise ValueError(
                f"resume_s ({self.resume_s:g}) must be at least 0 and shorter than be_term_s "
                f"({self.be_term_s:g})"
            )
        if self.heartbeat_s <= 0:
            raise ValueError("heartbeat_s must be more than 0")
        if not self.heartbeat_s < self.ttl_s < self.unreachable_s < self.hold_s:
            raise ValueError("heartbeat_s < ttl_s < unreachable_s < hold_s must hold")
        if not 0 <= self.freeze_fraction <= 1 or self.freeze_nodes < 1 or self.freeze_window_s <= 0:
            raise ValueError(
                "freeze_fraction must be from 0 to 1, freeze_nodes at least 1, "
                "freeze_window_s more than 0"
            )
        if self.freeze_longest_s <= 0:
            raise ValueError("freeze_longest_s must be more than 0")
        if self.loop_lag_limit_s <= 0:
            raise ValueError("loop_lag_limit_s must be more than 0")

    def term_s(self, kind: LeaseKind) -> float:
        return self.slo_term_s if kind is LeaseKind.SLO else self.be_term_s


def until(lease: Lease, term_end_s: float, other: LeaseKind | None = None) -> Lease:
    """The same lease with another end of its term, and perhaps of another kind."""
    kind, allocation, fence, _, hold_s = lease
    return _lease((kind if other is None else other, allocation, fence, term_end_s, hold_s))


_lease = maker(Lease)


def next_boundary_s(now_s: float, term_s: float) -> float:
    """The first instant of the grid (multiples of the term) strictly after now."""
    boundary = (now_s // term_s + 1.0) * term_s
    # A quotient just below an integer may round to a boundary that is not after now.
    return boundary if boundary > now_s else boundary + term_s


def first_term_end_s(now_s: float, kind: LeaseKind, terms: Terms, lead_s: float) -> float:
    """End of the short first term of work that starts now.

    A start inside the lead before a boundary gets the boundary after it. The decision of the first
    boundary has already been made without it, and a run shorter than its own save is worth nothing.
    """
    return next_boundary_s(now_s + lead_s, terms.term_s(kind))


def renewed_term_end_s(term_end_s: float, kind: LeaseKind, terms: Terms) -> float:
    """End of the term after the one that ends at `term_end_s`."""
    return next_boundary_s(term_end_s, terms.term_s(kind))


def decision_time_s(term_end_s: float, lead_s: float) -> float:
    """When renew or lapse is decided for a term: early enough to save before it ends.

    The lead is the cluster's: `save_lead_s`, or the longest learned save of what runs.
    """
    return term_end_s - lead_s


def hold_until_s(contact_s: float, hold_s: float) -> float:
    """When the job itself stops if it hears nothing after `contact_s`.

    The agent counts from when it sent the heartbeat, the master from when it answered. So the
    agent's instant is always the earlier one.
    """
    return contact_s + hold_s


def requeue_time_s(contact_s: float, hold_s: float, terms: Terms) -> float:
    """When the master may give a silent job's GPUs to somebody else."""
    return hold_until_s(contact_s, hold_s) + terms.hold_margin_s
