"""Jobs of the path relinking paper's section 4.1 at its four rates of arrivals, and their costs.

The jobs are those of `vm_cases`. Only their gaps differ. `exponential` has a mean of 75,000 s / N.
The paper tunes its high rate to the load of a real cluster. It then sees 450 jobs at once, and 250
at the exponential rate. So `high` is 1.8 times as dense here. `low` is a quarter of `high`, as
printed, and `mixed` changes between the two after every ten submits. A rate may also be a number:
so many times as dense as the exponential one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from benchmarks.papers import vm_cases
from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.registry.renting import build
from dlq_simulator.priced.instance import RentingInstance, RentingJob
from dlq_simulator.priced.times import Exact, Table
from dlq_simulator.priced.way import Way
from dlq_simulator.priced.world import Bill, World

RATES = ("exponential", "high", "mixed", "low")
HIGH = 450 / 250  # of the exponential rate: jobs at once in section 4.4
LOW = HIGH / 4
IN_A_ROW = 10  # submits of one rate, where it is mixed
HOUR_S = 3600.0


def submitted(
    nodes: int, rate: str, seed: int, weaker: float = 0.0, longer: float = 1.0
) -> Iterator[vm_cases.Drawn]:
    """The jobs of a case, in the order of their submits. `weaker`: so much smaller is the power
    with which GPUs speed them up; `longer`: of all run times.
    """
    before_s = at_s = 0.0
    for number, job in enumerate(vm_cases.case(nodes, 1.0, seed)):
        at_s += (job.submit_s - before_s) / _density(rate, number)
        before_s, fastest_s = job.submit_s, min(map(min, job.times_s.values()))
        times_s = {
            kind: tuple(longer * t * gpus**weaker for gpus, t in enumerate(times, start=1))
            for kind, times in job.times_s.items()
        }
        slower = min(map(min, times_s.values())) / fastest_s
        due_s = at_s + slower * (job.due_s - job.submit_s)
        yield job._replace(submit_s=at_s, due_s=due_s, times_s=times_s)


def _density(rate: str, number: int) -> float:
    high = number // IN_A_ROW % 2 == 0
    named = {"exponential": 1.0, "high": HIGH, "low": LOW, "mixed": HIGH if high else LOW}
    return named[rate] if rate in named else float(rate)


def instance(
    jobs: Sequence[vm_cases.Drawn], nodes: int, types: Sequence[NodeType]
) -> RentingInstance:
    """The same as the simulator takes them."""
    catalogue = Catalogue(tuple(types))
    most = int(catalogue.most.max())
    found = [
        RentingJob(
            f"j{number:04d}",
            job.submit_s,
            job.due_s,
            job.weight,
            np.array([job.times_s[kind][:most] for kind in catalogue.kinds]),
        )
        for number, job in enumerate(jobs)
    ]
    return RentingInstance(found, catalogue, nodes)


class Guessed(Exact):
    """The policy is told run times that are off by a factor for each job."""

    def __init__(self, there: RentingInstance, factors: Sequence[float]) -> None:
        super().__init__(there)
        self._factors = factors

    def told(self, number: int, way: Way) -> Table:
        table: Table = super().told(number, way) * self._factors[number]
        return table


def bill(
    there: RentingInstance,
    method: str,
    words: dict[str, str],
    *,
    interval_s: float = HOUR_S,
    resume_s: float = 0.0,
    times: Exact | None = None,
) -> Bill:
    """One replay, with seed 0 of the method."""
    solver = build(method, words)
    interval_s = interval_s if interval_s > 0 else inf
    return World(there, solver, interval_s=interval_s, resume_s=resume_s, times=times).run()
