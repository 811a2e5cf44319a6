"""Rules of [[idle]] and [stall] over 1,000 simulated jobs with planted idlers, hogs and hung ranks.

    python -m benchmarks.node.idle_jobs [--jobs N] [--hours H] [--seed N] [--json]

The agent's code sums samples and the master's code judges, on virtual time. There is a sample every
second, a heartbeat and a look every five, and a report every thirty. Lines are cut for up to two
minutes, agents start again, and reports come late. Of 1,000 jobs:

- 100 stop to use their GPUs after a while, but for a flicker of 1 %;
- 50 are hogs: a burst of two seconds in five minutes, to look busy;
- 100 work in bursts of half a minute or more, every two to five minutes;
- 100 load data for 20 of 40 minutes, and tell no steps;
- 150 tell steps, and hardly use their GPUs;
- 100 gangs of 4 ranks tell steps until one rank hangs;
- the others work.

These are goals of issue 25. No idler and no hog is missed for longer than its window and a minute.
At most one other job in 1,000 is paused. A rule in dry run changes nothing. A stall is found within
twice the pace and 30 s, while its line stands. The goal of the right rank is ours.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.support.report import Report
from dlq_master.control.activity_config import IdleConfig, StallConfig, idle_rules
from dlq_master.control.attempts import idleness, stalls, stragglers
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import ToldGpu
from dlq_master.control.stimuli.nodes import Beat, ToldLoad
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_nodeagent.devices.load import LoadMeter
from dlq_nodeagent.devices.port import DeviceSample

WINDOW_S, REPORT_S, BEAT_S = 1800.0, 30.0, 5
KINDS = {"idler": 100, "hog": 50, "bursts": 100, "loading": 100, "steps": 150, "hung": 100}
RANKS = 4
Use = Callable[[int], int]  # second -> percent


@dataclass
class Simulated:
    """A job on nodes of its own, each with one GPU."""

    number: int
    kind: str
    use: Use
    idle_from: int | None = None
    pace: int = 0  # seconds of a step; 0: it tells none
    hangs_at: int | None = None
    hung_rank: int = 0
    meter: LoadMeter = field(default_factory=lambda: LoadMeter(0.0))
    report_at: float = 0.0
    cut_until: float = 0.0
    steps: list[int] = field(default_factory=list)
    stepped_at: float = 0.0
    silent: int = 0  # seconds of a cut line since then

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(JobId(self.number), 1)

    @property
    def node_id(self) -> NodeId:
        return NodeId(f"n{self.number}")


class Master:
    """The state that the master's code looks at, and what it has done."""

    def __init__(self, jobs: list[Simulated], rules: list[IdleConfig]) -> None:
        self.now_s = 0.0
        self.notes: list[tuple[float, str, int, dict[str, Any]]] = []
        self.done: list[tuple[float, int, str]] = []
        self.of_node = {job.node_id: job.key for job in jobs}
        attempts = {job.key: _attempt(job) for job in jobs}
        cluster = SimpleNamespace(
            nodes={},
            attempts=attempts,
            attempts_on=lambda node_id: (self.of_node[node_id],),
            jobs={job.key.job_id: _job(job) for job in jobs},
        )
        self.beats: dict[JobId, Beat] = {}
        self.state = SimpleNamespace(
            config=SimpleNamespace(interactive=SimpleNamespace(queue="")),
            cluster=cluster,
            jobs=SimpleNamespace(beats=self.beats),
            attempts=SimpleNamespace(
                idleness=idleness.Idleness(idle_rules(rules, ["default"])),
                stalls=stalls.Stalls(StallConfig().rule()),
                stragglers=stragglers.Stragglers(),
            ),
        )

    def note(self, kind: str, /, **facts: Any) -> None:
        """As a turn notes an event."""
        key = facts.get("key")
        job_id = facts.get("job_id") if key is None else key.job_id
        self.notes.append((self.now_s, kind, cast("int", job_id), facts))

    def step_job(self, job_id: JobId, event: object, **_: Any) -> None:
        """A pause or a cancel."""
        self.done.append((self.now_s, job_id, type(event).__name__))

    @property
    def turn(self) -> Turn:
        return cast("Turn", self)


