"""The kind of lease of a job, by its band."""

from __future__ import annotations

from dlq_master.model.jobs.band import Band
from dlq_master.model.lease import LeaseKind

_SPOT = Band.SPOT


def kind_of_lease(band: Band = _SPOT) -> LeaseKind:
    """The kind of lease that work of this band gets."""
    if band is _SPOT:
        return LeaseKind.BE
    return _KINDS[band]


_KINDS = {
    Band.SLO: LeaseKind.SLO,
    Band.PROFILE: LeaseKind.PROFILE,
    Band.SPOT: LeaseKind.BE,
    Band.FILL: LeaseKind.BE,
    Band.BORROW: LeaseKind.BE,
    Band.LIMIT: LeaseKind.BE,
}
