"""The Hierarchical Method of the same authors (SYNASC 2020), the paper's main rival.

Jobs are dealt round robin, in the order of submission, to K = N / 5 local controllers with five
nodes each. A controller solves (P1) for its jobs and nodes (`milp`) to a gap of 5 %. The paper used
Gurobi. dlq uses HiGHS with a limit of branches, so that equal situations give equal schedules. A
controller uses the greedy method if its program is too large, or has no schedule within its
branches.

Programs grow with jobs x nodes x configurations. With the eight types of Table 2 a controller of 50
jobs has 7,500 choices, and takes 1 to 2 s.
"""

from __future__ import annotations

from dlq_master.model.late import np
from dlq_master.policy.priced.compared.milp import Effort, step_milp
from dlq_master.policy.priced.greedy.greedy import greedy
from dlq_master.policy.priced.rules import Rules
from dlq_master.policy.priced.situation import EMPTY, Grant, Schedule, Situation

NODES = 5  # of one controller
EFFORT = Effort(limit_s=60.0, branches=500, gap=0.05)
MOST_CHOICES = 20_000  # x of one program


def hierarchical(
    situation: Situation,
    draw: np.random.Generator,
    *,
    rho: float = 100.0,
    mu: float = 1.0,
    branches: int = EFFORT.branches,
    limit_s: float = EFFORT.limit_s,
) -> Schedule:
    """The schedules of all controllers together. Uses no random numbers."""
    rules, effort = Rules(rho=rho, mu=mu), EFFORT._replace(branches=branches, limit_s=limit_s)
    types: dict[int, int] = {}
    grants: dict[int, Grant] = {}
    first = 0
    for part in parts(situation):
        made = _solved(part, rules, effort, draw)
        types |= {first + node: type_ for node, type_ in made.types.items()}
        grants |= {
            key: grant._replace(node=first + grant.node) for key, grant in made.grants.items()
        }
        first += part.nodes
    return Schedule(types, grants)


def parts(situation: Situation) -> list[Situation]:
    """The jobs and nodes of each controller. (P1) does not depend on the present schedule."""
    count = max(1, situation.nodes // NODES)
    nodes = [situation.nodes // count + (n < situation.nodes % count) for n in range(count)]
    return [
        Situation(
            situation.now_s,
            situation.jobs[n::count],
            situation.catalogue,
            nodes[n],
            EMPTY,
            situation.interval_s,
        )
        for n in range(count)
    ]


def choices(situation: Situation) -> int:
    """The most x variables of a situation's program."""
    catalogue = situation.catalogue
    shapes = sum(catalogue.types[n].gpus for n in catalogue.offered)
    return len(situation.jobs) * situation.nodes * shapes


def _solved(part: Situation, rules: Rules, effort: Effort, draw: np.random.Generator) -> Schedule:
    """A controller's schedule, by its program or by the greedy method."""
    if not part.jobs or not part.nodes:
        return EMPTY
    found = None
    if choices(part) <= MOST_CHOICES:
        found = step_milp(part, rules, effort).schedule
    return greedy(part, draw) if found is None else found