def _attempt(job: Simulated) -> SimpleNamespace:
    slot = SimpleNamespace(node_id=job.node_id, gpu_indices=(0,), core_indices=())
    allocation = SimpleNamespace(slots=(slot,), node_ids=(job.node_id,), width=1)
    ranks = [SimpleNamespace(node_id=f"{job.node_id}-{rank}") for rank in range(RANKS)]
    return SimpleNamespace(
        key=job.key,
        state=AttemptState.RUNNING,
        stop_cause=None,
        epoch=1,
        lease=SimpleNamespace(allocation=allocation),
        ranks=ranks if job.kind == "hung" else ranks[:1],
        # A checkpoint of a while ago: a pause loses nothing.
        checkpoint=SimpleNamespace(time_s=0.0),
        started_time_s=0.0,
        carried_s=0.0,
        is_out=False,
        resume_from=None,
        ended_time_s=None,
    )


def _job(job: Simulated) -> SimpleNamespace:
    return SimpleNamespace(
        job_id=job.key.job_id,
        user="ada",
        team="",
        queue="default",
        name=job.kind,
        check="",
        hold=None,
        live_key=job.key,
        live_attempt=1,
        rules=SimpleNamespace(attended=False, saves=True),
        keeps_work=True,
        checkpoint=None,
        saves=(30.0,),
        reduced=False,
        lost_gpu_s=0.0,
    )


