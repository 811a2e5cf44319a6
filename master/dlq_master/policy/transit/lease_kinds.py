"""The kind of lease of a job, by its lane."""

from __future__ import annotations

from dlq_master.model.jobs.lane import Lane
from dlq_master.model.lease import LeaseKind

_SPOT = Lane.SPOT


def kind_of_lease(lane: Lane = _SPOT) -> LeaseKind:
    """The kind of lease that work of this lane gets."""
    if lane is _SPOT:
        return LeaseKind.BE
    return _KINDS[lane]


_KINDS = {
    Lane.SLO: LeaseKind.SLO,
    Lane.PROFILE: LeaseKind.PROFILE,
    Lane.SPOT: LeaseKind.BE,
    Lane.FILL: LeaseKind.BE,
    Lane.BORROW: LeaseKind.BE,
    Lane.LIMIT: LeaseKind.BE,
}
