"""The recent usage of accounts, over restarts: one value in the table of single values.

It is written with the ends of attempts, in their own turns. Running jobs are counted from their
start, so that nothing is lost when the master is killed. Jobs that ended while it was down are
entered when their agent reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.usage.shares import Shares

USAGE: Final = "usage"  # its key there


def to_write(cluster: Cluster) -> Mapping[str, str]:
    """The value, if it is another than before."""
    shares = cluster.shares
    if shares is None or not shares.ledger.changed:
        return {}
    shares.ledger.changed = False
    accounts = {
        name: [round(used, 3), at_s] for name, (used, at_s) in shares.ledger.accounts.items()
    }
    return {USAGE: json.dumps(accounts, sort_keys=True, separators=(",", ":"))}


def restore(cluster: Cluster, stored: str | None) -> None:
    """Go on with what was written; before any job is put."""
    if cluster.shares is None or stored is None:
        return
    shares = Shares(cluster.shares.ledger.half_life_s)
    shares.ledger = type(shares.ledger)(
        shares.ledger.half_life_s,
        {name: (used, at_s) for name, (used, at_s) in json.loads(stored).items()},
    )
    cluster.share(shares)


def carry_over(cluster: Cluster, before: Cluster, kept: Shares | None) -> Shares | None:
    """Another policy has taken over: return the shares to keep while a policy counts none.

    `cluster` is the one of the new policy. If that of the policy `before` counted no shares, it
    goes on with those that were `kept`.
    """
    if before.shares is not None:
        return before.shares
    cluster.share(kept)
    return kept
