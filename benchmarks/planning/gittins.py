"""The Gittins index of a long history: how long it takes to index, and to look up.

    python -m benchmarks.planning.gittins [--samples 100000] [--json]

Services are lognormal and all distinct. CPU time of this process, the best of five; a lookup is the
mean of 200,000 at random services, the loop around it included. Goals: indexed in 200 ms, the index
over all quanta looked up in 1 us.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from random import Random

from benchmarks.support.report import Report
from dlq_master.policy.order.gittins import ServiceDistribution

LOOKUPS = 200_000
QUANTUM_GPU_S = 3200.0


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--samples", type=int, default=100_000, help="jobs that have ended")
    report = Report.begin("planning.gittins", parser)
    draw = Random(1)
    services = [draw.lognormvariate(8, 2) for _ in range(report.options.samples)]
    attained = [draw.lognormvariate(8, 2) * draw.random() for _ in range(LOOKUPS)]
    known = ServiceDistribution(services)
    index_s = best(partial(ServiceDistribution, services))
    sup_s = best(lambda: [known.sup_index(at) for at in attained])
    fixed_s = best(lambda: [known.fixed_index(at, QUANTUM_GPU_S) for at in attained])
    report.figure(f"{len(services):,} services, indexed", index_s * 1e3, "ms", at_most=200)
    report.figure("lookup, the best quantum", sup_s / LOOKUPS * 1e6, "us", at_most=1)
    report.figure("lookup, a fixed quantum", fixed_s / LOOKUPS * 1e6, "us")
    report.end()


def best(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of five."""
    taken = []
    for _ in range(5):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


if __name__ == "__main__":
    main()
