"""A machine that is rented from a provider: the stored value, and its table of states.

Its row is the intention as well: it is on disk before a provider is asked, and says what is still
to be done. A machine is paid from `asked_s`, booting included, until its provider has said that it
is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.transitions import IllegalStep

_HOUR_S = 3600.0


class MachineState(StrEnum):
    STARTING = "starting"  # its provider is asked for it, or it boots
    UP = "up"  # its agent has joined: the job for which it is rented may start there
    DRAINING = "draining"  # no job starts there any more, and its jobs leave
    STOPPING = "stopping"  # its provider is told to take it back
    AWAY = "away"  # its provider says that it is gone
    FAILED = "failed"  # likewise, and it was of no use


OPEN = frozenset(
    {MachineState.STARTING, MachineState.UP, MachineState.DRAINING, MachineState.STOPPING}
)
_STARTING, _UP, _DRAINING, _STOPPING, _AWAY, _FAILED = MachineState
# From a state to another: the cause, and why.
EDGES: Mapping[tuple[MachineState, MachineState], str] = {
    (_STARTING, _UP): "its agent has joined, as the machine that was asked for",
    (
        _STARTING,
        _STOPPING,
    ): "nobody needs it any more, it does not come or cannot be started, or a wrong host has come",
    (
        _UP,
        _DRAINING,
    ): "nobody needs it any more, people give it back, or its provider takes it back",
    (
        _UP,
        _STOPPING,
    ): "it is lost: its node is down, or its agent is silent and its provider has it no more",
    (
        _DRAINING,
        _STOPPING,
    ): "nobody is there and its devices show nothing, its provider takes it now, or it is lost",
    (_STOPPING, _AWAY): "its provider says that it is gone",
    (_STOPPING, _FAILED): "likewise, and it was of no use",
}


class Machine(NamedTuple):
    """One machine. `request_id` names it for its provider, for good: asked twice, it is one
    machine.

    `instance_id`: its provider's name for it, "" until that was told; the agent there must know it.
    `fault`: why it is given back before its time, or was of no use. `tries`: how often its provider
    was asked for what is to be done now; `retry_s`: not again before.
    """

    request_id: str
    pool: str
    node_id: NodeId
    price_per_hour: float
    asked_s: float
    minimum_s: float = 0.0  # that is billed at least
    state: MachineState = MachineState.STARTING
    since_s: float = 0.0  # of its state
    instance_id: str = ""
    up_s: float | None = None
    end_s: float | None = None  # its provider has said that it is gone
    fault: str = ""
    failed: bool = False  # it was of no use
    tries: int = 0
    retry_s: float = 0.0
    jobs: tuple[int, ...] = ()  # for whom it was asked for
    at_most: float = 0.0  # what renting it was to save, in the currency of prices
    foretold: float = 0.0  # what it was to cost in all, likewise

    @property
    def open(self) -> bool:
        """It is, or may be, there and paid."""
        return self.state in OPEN

    @property
    def paid_until_s(self) -> float:
        """Up to then it costs what it costs, whether it is given back or not."""
        return self.asked_s + self.minimum_s

    def cost(self, now_s: float) -> float:
        until_s = now_s if self.end_s is None else self.end_s
        return max(until_s - self.asked_s, self.minimum_s) / _HOUR_S * self.price_per_hour


class _Moved(NamedTuple):
    """The error where a machine cannot go."""

    target: MachineState


def moved(machine: Machine, target: MachineState, at_s: float, fault: str = "") -> Machine:
    """The machine in another state; raises IllegalTransition where the table has no edge."""
    if (machine.state, target) not in EDGES:
        raise IllegalStep("machine", machine.request_id, machine.state, _Moved(target))
    after = machine._replace(
        state=target, since_s=at_s, tries=0, retry_s=0.0, fault=fault or machine.fault
    )
    if target is MachineState.UP:
        return after._replace(up_s=at_s)
    return after if target in OPEN else after._replace(end_s=at_s)
