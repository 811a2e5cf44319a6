"""The port of providers. Every method blocks, for as long as its own time-out says, and is called
in a thread.

The contract, to which one suite of tests holds all of them: `start` and `stop` may be called any
number of times with the same request id, also while an earlier call of another process runs. The
result is one machine, with one name. A machine that any part of a call started is listed under its
request id, or is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlq_master.control.stimuli.machines import Listed


class ProviderFailed(Exception):
    """It did nothing, or nobody knows whether it did: to be asked again. Its text is for people, on
    one line.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineWish:
    """A machine that is wanted. `token` is a secret: it joins with it at `join_address`, as
    `node_id`.
    """

    request_id: str
    pool: str
    node_id: str
    gpu_type: str
    gpu_count: int
    join_address: str
    token: str


class Provider(Protocol):
    """Rents out machines of one pool."""

    def start(self, wish: MachineWish) -> str:
        """Have it started; its own name for the machine, the same however often it is asked. Does
        not wait until it runs. Raises ProviderFailed."""
        ...

    def stop(self, request_id: str, instance_id: str) -> bool:
        """Have it stopped, whatever state it is in; True once it is gone and not paid on, also if
        it never was. `instance_id` "": not known. Raises ProviderFailed."""
        ...

    def list(self) -> tuple[Listed, ...]:
        """All machines that are there, or coming, and paid. Raises ProviderFailed."""
        ...
