"""Settings of the path relinking paper's methods, read by its text or by its released program.

The released program (ai-sprint-eu-project/GPUScheduler) differs from the text, and its costs with
it. `PaperReading.REFERENCE` follows the program, for comparison:

* a configuration is drawn evenly from the best `alpha` of them, not by the inverse of its cost;
* of two neighbours in the queue, the one with the larger weight is moved back more often;
* f_OBJ has the price of all open nodes until the first job ends. It adds the tardiness at that
  instant, and 100 times the worst tardiness of waiting jobs. It has no idle GPUs (mu) and no H;
* in f-bar a job pays its share of the node, by the GPUs in use;
* the GPUs that are idle in the end go to one job of one node;
* a job that ends on its due date is in time.

Its pool of elite solutions has one place, because a constant is shadowed. So it never relinks:
`elite=1`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class PaperReading(StrEnum):
    """The paper's text, or its released program."""

    PAPER = "paper"
    REFERENCE = "reference"


class Proxy(StrEnum):
    """The objective that every decision minimises, or maximises (sections 3.1 and 3.2)."""

    COST = "cost"  # f_OBJ
    EFFICIENCY = "efficiency"  # f-bar


class Rules(NamedTuple):
    """Parameters of the methods, with the paper's names.

    `iterations`: MaxIt_RG, the greedy one included. `elite`: sigma. `alpha`, `beta`: the shares of
    configurations and of nodes from which one is drawn. `swap`: the distance from 1/2 of the chance
    to swap neighbours. `rho`: the factor of worst-case tardiness. `mu`: $ per idle GPU. `moves`:
    MaxIt_PR; 0: as many as nodes.
    """

    reading: PaperReading = PaperReading.PAPER
    proxy: Proxy = Proxy.COST
    iterations: int = 1000
    elite: int = 10
    alpha: float = 0.05
    beta: float = 0.2
    swap: float = 0.05
    rho: float = 100.0
    mu: float = 1.0
    moves: int = 0

    @property
    def released(self) -> bool:
        """Whether the released program's rules hold."""
        return self.reading is PaperReading.REFERENCE
