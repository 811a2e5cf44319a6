"""The loop's state of attempts beside the cluster: commands on their way to agents, ports, and
attempts that are not settled yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.control.attempts.bookkeeping import Bookkeeping
from dlq_master.control.attempts.outbox import Outbox
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.store.batch import Loaded
from dlq_master.store.tables.accounts import LEVELS


@dataclass(slots=True)
class AttemptsState:
    """`ports`: the attempt to which each port of a rendezvous was last given. `preparing`: the last
    report of each rank that is being prepared; never stored.
    """

    bookkeeping: Bookkeeping  # GPU time held, by account
    outbox: Outbox = field(default_factory=Outbox)
    next_command: int = 1
    ports: dict[int, AttemptKey] = field(default_factory=dict)
    next_port: int = 0
    starting: set[AttemptKey] = field(default_factory=set)  # gangs that do not run yet
    resizing: set[AttemptKey] = field(default_factory=set)  # ranks are being added or removed
    preparing: dict[tuple[AttemptKey, int], str] = field(default_factory=dict)

    def restore(self, loaded: Loaded, cluster: Cluster, now_s: float) -> None:
        """Take over what is stored, and work out the rest from the attempts of `cluster`."""
        for attempt in loaded.attempts:
            if attempt.master_port is not None:
                self.ports[attempt.master_port] = attempt.key
            if len(attempt.ranks) > 1 and attempt.live and attempt.started_time_s is None:
                self.starting.add(attempt.key)
        living = cluster.attempts.values()
        self.resizing = {attempt.key for attempt in living if attempt.resize is not None}
        self.outbox = Outbox(loaded.intentions)
        self.next_command = max(self.outbox, default=0) + 1
        self.bookkeeping = Bookkeeping.begin(cluster, loaded.meta.get(LEVELS), now_s)
