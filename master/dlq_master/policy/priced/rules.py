"""How the methods of the path relinking paper are read: by its text, or by its released program.

The released program (ai-sprint-eu-project/GPUScheduler) differs from the text in ways that move its
costs; `Reading.REFERENCE` has them, to be compared with it:

* a configuration is drawn evenly from the best `alpha` of them, not by the inverse of its cost;
* of two neighbours in the queue the one with the larger weight is moved back more often;
* f_OBJ counts the price of all open nodes until the first job ends. To this come the tardiness at
  that instant and 100 times the worst tardiness of waiting jobs. It has no idle GPUs (mu), and no
  H;
* in f-bar a job costs its part of the node, by the GPUs in use;
* the GPUs that are idle in the end go to one job of one node;
* a job that ends on its due date is in time.

Its pool of elite solutions has one place (a constant is shadowed), so that nothing is ever relinked
there: `elite=1`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class PaperReading(StrEnum):
    """Whose rules."""

    PAPER = "paper"
    REFERENCE = "reference"


class Proxy(StrEnum):
    """The objective that every decision minimises, or maximises (sections 3.1 and 3.2)."""

    COST = "cost"  # f_OBJ
    EFFICIENCY = "efficiency"  # f-bar


class Rules(NamedTuple):
    """`iterations`: MaxIt_RG, the greedy one among them. `elite`: sigma. `alpha`, `beta`: shares of
    the configurations and of the nodes that are drawn from. `swap`: how far the chance to swap
    neighbours lies from one half. `rho`: of worst-case tardiness; `mu`: $ per idle GPU. `moves`:
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
        """The reference's rules."""
        return self.reading is PaperReading.REFERENCE
