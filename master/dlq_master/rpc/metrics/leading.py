"""The part of a master among several, for `/metrics` and `/readyz`; also of a standby.

A standby serves a page of its own at the same port: its part, and how far it has read. Only the
leader's page has the figures of the cluster. A takeover replaces the one page by the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from dlq_common.clock import Clock
from dlq_common.text.addresses import is_loopback
from dlq_master.control.config import MasterConfig
from dlq_master.leader.lease import MasterPart
from dlq_master.rpc.calls.auth import Door
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.metrics.access import MetricsDoor, MetricsTls
from dlq_master.rpc.metrics.exposition import Labels, MetricFamily, family, gauge
from dlq_master.rpc.metrics.metrics import MetricsServer, Readiness
from dlq_master.rpc.metrics.token_file import token_file_of


def leader_families(part: MasterPart | None) -> Iterator[MetricFamily]:
    """Its part; None: it leads, and there is no other master. Unknown figures are absent."""
    yield gauge("dlq_leader", "1 while this master leads, 0 while it stands by.", _leads(part))
    words = (
        "Until the lease of the leader ends, if nobody renews it; absent without another master."
    )
    yield _of("dlq_lease_left_seconds", words, None if part is None else max(0.0, part.left_s))
    words = "The last turn that this master has committed, or has read as a standby."
    yield _of("dlq_turn", words, None if part is None else part.turn)
    waits = part if part is not None and not part.leads else None
    words = "1 while this standby could take the lead at once, else 0; absent on a leader."
    yield _of("dlq_standby_ready", words, None if waits is None else waits.ready)
    words = "Since this standby has read the turns; absent on a leader, and before the first look."
    read_s = math.inf if waits is None else waits.read_ago_s
    yield _of("dlq_standby_read_age_seconds", words, None if math.isinf(read_s) else read_s)


def readiness(part: MasterPart | None) -> Readiness:
    """Whether this master serves, and its part in words. A standby refuses calls, so it is not
    ready.
    """
    if part is None:
        return Readiness(True, "leads alone")
    epoch = f"epoch {part.fence.epoch}, turn {part.turn}"
    if part.leads:
        return Readiness(part.left_s > 0, f"leads, {epoch}")
    if math.isinf(part.read_ago_s):
        told = "stands by, and has read nothing yet"
    else:
        told = f"stands by, {epoch}, read {part.read_ago_s:.1f} s ago"
    leader = f"{part.leader} leads" if part.leader else "nobody leads"
    why = f"; would not lead: {part.why}" if part.why else ""
    return Readiness(False, f"{told}; {leader}{why}")


def standby_page(
    config: MasterConfig, authority: Signs, clock: Clock, door: Door, part: Callable[[], MasterPart]
) -> MetricsServer:
    """The server of `listen.metrics` for a standby, not started. ConfigError: its token file is of
    no use.
    """
    address = config.listen.metrics
    token = token_file_of(config.metrics.token_file)
    tls = None if is_loopback(address) else MetricsTls(authority, clock, demanding=token is None)
    return MetricsServer(
        address,
        {"/metrics": lambda: leader_families(part())},
        clock,
        MetricsDoor(tls=tls, token=token, check_member=door.check_member),
        ready=lambda: readiness(part()),
    )


def _leads(part: MasterPart | None) -> int:
    return int(part is None or part.leads)


def _of(name: str, words: str, value: float | None) -> MetricFamily:
    """A gauge; absent without a value."""
    samples: dict[Labels, float] = {} if value is None else {(): value}
    return family(name, "gauge", words, samples)
