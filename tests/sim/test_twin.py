"""The twin of a frozen state: who starts when is what the replay makes of it when it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.view import View
from dlq_master.planner.snapshot import read, take
from dlq_simulator.replay.engine import Replay
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.twin.world import TwinWorld
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.course import Seconds
from support.extent import spread

DATA = Path(__file__).parents[1] / "data" / "traces"
COSTS = ("term_s=60", "save_s=7", "resume_s=5")
CLUSTER = ClusterSpec(name="2x4", groups=(NodeGroup(count=2, gpus=4),))
CHOICES = (
    ("fifo",),
    ("srtf", *COSTS),
    ("tiresias-las", "thresholds=60", *COSTS),
    ("tiresias-las", "thresholds=60,300", "promote_knob=2", *COSTS),
    ("edf", *COSTS),
    ("tiresias-gittins", "thresholds=60,200", "refresh=2", *COSTS),
    ("chronus", *COSTS),
    ("dlq", *COSTS),
    ("dlq", "slo_term_s=240", *COSTS),
    ("aryl", *COSTS),
    ("chronus", "know=profiled", "profile_s=100", "noise=0", *COSTS),
)


class Recorded(Replay):
    """Remembers every start, and leaves a snapshot behind at an instant."""

    frozen: bytes | None = None
    frozen_s: Seconds = 0
    stop_s: Seconds = 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # as they come
        self.begun: list[tuple[Seconds, JobId]] = []

    def _start(self, job_id, number, allocation, now_s):  # type: ignore[no-untyped-def]
        self.begun.append((now_s, job_id))
        super()._start(job_id, number, allocation, now_s)

    def _turn(self, now_s: Seconds) -> None:
        super()._turn(now_s)
        if self.frozen is None and now_s >= self.stop_s:
            self.frozen, self.frozen_s = take(View(self.cluster, now_s), self.policy), now_s


def a_trace(last_s: int) -> Trace:
    """Sixty jobs, all submitted by then; some have deadlines, some are elastic."""
    rows = read_trace(str(DATA / "tiresias_60_job.csv")).jobs
    span_s = rows[-1].submit_time_s - rows[0].submit_time_s
    return Trace.of(
        "sixty",
        [
            TraceJob(
                job_id=row.job_id,
                submit_time_s=round((row.submit_time_s - rows[0].submit_time_s) * last_s / span_s),
                num_gpus=min(8, row.num_gpus),
                duration_s=row.duration_s,
                kind="strict" if number % 3 == 0 else "be",
                deadline_s=4 * row.duration_s + 300 if number % 3 == 0 else None,
                min_workers=1 if number % 4 == 1 else None,
                max_workers=min(8, 2 * row.num_gpus) if number % 4 == 1 else None,
            )
            for number, row in enumerate(rows)
        ],
    )


@pytest.mark.parametrize("after_s", spread([600, 1_073, 1_500], 1))
@pytest.mark.parametrize("choice", spread([(choice,) for choice in CHOICES], 5), ids=" ".join)
def test_the_twin_of_a_state_starts_whom_the_replay_starts(
    choice: tuple[str, ...], after_s: int
) -> None:
    (settings,) = read_settings(choice[:1], choice[1:])
    trace = a_trace(last_s=600)
    replay = Recorded(trace, CLUSTER, settings)
    replay.stop_s = after_s
    replay.run()
    assert replay.frozen is not None
    actual: dict[JobId, Seconds] = {}
    for start_s, job_id in replay.begun:
        if start_s > replay.frozen_s:
            actual.setdefault(job_id, start_s)

    def work(job: Job, _done_s: float) -> float:
        return trace.jobs[job.job_id - 1].duration_s

    shot = read(replay.frozen)
    view, policy = shot.look()
    twin = TwinWorld(view.cluster, policy, shot.now_s, work)
    waiting = set(twin.waiting)
    twin.run(float("inf"))
    assert len(waiting) > 10, "the cluster is not full: nothing is compared"
    assert {job_id: twin.starts[job_id] for job_id in waiting} == pytest.approx(
        {job_id: actual[job_id] for job_id in waiting}
    )
