"""Figure 7 of the Tiresias paper: three jobs on two GPUs, decided anew in every unit of time."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup

JOBS = ((2, 2), (1, 8), (2, 6))  # GPUs, time
EVERY_UNIT = ("place=count", "term_s=1", "save_s=0", "resume_s=0")
EVERY_LEVEL = "thresholds=" + ",".join(map(str, range(1, 12)))


def schedule(policy: str, *settings: str) -> list[tuple[tuple[float, float], ...]]:
    """When each job held its GPUs."""
    (chosen,) = read_settings([policy], [*EVERY_UNIT, *settings])
    rows = [
        TraceJob(job_id=str(number), submit_time_s=0, num_gpus=gpus, duration_s=duration_s)
        for number, (gpus, duration_s) in enumerate(JOBS, start=1)
    ]
    cluster = ClusterSpec(name="two", groups=(NodeGroup(count=1, gpus=2),), typed=False)
    outcomes = replay(Trace.of("7", rows), cluster, chosen).outcomes
    return [tuple((span.begin_s, span.end_s) for span in outcome.spans) for outcome in outcomes]


def ends(spans: list[tuple[tuple[float, float], ...]]) -> list[float]:
    return [of_job[-1][1] for of_job in spans]


def units(spans: list[tuple[tuple[float, float], ...]]) -> list[int]:
    """Which job runs in each unit; no two ever fit together."""
    return [
        1 + next(job for job, of_job in enumerate(spans) if any(a <= t < b for a, b in of_job))
        for t in range(16)
    ]


def test_srsf_runs_one_after_the_other() -> None:
    assert schedule("srsf") == [((0, 2),), ((2, 10),), ((10, 16),)]  # 9.33 on average


def test_las_takes_turns() -> None:
    found = schedule("tiresias-las", EVERY_LEVEL, "order=first-start")
    assert units(found) == [1, 2, 3, 2, 1, 2, 3, 2, 2, 3, 2, 2, 3, 2, 3, 3]
    assert sum(ends(found)) / 3 == pytest.approx(11.67, abs=0.005)


@pytest.mark.parametrize("settings", [("index=sup",), ("index=fixed", "quantum=12")])
def test_gittins_never_interrupts_what_has_begun(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """9.33, as Pseudocode 1 gives it; the 10 that is printed takes S where S - a is meant."""
    history = tmp_path / "appendix_c.csv"
    history.write_text("duration\n4\n8\n12\n")
    settings = (*settings, "thresholds=12", "last=index", f"history={history}")
    assert schedule("tiresias-gittins", *settings) == [((0, 2),), ((2, 10),), ((10, 16),)]
