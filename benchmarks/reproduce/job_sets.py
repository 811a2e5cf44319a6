"""The sets of jobs that results are judged on, and that constants were chosen on.

A case names both in words of `SETS`. Where a set is in both, its results are in-sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NOTHING = "no jobs"
SETS: Mapping[str, str] = MappingProxyType(
    {
        NOTHING: "a table that replays nothing",
        "own-480": "`own_480_job.csv`: 480 jobs made after Tiresias 5.1",
        "tiresias-60": "the 60 jobs of Tiresias' simulator",
        "tiresias-drawn": "workloads after Tiresias 5.1, seeds 51, 4801 and 4802",
        "philly": "the Philly log, 82,247 jobs; the short form has drawn jobs like it",
        "chronus-drawn": "Chronus' mixes over drawn run times, seeds 7501 to 7503",
        "chronus-sets": "jobs that come at once for Chronus' program, seeds 7301 to 7303",
        "chronus-placed": "jobs of many widths for the placements, seeds 0 to 5",
        "chronus-released": "the SLO and MIX2 files that Chronus' authors released",
        "kept-fitted": "deadlines with errors in estimates, for choosing",
        "kept-check": "deadlines with errors in estimates, seeds 8701 to 8703",
        "chances-fitted": "other rows, days and seeds of such jobs, for choosing",
        "audited": "parts of Chronus' MIX1 and three days of Philly, from an audit",
        "aryl-drawn": "workloads after Aryl 7.1, seeds 4, 9 and 16",
        "aryl-testbed": "jobs as on Aryl's testbed (7.5), seeds 201 to 210",
        "aryl-testbed-fitted": "jobs as on Aryl's testbed, seeds 101 to 108, for choosing",
        "pollux-files": "the four workloads in `tests/data/traces/pollux`",
        "gpuaas-files": "the five instances in `tests/data/traces/gpuaas`",
        "gpuaas-others": "rented nodes, drawn from seeds that no benchmark has",
        "gpuaas-8101": "rented nodes, seeds 8101 to 8203",
        "gpuaas-9101": "rented nodes by rate and size, seeds 9101 to 9110",
        "gpuaas-9201": "six jobs as in Table 3 of GPU as a Service, seeds 9201 to 9210",
        "matrix": "the workloads of the matrix, seeds 7601 to 7603",
        "arrivals-9001": "three days of arrivals at twice the capacity, seed 9001",
        "arrivals-7401": "the same, seed 7401",
        "arrivals-7402": "the same, seed 7402",
        "reclaims": "lent servers that are asked back (`planning/reclaim_cases.py`)",
        "elastic-sizes": "elastic jobs at one instant and over time (`papers/elastic_cases.py`)",
        "selector-sets": "jobs with deadlines at one instant, seeds 7001 to 7301",
        "placed-at-once": "jobs that start together (`planning/placement_cases.py`)",
        "small-fitted": "small instances with an exact optimum, for choosing",
        "small-held-out": "small instances with an exact optimum, for judging",
    }
)
