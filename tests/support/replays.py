"""The same trace in the simulator and in a master: every attempt of the one, a configuration of the
other, and how close they are.
"""

from __future__ import annotations

from typing import Any

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import (
    JobsConfig,
    LeaseConfig,
    LoansConfig,
    MasterConfig,
    NodesConfig,
    RetentionConfig,
    SchedulerConfig,
)
from dlq_master.model.jobs.job_steps import Placed
from dlq_master.model.plan import Start
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import ReplaySettings
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from support.stepped_daemon import Run

CLOSE_S = 1.0


def simulated(trace: Trace, settings: ReplaySettings, *groups: NodeGroup) -> list[Run]:
    """Every attempt of the simulator on these nodes."""
    where: dict[tuple[int, int], tuple[tuple[str, int], ...]] = {}

    def watch(_cluster: object, decided: Any, _now_s: object) -> None:
        for event, job_id, _, _, change in decided.happened:
            if isinstance(event, Placed) and isinstance(change, Start):
                slots = change.allocation.slots
                where[job_id, event.attempt] = tuple([(str(s.node_id), s.mask) for s in slots])

    run = Replay(trace, ClusterSpec(name="", groups=groups), settings, watch=watch)
    run.run()
    found = []
    for job_id, outcome in sorted(run.outcomes.items()):
        for number, span in enumerate(outcome.spans, start=1):
            last = number == len(outcome.spans)
            tried = span.gpus < outcome.job.num_gpus
            how = "succeeded" if last or tried else "preempted"
            held = where[job_id, number]
            found.append(Run(outcome.job.job_id, number, held, span.begin_s, span.end_s, how))
    return found


def a_config(
    policy: str, settings: dict[str, str], like: ReplaySettings, loans: LoansConfig | None = None
) -> MasterConfig:
    """A master that decides as the replay does."""
    terms = like.terms
    # Every job says how long it runs, so nothing has to be kept for trials.
    declared = {"know": "unknown"} if like.policy.promises is not None else {}
    return MasterConfig(
        scheduler=SchedulerConfig(policy, declared | settings),
        nodes=NodesConfig(start_grace=Seconds(0.0)),
        loans=loans or LoansConfig(),
        jobs=JobsConfig(concurrent_saves=1_000),
        retention=RetentionConfig(ended_kept=Seconds(1e9)),
        lease=LeaseConfig(
            be_term=Seconds(terms.be_term_s),
            slo_term=Seconds(terms.slo_term_s),
            save_lead=Seconds(terms.save_lead_s),
            resume=Seconds(terms.resume_s),
        ),
    )


def compare(found: list[Run], expected: list[Run]) -> None:
    """The same attempts on the same GPUs, that end alike, each within a second."""
    assert [run[:3] for run in found] == [run[:3] for run in expected]
    assert [run.how for run in found] == [run.how for run in expected]
    late = max(
        max(abs(mine.begin_s - theirs.begin_s), abs(mine.end_s - theirs.end_s))
        for mine, theirs in zip(found, expected, strict=True)
    )
    assert late <= CLOSE_S, f"{late} s apart"
