"""One partition: every open GPU serves everybody, all as best effort."""

from __future__ import annotations

from dlq_master.model.lease import LeaseKind


def kind_of_lease() -> LeaseKind:
    """The kind of lease that work of this partition gets."""
    return LeaseKind.BE
