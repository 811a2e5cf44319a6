"""The program of one decision against every schedule that there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from dlq_master.policy.priced.compared.milp import step_milp
from dlq_master.policy.priced.greedy.batch import ScheduleRows
from dlq_master.policy.priced.greedy.construct import construct
from dlq_master.policy.priced.greedy.greedy import GREEDY
from dlq_master.policy.priced.greedy.postprocess import give_idle
from dlq_master.policy.priced.greedy.proxy import cost
from dlq_master.policy.priced.rules import Rules
from dlq_master.policy.priced.schedules import faults
from dlq_master.policy.priced.situation import Situation
from support.extent import spread
from unit.master.policy.priced.drawing import PLAIN, chance, drawn

RULES = Rules(rho=3.0, mu=50.0)


def every(asked: Situation) -> Iterator[ScheduleRows]:
    """All schedules of jobs on nodes in which min(N, J) nodes are used."""
    shapes = [(-1, 0), *((node, gpus) for node in range(asked.nodes) for gpus in range(1, 5))]
    for chosen in product(shapes, repeat=len(asked.jobs)):
        made = ScheduleRows.empty(asked, 1)
        for number, (node, gpus) in enumerate(chosen):
            if node >= 0:
                made.node[0, number], made.gpus[0, number] = node, gpus
                made.kind[0, node] = 0
                made.used[0, node] += gpus
        possible = made.used.max() <= 4 and np.isfinite(made.times()[made.runs]).all()
        if possible and (made.used > 0).sum() == min(asked.nodes, len(asked.jobs)):
            yield made


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_cheapest_of_all_schedules(seed: int) -> None:
    asked = drawn(seed, 3, 2, catalogue=PLAIN)
    solved = step_milp(asked, RULES)
    assert solved.cost - solved.bound <= 1e-6 * max(1.0, solved.cost), "nothing is better"
    assert solved.schedule is not None
    assert faults(asked, solved.schedule) == []
    best = min(cost(made, RULES)[0] for made in every(asked))
    assert solved.cost == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("seed", spread(range(3), 1))
def test_no_greedy_schedule_is_cheaper_on_table_2(seed: int) -> None:
    asked = drawn(seed, 4, 2)
    solved = step_milp(asked, RULES)
    batch = construct(asked, GREEDY._replace(iterations=40, alpha=0.5), chance())
    give_idle(batch)
    assert solved.cost - solved.bound <= 1e-6 * max(1.0, solved.cost), "nothing is better"
    assert solved.cost <= cost(batch, RULES).min() + 1e-6
