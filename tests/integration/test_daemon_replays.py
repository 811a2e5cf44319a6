"""The daemon and the simulator decide the same: same starts, same stops, same GPUs, at the same
instants.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.reward import strict
from dlq_master.model.plan import Reserve
from dlq_master.policy.transit.taking import Taking
from dlq_master.policy.turn import Decided
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import ReplaySettings, read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.world import sizes_of
from support.extent import spread, times
from support.measured_daemon import MeasuredDaemon
from support.replays import a_config, compare, simulated
from support.stepped_daemon import SteppedDaemon, VirtualJob

pytestmark = pytest.mark.integration

DATA = Path(__file__).parents[1] / "data" / "traces"
# A session hands over the reports of its node one after the other, and the master decides in
# between. In the simulator all that leaves at one instant has left: policies that preempt agree
# where a node has one rank.
TWO, EIGHT = (2, 4), (8, 1)  # nodes, and GPUs of each
# Of a job that was paused the simulator knows how long it worked, and the master how long it had
# GPUs: where that decides, pauses are free of charge.
BY_RUN_TIME = ("srtf", "chronus")
FREE = {"save_s": "0", "resume_s": "0"}
EVERY_PROMISE = {"margin": "0", "be_floor": "0", "guarantee": "fitting", "place": "consolidate"}
CHOICES: list[tuple[str, dict[str, str]]] = [
    ("fifo", {}),
    ("best-effort", {"place": "spread"}),
    ("tiresias-las", {"thresholds": "400,4000", "min_run": "4"}),
    ("tiresias-gittins", {"thresholds": "400", "refresh": "5"}),
    ("srtf", {"max_preemptions": "1"}),
    ("timeslice", {}),
    ("edf-preemptive", {}),
    ("aryl", {}),
    ("chronus", EVERY_PROMISE),
]
# These take GPUs at any event.
AT_ONCE: list[tuple[str, dict[str, str]]] = [
    ("tiresias-las", {"thresholds": "400,4000"}),
    ("tiresias-gittins", {"thresholds": "400", "refresh": "5", "min_run": "4"}),
    ("srtf", {"min_run": "0", "max_preemptions": "2"}),
]
# Nobody says how long a job runs: it is tried on GPUs that are for that, wide ones on one node and
# on two (chronus), or measured where it runs (dlq).
MEASURED = ("chronus", "dlq")
# Under these, elastic jobs grow and shrink.
RESIZED = [("dlq", {"cooldown_s": "300"}), ("aryl", {}), ("afs", {})]


def a_trace(jobs: int = times(25, 40)) -> Trace:
    """Jobs of a trace of the papers, at instants that no two share; every third has a deadline."""
    rows = []
    for number, row in enumerate(read_trace(str(DATA / "tiresias_60_job.csv")).jobs[:jobs]):
        work_s = row.duration_s * 2.0 + number * 0.37
        due: dict[str, Any] = {"kind": "strict", "deadline_s": 4 * work_s + 900.0}
        rows.append(
            TraceJob(
                job_id=f"job-{number:02d}",
                submit_time_s=row.submit_time_s / 2.0 + number * 0.173,
                num_gpus=min(row.num_gpus, 8),
                duration_s=work_s,
                **(due if number % 3 == 0 else {}),
            )
        )
    return Trace.of("a trace", rows)


@pytest.mark.parametrize(
    ("policy", "settings"), spread(CHOICES, 2), ids=[name for name, _ in CHOICES]
)
async def test_the_daemon_decides_what_the_simulator_decides(
    policy: str, settings: dict[str, str], tmp_path: Path
) -> None:
    trace = a_trace()
    words = settings | (FREE if policy in BY_RUN_TIME else {})
    (chosen,) = read_settings([policy], [f"{key}={value}" for key, value in words.items()])
    nodes, gpus = EIGHT if chosen.policy.taking is not Taking.NEVER else TWO
    expected = simulated(trace, chosen, own(nodes, gpus))
    names = {f"node-{number}": gpus for number in range(1, nodes + 1)}
    jobs = [
        VirtualJob(
            row.job_id, float(row.submit_time_s), row.num_gpus, float(row.duration_s),
            () if row.deadline_s is None else strict(float(row.deadline_s)),
        )
        for row in trace.jobs
    ]  # fmt: skip
    async with SteppedDaemon(
        tmp_path,
        a_config(policy, settings, chosen),
        names,
        save_s=float(chosen.save_s),
        resume_s=float(chosen.resume_s),
    ) as daemon:
        found = await daemon.replay(jobs)
    compare(found, expected)


async def test_the_daemon_gives_last_chances_as_the_simulator_does(tmp_path: Path) -> None:
    """At the beginnings of slots, and at boundaries within them."""
    settings = {"margin": "0", "place": "consolidate"}
    world = settings | FREE | {"slo_term_s": "1200"}
    (chosen,) = read_settings(["dlq"], [f"{key}={it}" for key, it in world.items()])
    trace = Trace.of("near deadlines", [hurried_row(number) for number in range(times(30, 45))])
    expected = simulated(trace, chosen, own(*EIGHT))
    within = [at_s % chosen.terms.slo_term_s > 0.0 for at_s in chances(trace, chosen, own(*EIGHT))]
    assert within.count(True) >= 3, "or nobody enters a slot that has begun"
    assert within.count(False) >= 2, "or nobody begins with a slot"
    jobs = [
        VirtualJob(
            row.job_id, float(row.submit_time_s), row.num_gpus, float(row.duration_s),
            () if row.deadline_s is None else strict(float(row.deadline_s)),
        )
        for row in trace.jobs
    ]  # fmt: skip
    names = {f"node-{number}": 1 for number in range(1, 9)}
    config = a_config("dlq", settings, chosen)
    async with SteppedDaemon(tmp_path, config, names, save_s=0.0, resume_s=0.0) as daemon:
        found = await daemon.replay(jobs)
    compare(found, expected)


def hurried_row(number: int) -> TraceJob:
    """Two of three have a deadline that most cannot be promised."""
    work_s = 500.0 + 611.0 * (number % 7) + number * 0.37
    due: dict[str, Any] = {"kind": "strict", "deadline_s": 2.0 * work_s + 300.0}
    return TraceJob(
        job_id=f"job-{number:02d}",
        submit_time_s=number * 351.3,
        num_gpus=1 + number % 3,
        duration_s=work_s,
        **(due if number % 3 else {}),
    )


def chances(trace: Trace, chosen: ReplaySettings, group: NodeGroup) -> list[float]:
    """When the simulator gives a slot to a job without a promise."""
    found: list[float] = []

    def watch(_cluster: object, decided: Decided, now_s: float) -> None:
        reserves = [one.change for one in decided.happened if isinstance(one.change, Reserve)]
        given = [one for one in reserves if one.band is Band.SLO and one.promised is None]
        found.extend([float(now_s)] * len(given))

    replay(trace, ClusterSpec(name="", groups=(group,)), chosen, watch=watch)
    return found


@pytest.mark.parametrize(
    ("policy", "settings"), spread(AT_ONCE, 1), ids=[name for name, _ in AT_ONCE]
)
async def test_the_daemon_takes_gpus_at_once_as_the_simulator_does(
    policy: str, settings: dict[str, str], tmp_path: Path
) -> None:
    """On arrivals, completions, demotions, and when a job has run for its minimum."""
    words = settings | {"preempt": "at-once"}
    world = words | (FREE if policy in BY_RUN_TIME else {})
    (chosen,) = read_settings([policy], [f"{key}={value}" for key, value in world.items()])
    trace = a_trace()
    expected = simulated(trace, chosen, own(*EIGHT))
    jobs = [
        VirtualJob(row.job_id, float(row.submit_time_s), row.num_gpus, float(row.duration_s))
        for row in trace.jobs
    ]
    async with SteppedDaemon(
        tmp_path,
        a_config(policy, words, chosen),
        {f"node-{number}": 1 for number in range(1, 9)},
        save_s=float(chosen.save_s),
        resume_s=float(chosen.resume_s),
    ) as daemon:
        found = await daemon.replay(jobs)
    stopped = [run for run in found if run.how == "preempted"]
    between = [run for run in stopped if (run.end_s - chosen.save_s) % chosen.terms.be_term_s > 1.0]
    assert len(between) >= 3, "or nothing was taken between boundaries"
    compare(found, expected)


def own(nodes: int, gpus: int) -> NodeGroup:
    """The cluster's own nodes."""
    return NodeGroup(name="node", count=nodes, gpus=gpus)


