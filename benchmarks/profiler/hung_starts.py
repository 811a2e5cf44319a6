"""The rule of [first_step] over 1,000 simulated jobs, of which some hang before their second step.

    python -m benchmarks.profiler.hung_starts [--jobs N] [--seed N] [--json]

The master's own code judges, on virtual time of three hours. There is a heartbeat and a look every
five seconds. Lines are cut for up to two minutes, and agents start again. Jobs are gangs of four
ranks of ten families, which need 10 s to 20 minutes for a first step. Of 1,000 jobs:

- 150 hang before their first step, and 50 after it, in families that are known;
- 50 hang before their first step in families that nobody knows, and say how many steps they have;
- 50 have no beats at all, and say nothing;
- 25 are such jobs of a family that is known to tell none, and say how many steps they have;
- 25 come from a slow line: their agent is away for ten minutes just then;
- the others start well, every tenth with a cold cache, for which it needs one to five minutes more.

In half of the hung jobs one rank alone uses no CPU, and is to be named. Goals: each is found within
its bound and a minute while its line stands, and no other is told.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.node.idle_jobs import RANKS, Master, Simulated
from benchmarks.support.report import Report
from dlq_master.control.activity_config import FirstStepConfig, StallConfig
from dlq_master.control.attempts import stalls
from dlq_master.control.stimuli import OpenSession, ReportedProgress
from dlq_master.control.stimuli.nodes import Beat, ToldUse
from dlq_master.control.trials import first_steps
from dlq_master.model.estimates.first_steps import KEPT, NO_STEP, FirstSteps
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.lease import LeaseKind

END_S, BEAT_S, REPORT_S = 10800, 5, 30
KINDS = {"first": 150, "second": 50, "unknown": 50, "silent": 50, "none": 25, "away": 25}
HUNG = ("first", "second", "unknown")
FAMILIES = 10
COLD_S = 300.0


@dataclass
class Starting:
    """A job: when it begins, makes its first step and hangs, and when its line was cut."""

    number: int
    kind: str
    family: str
    begins_s: int
    first_s: float  # it needs so long for its first step
    step_s: float
    hung_rank: int
    cut_until_s: float = 0.0
    anew_s: float = 0.0  # its agent came back last
    silent_s: float = 0.0  # of a cut line
    restarted: bool = False  # its agent says hello next

    @property
    def step(self) -> int | None:
        """The steps that it makes before it hangs; None: any number."""
        return {"first": 0, "unknown": 0, "silent": 0, "none": 0, "second": 1}.get(self.kind)

    def steps_at(self, second: int) -> int:
        """So many steps are done."""
        since_s = second - self.begins_s - self.first_s
        done = 0 if since_s < 0.0 else 1 + int(since_s / self.step_s)
        return done if self.step is None else min(done, self.step)

    @property
    def hangs_s(self) -> float:
        """No step comes any more since then."""
        return self.begins_s + (self.first_s if self.kind == "second" else 0.0)


def planted(count: int, draw: random.Random) -> Iterator[Starting]:
    """The jobs; those of a family need about as long as each other."""
    kinds = [kind for kind, of_1000 in KINDS.items() for _ in range(of_1000 * count // 1000)]
    kinds += ["works"] * (count - len(kinds))
    usual = {f"f{number}": 10.0 * 1.7**number for number in range(FAMILIES)}
    for number, kind in enumerate(kinds, 1):
        family = draw.choice(sorted(usual))
        first_s = usual[family] * draw.uniform(0.8, 1.2)
        if kind in ("works", "away") and draw.random() < 0.1:
            first_s += draw.uniform(60.0, COLD_S)
        if kind in ("unknown", "silent", "none"):
            family = {"none": "tells-none"}.get(kind, f"own{number}")
        yield Starting(
            number, kind, family, draw.randrange(1, 600), first_s, draw.uniform(0.5, 60.0),
            draw.randrange(RANKS),
        )  # fmt: skip


def stage(jobs: list[Starting], draw: random.Random) -> Master:
    """A master that has seen some starts of each known family."""
    gangs = [Simulated(job.number, "hung", lambda _: 0) for job in jobs]
    master = Master(gangs, [])
    known = FirstSteps()
    for number in range(FAMILIES):
        for _ in range(draw.randrange(1, KEPT)):
            known.learn(f"f{number}", 10.0 * 1.7**number * draw.uniform(0.8, 1.2))
    known.learn("tells-none", NO_STEP)
    state, rule = cast("Any", master.state), StallConfig().rule()
    state.started_s, state.cluster.first_steps = 0.0, known
    state.nodes = SimpleNamespace(instances=SimpleNamespace(heard={}))
    state.terms = SimpleNamespace(heartbeat_s=float(BEAT_S))
    state.attempts.stalls = stalls.Stalls(rule, FirstStepConfig().rule(rule, ["default"]))
    for job, attempt in zip(jobs, state.cluster.attempts.values(), strict=True):
        facts = {"assigned_time_s": float(job.begins_s), "started_time_s": float(job.begins_s)}
        lease = SimpleNamespace(allocation=attempt.lease.allocation, kind=LeaseKind.BE)
        vars(attempt).update(**facts, lease=lease, resized_time_s=None)
        steps = 1000 if job.kind in ("unknown", "none") else None
        vars(state.cluster.jobs[attempt.key.job_id]).update(family=job.family, step_count=steps)
    return master


def run(master: Master, jobs: list[Starting], draw: random.Random) -> None:
    """All of it."""
    for second in range(1, END_S):
        master.now_s = float(second)
        for job in jobs:
            if second >= job.begins_s:
                _live(master, job, second, draw)
        stalls.watch(master.turn)
        first_steps.watch(master.turn)


def _live(master: Master, job: Starting, second: int, draw: random.Random) -> None:
    if job.number in master.state.attempts.stalls.told:
        return  # it is found
    _cut(job, second, draw)
    if second < job.cut_until_s:
        job.silent_s += 1.0
        return
    if job.restarted:
        job.restarted, job.anew_s = False, float(second)
        agent = SimpleNamespace(process_id=second)
        asked = SimpleNamespace(node_id=NodeId(f"n{job.number}"), agent=agent)
        first_steps.hello(master.turn, cast("OpenSession", asked))
    if (second + job.number) % BEAT_S == 0:
        _beat(master, job, second)
    if job.number % 2 and (second + job.number) % REPORT_S == 0:
        key = AttemptKey(JobId(job.number), 1)
        uses = master.state.attempts.idleness.uses.setdefault(key, {})
        for rank in range(RANKS):
            used_s = 0.0 if job.step is not None and rank == job.hung_rank else 29.0
            uses[rank] = ToldUse(key, 1, rank, float(REPORT_S), used_s)


def _cut(job: Starting, second: int, draw: random.Random) -> None:
    cut_s = 600.0 if job.kind == "away" and second == job.begins_s + int(job.first_s / 2.0) else 0.0
    if draw.random() < 1 / 7200:
        cut_s = max(cut_s, draw.uniform(10.0, 120.0))
    if draw.random() < 1 / 14400:
        cut_s, job.restarted = max(cut_s, draw.uniform(2.0, 20.0)), True
    if cut_s:
        job.cut_until_s = max(job.cut_until_s, second + cut_s)


def _beat(master: Master, job: Starting, second: int) -> None:
    key, done = AttemptKey(JobId(job.number), 1), job.steps_at(second)
    since_s = second - job.begins_s - job.first_s
    age_s = since_s if job.step is not None else since_s % job.step_s
    word = ReportedProgress(
        key=key, epoch=1, node_rank=0, step=done or None, total=None, loss=None,
        age_s=age_s if done else None,
    )  # fmt: skip
    start = master.state.attempts.stalls.starts.get(key.job_id)
    if start is None:
        first_steps.hear(master.turn, word)
    else:
        first_steps.heard_again(master.turn, start, None)
    if done:
        master.beats[key.job_id] = Beat(done, None, None, second - age_s)
        told = dict.fromkeys(range(1, RANKS), done)
        master.state.attempts.stalls.steps[key.job_id] = told


def tell(report: Report, master: Master, jobs: list[Starting]) -> None:
    """The figures."""
    rule = master.state.attempts.stalls.first
    known = master.state.cluster.first_steps
    assert rule is not None
    found: dict[int, tuple[float, dict[str, Any]]] = {}
    for at_s, kind, job_id, facts in master.notes:
        if kind in ("job_stalled", "job_stall_seen"):
            found[job_id] = (found.get(job_id, (at_s, {}))[0], facts)
    hung = [job for job in jobs if job.kind in HUNG]
    for kind in HUNG:
        of_kind = [job for job in hung if job.kind == kind]
        count = sum(job.number in found for job in of_kind)
        report.figure(f"hung jobs found, {kind}", count, "jobs", at_least=len(of_kind))
        late = sorted(found[job.number][0] - job.hangs_s for job in of_kind if job.number in found)
        if late:
            report.figure(f"half of these within, {kind}", late[len(late) // 2], "s")
            report.figure(f"all of these within, {kind}", late[-1], "s")
    beyond = [
        found[job.number][0]
        - max(job.hangs_s, job.anew_s)
        - job.silent_s
        - max(
            job.first_s if job.kind == "second" else 0.0,
            rule.patience_s(rule.window_s, *known.longest_s(job.family)),
        )
        for job in hung
        if job.number in found
    ]
    report.figure("the latest beyond its bound", max(beyond, default=0.0), "s", at_most=60.0)
    odd = [job for job in hung if job.number % 2 and job.number in found]
    right = sum(found[job.number][1]["node_rank"] == job.hung_rank for job in odd)
    report.figure("ranks named, of those that use no CPU", right, "jobs", at_least=len(odd))
    false = len(found.keys() - {job.number for job in hung})
    report.figure("other jobs that were told", false, "jobs", at_most=0)
    report.figure("of so many", len(jobs) - len(hung), "jobs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=25)
    report = Report.begin("profiler.hung_starts", parser)
    given = report.options
    jobs = list(planted(given.jobs, random.Random(given.seed)))
    master = stage(jobs, random.Random(given.seed))
    run(master, jobs, random.Random(given.seed))
    tell(report, master, jobs)
    report.end()


if __name__ == "__main__":
    main()
