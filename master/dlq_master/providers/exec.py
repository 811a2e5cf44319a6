"""An operator's own program, as Slurm's ResumeProgram: `PROGRAM start|stop|list`, JSON in and out
(docs/sites/providers.md).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from dlq_master.control.pool_config import PoolConfig
from dlq_master.control.stimuli.machines import Listed
from dlq_master.providers.calls import call, object_of, word_of
from dlq_master.providers.port import MachineWish, ProviderFailed

MOST_LISTED = 10_000


@dataclass(frozen=True, slots=True)
class ExecProvider:
    """See the port. The pool's program is called anew for everything, and killed after its
    `timeout`.
    """

    pool: PoolConfig

    def start(self, wish: MachineWish) -> str:
        """See the port."""
        return word_of(self._call("start", asdict(wish)), "instance_id", "start")

    def stop(self, request_id: str, instance_id: str) -> bool:
        """It is gone unless the program says `"gone": false`."""
        named = {"request_id": request_id, "pool": self.pool.name, "instance_id": instance_id}
        gone = self._call("stop", named).get("gone", True)
        if not isinstance(gone, bool):
            raise ProviderFailed("stop printed a gone that is not true or false")
        return gone

    def list(self) -> tuple[Listed, ...]:
        """See the port."""
        machines = self._call("list", {"pool": self.pool.name}).get("machines")
        if not isinstance(machines, list) or len(machines) > MOST_LISTED:
            raise ProviderFailed("list did not print machines")
        return tuple(_listed(one) for one in machines)

    def _call(self, verb: str, told: dict[str, Any]) -> dict[str, Any]:
        words, pool = (self.pool.program, verb), self.pool
        out = call(
            words,
            text=json.dumps(told),
            timeout_s=pool.timeout,
            user=pool.user,
            helper=pool.helper,
        )
        return object_of(out, verb)


def _listed(one: object) -> Listed:
    if not isinstance(one, dict):
        raise ProviderFailed("list printed a machine that is no object")
    return Listed(word_of(one, "request_id", "list"), word_of(one, "instance_id", "list"))