def elastic_rows(jobs: int = 24) -> list[TraceJob]:
    """Half of them may run on as many GPUs as there are."""
    rows = []
    for number in range(jobs):
        gpus = 1 + number % 2
        stretched = number % 4 < 2
        rows.append(
            TraceJob(
                job_id=f"job-{number:02d}",
                submit_time_s=number * 251.3,
                num_gpus=gpus,
                duration_s=900.0 + 794.0 * (number % 5) + number * 0.37,
                min_workers=gpus if stretched else None,
                max_workers=8 if stretched else None,
            )
        )
    return rows


@pytest.mark.parametrize(
    ("policy", "settings"), spread(RESIZED, 1), ids=[name for name, _ in RESIZED]
)
async def test_the_daemon_resizes_as_the_simulator_does(
    policy: str, settings: dict[str, str], tmp_path: Path
) -> None:
    (chosen,) = read_settings([policy], [f"{key}={it}" for key, it in (settings | FREE).items()])
    rows = elastic_rows()
    expected = simulated(Trace.of("elastic", rows), chosen, own(*EIGHT))
    jobs = [
        VirtualJob(
            row.job_id, float(row.submit_time_s), row.num_gpus, float(row.duration_s), sizes=sizes_of(row),  # noqa: E501
        )
        for row in rows
    ]  # fmt: skip
    names = {f"node-{number}": 1 for number in range(1, 9)}
    config = a_config(policy, settings, chosen)
    async with SteppedDaemon(tmp_path, config, names, save_s=0.0, resume_s=0.0) as daemon:
        found = await daemon.replay(jobs)
        resized = sum(job.resizes for job in daemon.loop.published.jobs())
    assert resized >= 5, "or nothing was tried"
    compare(found, expected)


