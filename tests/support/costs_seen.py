"""What rented machines cost, reckoned beside the master: by what is seen there between its
turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TypeVar

import pytest

from dlq_master.model.usage.accounting import DAY_S, by_day
from dlq_master.model.usage.cost import Costs
from support.rented import HOUR_S, Site

Key = TypeVar("Key")


class Witness:
    """Looks at a site before time passes. `boot` and `idle`: money by day and pool; `jobs`:
    likewise, by job too.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.boot: defaultdict[tuple[int, str], float] = defaultdict(float)
        self.idle: defaultdict[tuple[int, str], float] = defaultdict(float)
        self.jobs: defaultdict[tuple[int, int, str], float] = defaultdict(float)

    def tick(self, seconds: float, **more: bool) -> None:
        """As `Site.tick`."""
        now_s = self.site.master.clock.now_s()
        state = self.site.master.state
        for machine in state.machines.open():
            rate = machine.price_per_hour / HOUR_S
            parts: dict[int, float] = {}
            if machine.up_s is not None:
                for key in state.cluster.attempts_on(machine.node_id):
                    slots = state.cluster.attempts[key].lease.allocation.slots
                    held = sum(one.mask.bit_count() for one in slots)
                    parts[int(key.job_id)] = held / len(state.cluster.nodes[machine.node_id].gpus)
            for day, span_s in by_day(now_s, now_s + seconds):
                kind = self.boot if machine.up_s is None else self.idle
                kind[day, machine.pool] += (1.0 - sum(parts.values())) * span_s * rate
                for job_id, part in parts.items():
                    self.jobs[day, job_id, machine.pool] += part * span_s * rate
        self.site.tick(seconds, **more)

    def told(self) -> Costs:
        """What the master says by now, of all days."""
        now_s = self.site.master.clock.now_s()
        return self.site.master.store.costs_of(0, int(now_s // DAY_S), now_s)

    def judge(self) -> None:
        """The master says what was seen here, to the millisecond, and in all what its machines have
        cost.
        """
        told, now_s = self.told(), self.site.master.clock.now_s()
        jobs = {
            (account.day, int(account.job_id), account.pool): cost.running
            for account, cost in told.jobs.items()
        }
        assert _some(jobs) == pytest.approx(_some(self.jobs), abs=1e-6)
        boot = {key: paid.boot for key, paid in told.pools.items()}
        assert _some(boot) == pytest.approx(_some(self.boot), abs=1e-6)
        idle = {key: paid.idle for key, paid in told.pools.items()}
        assert _some(idle) == pytest.approx(_some(self.idle), abs=1e-6)
        whole = sum(paid.whole for paid in told.pools.values())
        machines = self.site.machines().values()
        assert whole == pytest.approx(sum(one.cost(now_s) for one in machines), abs=1e-6)
        held = sum(paid.jobs for paid in told.pools.values())
        assert held == pytest.approx(sum(jobs.values()), abs=1e-6)


def _some(amounts: Mapping[Key, float]) -> dict[Key, float]:
    return {key: amount for key, amount in amounts.items() if abs(amount) > 1e-6}
