"""The cost of one method on a case of rented nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from benchmarks.papers import vm_allocation
from dlq_master.policy.priced.compared.first_principle import edf
from dlq_master.policy.priced.greedy.greedy import PATH_RELINKING, greedy, path_relinking
from dlq_master.policy.priced.marginal import marginal
from dlq_master.policy.priced.situation import Solver
from dlq_simulator.priced.world import World


def renting(method: str, nodes: int, load: float, seed: int, iterations: int) -> float:
    """The cost of nodes and of lateness."""
    rules = PATH_RELINKING._replace(iterations=iterations)
    solvers: Mapping[str, Solver] = {
        "default": marginal,
        "greedy": greedy,
        "EDF": edf,
        "path relinking": partial(path_relinking, rules=rules),
    }
    return World(vm_allocation.instance(nodes, load, seed), solvers[method]).run().total
