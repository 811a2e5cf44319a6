"""Hosts that are there anyway, and cost something while they are used: which of them is the
master's choice.
"""

from __future__ import annotations

from dlq_master.control.stimuli.machines import Listed
from dlq_master.providers.port import MachineWish


class StaticProvider:
    """See the port. Nothing starts or stops: the agents are there. What is rented lives with the
    master.
    """

    def __init__(self) -> None:
        self._rented: dict[str, str] = {}

    def start(self, wish: MachineWish) -> str:
        """Its name is its host's."""
        return self._rented.setdefault(wish.request_id, wish.node_id)

    def stop(self, request_id: str, instance_id: str) -> bool:
        """It is nobody's at once."""
        self._rented.pop(request_id, None)
        return True

    def list(self) -> tuple[Listed, ...]:
        """What was asked for since this master started."""
        return tuple(Listed(*item) for item in sorted(self._rented.items()))
