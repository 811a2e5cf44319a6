"""Hosts that exist anyway and cost money while they are used. The master chooses among them."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.control.stimuli.machines import Listed
from dlq_master.providers.port import MachineWish


@dataclass(frozen=True, slots=True)
class StaticProvider:
    """See the port. Nothing starts or stops: the agents are there. The list of rented hosts lives
    with the master.
    """

    _rented: dict[str, str] = field(default_factory=dict)

    def start(self, wish: MachineWish) -> str:
        """Its name is its host's."""
        return self._rented.setdefault(wish.request_id, wish.node_id)

    def stop(self, request_id: str, instance_id: str) -> bool:
        """It is nobody's at once."""
        self._rented.pop(request_id, None)
        return True

    def list(self) -> tuple[Listed, ...]:
        """The requests since this master started."""
        return tuple(Listed(*item) for item in sorted(self._rented.items()))
