"""The loop's state of priced pools beside the rows of machines: the open requests to providers.
Never stored.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dlq_master.control.machines.occupancy import Occupancy
from dlq_master.control.machines.solving import ProgramSolving
from dlq_master.control.pool_config import PoolConfig
from dlq_master.control.stimuli.machines import Act
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.machines.fleet import Fleet
from dlq_master.model.machines.rented import Machine
from dlq_master.store.batch import Loaded

if TYPE_CHECKING:
    from dlq_master.policy.rent.times import MachineRunTimes

FIRST_REST_S, LONGEST_REST_S = 30.0, 3600.0  # of a pool whose machines fail, one after another


class Desk(Protocol):
    """The desk asks providers, outside of the loop; answers come as `ProviderTold`. Never
    blocks.
    """

    def ask(self, act: Act) -> None: ...


class Refused(NamedTuple):
    """Why a host that said hello is none of ours, or not the one that was rented."""

    words: str
    wrong: bool  # it came for a machine that was rented: that one is of no use


@dataclass(slots=True)
class MachinesState:
    """The loop's state of rented machines.

    `seed`: of the secrets of join tokens, the same for all masters of a cluster. `asking`:
    machines, and pools, of which a provider is asked something just now. `acts`: to be asked
    once this turn is on disk. `listed_s`: when each pool's provider was asked for what is
    there, and has answered since. `refused`: hosts of which people are to be told, and `told`:
    once they have been. `words`: why nothing is rented from a pool; `list_faults`: why it does
    not say what is there. `leave_s`: when the provider takes a machine. `times`: of jobs
    (run_times.py); `recalled`: ended jobs have been asked. `unforetold`: jobs whose cost is
    still to be told.
    `strange`: machines that providers list, and that were never asked for; `unlisted`: machines
    whose agent is heard, and that no list names.
    """

    fleet: Fleet = field(default_factory=Fleet)
    occupancy: Occupancy = field(default_factory=Occupancy)  # of rented machines, by attempts
    desk: Desk | None = None
    solving: ProgramSolving = field(default_factory=ProgramSolving)
    seed: bytes = b""
    next_number: int = 1
    asking: set[str] = field(default_factory=set)
    acts: list[Act] = field(default_factory=list)
    listed_s: dict[str, float] = field(default_factory=dict)
    asked_list_s: dict[str, float] = field(default_factory=dict)
    refused: dict[NodeId, Refused] = field(default_factory=dict)
    told: dict[NodeId, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    list_faults: dict[str, str] = field(default_factory=dict)
    leave_s: dict[str, float] = field(default_factory=dict)
    times: MachineRunTimes | None = None
    recalled: bool = False
    unforetold: set[JobId] = field(default_factory=set)
    strange: set[str] = field(default_factory=set)
    unlisted: set[str] = field(default_factory=set)

    def restore(self, loaded: Loaded, cluster: Cluster, now_s: float) -> None:
        """Take over what is stored, and work out the rest from the attempts that live."""
        self.fleet = Fleet(loaded.machines)
        list(self.occupancy.take(loaded.attempts, cluster.nodes, self.fleet, now_s))
        self.note_unforetold(loaded.jobs)

    def open(self) -> list[Machine]:
        """All that are, or may be, there, in the order of their names."""
        return sorted(self.fleet.open(), key=lambda one: one.request_id)

    def secret(self, request_id: str) -> str:
        """Of the token with which its agent joins: the same whoever is asked how often."""
        return hmac.new(self.seed, f"dlq pool {request_id}".encode(), hashlib.sha256).hexdigest()

    def rests_until_s(self, pool: str) -> float:
        """After machines that were of no use, nothing is asked of a pool for a while; 0: it may be
        asked.
        """
        failures, last_s = self.fleet.failures(pool)
        if not failures:
            return 0.0
        return last_s + min(FIRST_REST_S * 2.0 ** (failures - 1), LONGEST_REST_S)

    def per_hour(self) -> float:
        """The cost of all present machines in an hour."""
        return sum(one.price_per_hour for one in self.fleet.open())

    def note_unforetold(self, jobs: Iterable[Job]) -> None:
        """Of those of these jobs that are late at a price it is to be said what they cost."""
        self.unforetold |= {
            job.job_id
            for job in jobs
            if job.lateness is not None and job.foretold is None and not job.ended
        }

    def hand_over(self) -> None:
        """After the commit: send this turn's requests to providers."""
        acts, self.acts = self.acts, []
        for act in acts if self.desk is not None else ():
            assert self.desk is not None
            self.desk.ask(act)


def pool_of(pools: Iterable[PoolConfig], name: str) -> PoolConfig | None:
    """Its section of master.toml; None: nothing (any more)."""
    return next((one for one in pools if one.name == name), None)