@pytest.mark.long(
    "integration/test_daemon_replays.py::test_the_daemon_decides_what_the_simulator_decides",
    "unit/master/control/trials/test_control_trials.py",
    "sim/test_profiling_replays.py",
)
@pytest.mark.parametrize("policy", MEASURED)
async def test_the_daemon_measures_as_the_simulator_does(policy: str, tmp_path: Path) -> None:
    """Trials, estimates, and what is promised by them."""
    words = EVERY_PROMISE | {"know": "profiled", "profile_s": "100"}
    world = words | FREE | {"noise": "0"}
    (chosen,) = read_settings([policy], [f"{key}={value}" for key, value in world.items()])
    trace = a_trace()
    expected = simulated(trace, chosen, own(*EIGHT))
    jobs = [
        VirtualJob(
            row.job_id, float(row.submit_time_s), row.num_gpus, float(row.duration_s),
            () if row.deadline_s is None else strict(float(row.deadline_s)), told_s=0.0,
        )
        for row in trace.jobs
    ]  # fmt: skip
    async with MeasuredDaemon(
        tmp_path,
        a_config(policy, words, chosen),
        {f"node-{number}": 1 for number in range(1, 9)},
        save_s=0.0,
        resume_s=0.0,
        profile_s=100.0,
        paces={row.job_id: chosen.knowledge.paces(row, row.num_gpus) for row in trace.jobs},
    ) as daemon:
        found = await daemon.replay(jobs)
    tried = [
        run
        for run in found
        if len(run.gpus) < next(job.gpus for job in jobs if job.name == run.job)
    ]
    assert bool(tried) == (policy == "chronus")
    compare(found, expected)