def planted(count: int, draw: random.Random, end: int) -> Iterator[Simulated]:
    """The jobs, each with its own load."""
    kinds = [kind for kind, of_1000 in KINDS.items() for _ in range(of_1000 * count // 1000)]
    kinds += ["works"] * (count - len(kinds))
    for number, kind in enumerate(kinds, 1):
        made = Simulated(number, kind, _use(kind, draw))
        made.report_at = draw.uniform(0.0, REPORT_S)
        if kind in ("idler", "hog"):
            made.idle_from = draw.randrange(600, end - int(WINDOW_S) - 900)
            made.use = _until(made.idle_from, made.use, draw)
        if kind in ("steps", "hung"):
            made.pace = draw.randrange(1, 120)
            made.steps = [0] * (RANKS if kind == "hung" else 1)
        if kind == "hung":
            made.hangs_at = draw.randrange(10 * made.pace + 60, end - 3 * made.pace - 120)
            made.hung_rank = draw.randrange(RANKS)
        yield made


def _use(kind: str, draw: random.Random) -> Use:
    phase, high = draw.randrange(3600), draw.randrange(40, 100)
    if kind == "hog":
        return lambda second: 90 if (second + phase) % 300 < 2 else 0
    if kind == "bursts":
        long, every = draw.randrange(30, 61), draw.randrange(120, 301)
        return lambda second: 90 if (second + phase) % every < long else 0
    if kind == "loading":
        return lambda second: high if (second + phase) % 2400 < 1200 else 0
    if kind == "steps":
        return lambda second: 1 if (second + phase) % 60 == 0 else 0
    if kind == "idler":
        return lambda second: 1 if (second + phase) % 7 == 0 else 0
    return lambda second: high


def _until(begin: int, after: Use, draw: random.Random) -> Use:
    high = draw.randrange(40, 100)
    return lambda second: high if second < begin else after(second)


def run(jobs: list[Simulated], rules: list[IdleConfig], draw: random.Random, end: int) -> Master:
    """So many seconds of all of them."""
    master = Master(jobs, rules)
    for second in range(1, end):
        master.now_s = float(second)
        for job in jobs:
            _live(master, job, second, draw)
        stalls.watch(master.turn)
    return master


def _live(master: Master, job: Simulated, second: int, draw: random.Random) -> None:
    job.meter.take((DeviceSample("a", job.use(second)),), float(second))
    if draw.random() < 1 / 7200:
        job.cut_until = second + draw.uniform(10.0, 120.0)
    if draw.random() < 1 / 14400:  # a new agent knows no earlier sample, and says hello first
        job.meter = LoadMeter(float(second))
        job.cut_until = max(job.cut_until, second + draw.uniform(2.0, 20.0))
    if job.pace:
        _step(job, second)
    if second < job.cut_until:
        job.silent += job.key.job_id not in master.state.attempts.stalls.told
        return
    if job.pace and (second + job.number) % BEAT_S == 0:
        beat = Beat(job.steps[0], 10**9, None, job.stepped_at)
        master.beats[job.key.job_id] = beat
        others = dict(enumerate(job.steps[1:], 1))
        if others:
            master.state.attempts.stalls.steps[job.key.job_id] = others
    if second >= job.report_at:
        job.report_at = second + REPORT_S + draw.uniform(-0.5, 4.5)
        load = job.meter.drawn().get("a")
        if load is not None:
            told = ToldLoad(
                load.span_s,
                load.seen_s,
                load.mean_utilization_percent,
                load.peak_utilization_percent,
            )
            idleness.take(master.turn, job.node_id, (ToldGpu(0, load=told),))


def _step(job: Simulated, second: int) -> None:
    if second % job.pace:
        return
    hung = job.hangs_at is not None and second > job.hangs_at
    for rank in range(len(job.steps)):
        # The others finish the step that they are in, and then wait for the hung one.
        if not hung or (rank != job.hung_rank and job.steps[rank] == job.steps[job.hung_rank]):
            job.steps[rank] += 1
            if rank == 0:
                job.stepped_at, job.silent = float(second), 0


def tell(report: Report, master: Master, jobs: list[Simulated], dry: Master) -> None:
    """The figures."""
    first = {job_id: at_s for at_s, job_id, _ in reversed(master.done)}
    planted_jobs = [job for job in jobs if job.idle_from is not None]
    late = [
        first.get(job.number, float("inf")) - cast("int", job.idle_from) for job in planted_jobs
    ]
    missed = max(late, default=0.0) - WINDOW_S
    report.figure("idlers and hogs, the latest beyond its window", missed, "s", at_most=60.0)
    others = {job.number for job in jobs if job.idle_from is None and job.kind != "hung"}
    wrong = len(others & first.keys())
    report.figure("other jobs that were paused", wrong, "jobs", at_most=len(jobs) / 1000)
    report.figure("changed by a rule in dry run", len(dry.done), "jobs", at_most=0)
    report.figure(
        "told by that rule", sum(kind == "job_idle_seen" for _, kind, _, _ in dry.notes), "jobs"
    )
    found = {
        job_id: (at_s, facts) for at_s, kind, job_id, facts in master.notes if kind == "job_stalled"
    }
    hung = [job for job in jobs if job.kind == "hung"]
    beyond = [
        found[job.number][0] - job.stepped_at - job.silent - 2 * job.pace
        if job.number in found
        else float("inf")
        for job in hung
    ]
    report.figure("stalls, the latest beyond twice its pace", max(beyond), "s", at_most=30.0)
    named = sum(
        found[job.number][1]["node_rank"] == job.hung_rank for job in hung if job.number in found
    )
    report.figure("stalls with the right rank", named, "jobs", at_least=len(hung))
    false = len(found.keys() - {job.number for job in hung})
    report.figure("stalls of jobs that go on", false, "jobs", at_most=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=25)
    report = Report.begin("node.idle_jobs", parser)
    given = report.options
    end = int(given.hours * 3600)
    pause = [IdleConfig(action="pause", dry_run=False)]
    jobs = list(planted(given.jobs, random.Random(given.seed), end))
    master = run(jobs, pause, random.Random(given.seed), end)
    again = list(planted(given.jobs // 10, random.Random(given.seed), end))
    dry = run(again, [IdleConfig(action="cancel")], random.Random(given.seed), end)
    tell(report, master, jobs, dry)
    report.end()


if __name__ == "__main__":
    main()
