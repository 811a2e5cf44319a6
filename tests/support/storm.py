"""Random load and random trouble on a stepped master, and what must hold after every instant of it.

Jobs come with deadlines or none, and with estimates that are right, wrong or missing; their users
cancel some; hosts boot under them, nodes are drained and come back. Whoever was promised a deadline
is followed to it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dlq.v1 import agent_service_pb2
from dlq_master.control.stimuli import Caller, CancelJob, ReleaseJob, SetNodeFlags, Tick
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.reward import soft, strict
from dlq_master.model.lease import LeaseKind
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.resources import Shape
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.partition.reserved.slot_holders import ends_now, holding
from dlq_master.policy.pipeline import decide
from dlq_master.policy.reasons.explain import explain, shortages
from dlq_master.policy.reasons.summary import ReasonSummary
from support.inline_planner import InlinePlanner
from support.invariants import check_turn
from support.stepped_daemon import SteppedDaemon, VirtualJob
from support.virtual_agent import VirtualAgent

TERM_S = 300.0
MEAN_S = 700.0  # of run times
ROOT = Caller("root", "admin")
# Free GPUs that somebody could use now may be kept for others for these reasons, and for no other.
KEPT = {
    ReasonCode.HEAD_OF_LINE,
    ReasonCode.KEPT_FOR_QUEUE,
    ReasonCode.KEPT_FOR_TRIALS,
    ReasonCode.KEPT_GPUS,
    ReasonCode.PROFILER_FULL,
    ReasonCode.QUOTA,
    ReasonCode.RESERVED_FOR,
    ReasonCode.WAITING_FOR_RELEASE,
}
LEAVE_S = 61.0  # they are told a lead before their term ends, and save then
LOOK_S = 1.0
TOLD = ("promise_broken", "promise_at_risk", "promise_overrun")
EPSILON_S = 1e-3
ASKED = 2  # of the latest jobs that wait, after every instant


class Weather(NamedTuple):
    """How much of what; `calm`: nothing that a promise does not allow for."""

    load: float = 1.3  # of what the cluster can do
    deadlines: float = 0.5  # part of the jobs
    wrong: float = 0.3  # part of the estimates, by a factor of up to 3 either way
    missing: float = 0.1
    cancels: float = 0.05
    boots: float = 0.1  # for each term
    drains: float = 0.1
    kills: float = 0.1  # of the planning process, which is then gone for about a term
    elastic: float = 0.0  # part of the jobs without deadlines: on up to four times their GPUs


CALM = Weather(wrong=0.0, cancels=0.0, boots=0.0, drains=0.0, kills=0.0)


def jobs_of(
    seed: int, weather: Weather, boundaries: int, gpus: int, widest: int
) -> Iterator[VirtualJob]:
    """Arrivals over so many terms."""
    draw, now_s, number = random.Random(f"jobs {seed}"), 0.0, 0
    widths = [width for width in (1, 1, 1, 1, 2, 2, 4, 4, 8, 16) if width <= widest]
    mean_gpu_s = sum(widths) / len(widths) * MEAN_S
    while True:
        now_s += draw.expovariate(weather.load * gpus / mean_gpu_s)
        if now_s >= boundaries * TERM_S:
            return
        number += 1
        work_s = min(5 * MEAN_S, max(30.0, draw.expovariate(1 / MEAN_S)))
        steps: Any = ()
        if draw.random() < weather.deadlines:
            first_s = work_s * draw.uniform(1.05, 6.0) + draw.choice((0.0, 300.0, 1500.0))
            steps = strict(first_s)
            if draw.random() < 0.4:
                steps = soft([(first_s, 100.0), (1.5 * first_s + 600.0, 50.0)])
        told_s = None
        if draw.random() < weather.missing:
            told_s = 0.0
        elif draw.random() < weather.wrong:
            told_s = work_s * draw.choice((draw.uniform(0.34, 0.95), draw.uniform(1.05, 3.0)))
        width = draw.choice(widths)
        sizes: tuple[int, ...] = ()
        if weather.elastic and not steps and draw.random() < weather.elastic:
            most, step = min(4 * width, gpus // 2), draw.choice((1, width))
            sizes = tuple(range(width, most + 1, step)) if most >= width + step else ()
        yield VirtualJob(f"job-{number:05d}", now_s, width, work_s, steps, told_s, sizes)


@dataclass(slots=True)
class Found:
    """What a storm showed."""

    instants: int = 0
    boundaries: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)


class Storm(SteppedDaemon):
    """`checked`: the working state is compared with the disk after every so many boundaries."""

    def __init__(
        self, *arguments: Any, seed: int, weather: Weather, checked: int = 1, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self._planner = self._inline = InlinePlanner()
        self.found = Found()
        self._draw = random.Random(f"trouble {seed}")
        self._weather = weather
        self._checked = checked
        self._asks = 0
        self._boots: Counter[str] = Counter()
        self._boundary = 0
        self._held: set[JobId] = set()
        self._looked: set[JobId] = set()
        self._due: set[JobId] = set()  # they could start now
        self._kept_since_s: dict[JobId, float] = {}

    async def rage(self, jobs: list[VirtualJob], boundaries: int) -> Found:
        """All jobs to their end, with trouble in the first so many terms."""
        draw, weather = self._draw, self._weather
        for number in range(1, boundaries):
            at_s = self.begin_s + (number + draw.random()) * TERM_S
            node = draw.choice(list(self._nodes))
            if draw.random() < weather.kills:
                self._foresee(at_s, "kill", "", 0)
                self._foresee(at_s + draw.expovariate(1.0 / TERM_S), "revive", "", 0)
            if draw.random() < weather.boots:
                self._foresee(at_s, "boot", node, 0)
            if draw.random() < weather.drains:
                self._foresee(at_s, "drain", node, 0)
                self._foresee(at_s + draw.uniform(1.0, 4.0) * TERM_S, "undrain", node, 0)
        for job in jobs:
            if draw.random() < weather.cancels:
                after_s = draw.expovariate(1 / MEAN_S)
                self._foresee(self.begin_s + job.submit_s + after_s, "cancel", job.name, 0)
        await self.replay(jobs)
        self.found.boundaries = self._boundary
        self._judge()
        return self.found

    # --- trouble ------------------------------------------------------------------------------

    async def _happens(self, what: str, name: str, number: int) -> None:
        self.found.counts[what] += 1
        if what == "cancel":
            self._cancel(name)
        elif what == "release":
            self._tell(ReleaseJob, job_id=JobId(int(name)))
        elif what in ("drain", "undrain"):
            flags = frozenset({NodeFlag.DRAINING})
            none: frozenset[NodeFlag] = frozenset()
            put, clear = (flags, none) if what == "drain" else (none, flags)
            self._tell(
                SetNodeFlags, node_id=NodeId(name), set_flags=put, clear_flags=clear, reason="storm"
            )
        elif what == "boot":
            await self._boot(name)
        elif what in ("kill", "revive"):
            self._planner.up = what == "revive"
        elif what == "look":
            self.loop.tell(Tick("leases"))
        else:
            self._ends(what, name, number)
        if what in ("drain", "boot"):
            self._foresee(self.clock.now_s() + 1.0, "look", "", 0)

    def _tell(self, stimulus: Any, **more: Any) -> None:
        self._asks += 1
        self.loop.tell(stimulus(caller=ROOT, request_id=f"storm-{self._asks}", **more))

    def _cancel(self, name: str) -> None:
        for job in self.loop.published.jobs():
            if job.name == name and not job.ended:
                self.found.counts["cancelled"] += 1
                self._tell(CancelJob, job_id=job.job_id)

    async def _boot(self, name: str) -> None:
        """The host is back at once, and nothing runs there any more."""
        for attempt in self.state.cluster.attempts.values():
            tried = attempt.lease.kind is LeaseKind.PROFILE
            if tried and any(rank.node_id == name for rank in attempt.ranks):
                self.found.counts["trials lost"] += 1
        await self._agents[name].close()
        await self._until(
            lambda: len(self.loop._inbox) > 0 or name not in self.state.nodes.sessions
        )
        for work in self._works.values():
            if self._agents[name] in work.ranks.values():
                work.attempt = 0
        self._boots[name] += 1
        told = (self._begun_on(name), self._stopped)
        boot = f"boot-{self._boots[name]}"
        agent = VirtualAgent(self._lines[name], name, self._nodes[name], *told, boot)
        self._agents[name] = agent
        await agent.join()
        await self._until(
            lambda: any(_opens(x.stimulus, name) for x in self.loop._inbox._envelopes)
        )

    def _stopped(self, job_id: str, number: int, rank: int) -> None:
        work = self._work(job_id)
        if work.attempt == 0 and rank in work.ranks:  # another host of the gang has booted
            phase = agent_service_pb2.RANK_PHASE_EXITED
            work.ranks[rank].report(job_id, number, rank, phase, exit_code=143, noticed="stop")
            return
        super()._stopped(job_id, number, rank)

    # --- what must hold -----------------------------------------------------------------------

    def _settled(self) -> None:
        self.found.instants += 1
        now_s = self.clock.now_s()
        boundary = int((now_s - self.begin_s) // TERM_S)
        if boundary > self._boundary:
            self._boundary = boundary
            if not boundary % self._checked:
                check_turn(self.state, self.store)
        for job in self.state.cluster.jobs.values():
            # Three hosts have died under it, and its user says that it was not the job's fault.
            if job.state is JobState.HELD and job.job_id not in self._held:
                self._held.add(job.job_id)
                self._foresee(now_s + TERM_S, "release", str(job.job_id), 0)
            elif job.state is not JobState.HELD:
                self._held.discard(job.job_id)
            # A master looks every second. Here the last look before a deadline has to do.
            if job.promised is not None and job.job_id not in self._looked:
                self._looked.add(job.job_id)
                look_s = due_s(job, job.promised) - LOOK_S
                self._foresee(max(now_s, look_s), "look", "", 0)
        self._terms(now_s)
        self._idle(now_s)

    def _terms(self, now_s: float) -> None:
        """Whoever works has a term, or is on its way out."""
        for attempt in self.state.cluster.attempts.values():
            over = attempt.lease.term_end_s < now_s - EPSILON_S
            assert not over or attempt.stop_cause is not None, f"{attempt} at {now_s}"

    def _idle(self, now_s: float) -> None:
        """Who waits, and could start on what is free, is kept from it for a reason that there
        is.
        """
        state = self.state
        cluster, policy = state.cluster, state.policy
        since_s, self._kept_since_s = self._kept_since_s, {}
        due, self._due = self._due, set()
        if state.placement.nothing_placed is not None or not any(
            pool.total for pool in cluster.capacity.free.values()
        ):
            return
        fits: dict[Shape, bool] = {}
        view = View(cluster, now_s)
        asked = [job.job_id for job in cluster.jobs.values() if job.waiting][-ASKED:]
        assert all(explain(view, policy, job_id) for job_id in asked), "who waits is told why"
        glance, outcome = ReasonSummary(view, policy), decide(view, policy)
        ends_soon = any(ends_now(cluster, cluster.jobs[job_id]) for job_id in holding(cluster))
        for job in cluster.jobs.values():
            if not job.waiting:
                continue
            shape = cluster.shape(job)
            if shape not in fits:
                fits[shape] = not shortages(cluster, policy, shape)
            code = glance.code(job) if fits[shape] else None
            if code is None or code in KEPT:
                continue
            if code is ReasonCode.STARTS_NEXT:
                # What a plan has changed may be what it waited for: the next event starts it.
                self.found.counts["starts with the next event"] += 1
                self._due.add(job.job_id)
                if job.job_id not in due:
                    continue
            # Some of it is kept for those who also wait for what others are just leaving.
            kept_s = self._kept_since_s[job.job_id] = since_s.get(job.job_id, now_s)
            leaving = (cluster.capacity.soon or ends_soon) and not all(outcome.claims.values())
            self.found.counts["stood behind a claim"] += 1
            if not leaving or now_s - kept_s > LEAVE_S or code is not ReasonCode.BEHIND_HIGHER_RANK:
                at_s, wide = now_s - self.begin_s, job.request.gpus
                words = (
                    f"at {at_s:.3f} s {job.name} of {wide} GPUs, since {now_s - kept_s:.3f} "
                    f"s: {code}"
                )
                self.found.idle.append(words)

    def _judge(self) -> None:
        """Every promise was kept, or given up in words before its deadline."""
        counts, stories = self.found.counts, dict[JobId, list[JournalEvent]]()
        # Once: a look at all events for each of thousands of jobs takes longer than the storm.
        for event in self.store.events(0, 10_000_000):
            if event.job_id is not None and event.kind.startswith("promise_"):
                stories.setdefault(event.job_id, []).append(event)
        for job in self.loop.published.jobs():
            story = stories.get(job.job_id, [])
            made = [event for event in story if event.kind == "promise_made"]
            counts[f"jobs: {job.state}"] += 1
            counts["resized"] += job.resizes
            counts["refused"] += any(event.kind == "promise_refused" for event in story)
            if not made:
                continue
            counts["promised"] += 1
            by_s = due_s(job, int(str(made[-1].data["deadline"])) - 1)
            self._follow(job, by_s, story)

    def _follow(self, job: Job, by_s: float, story: list[JournalEvent]) -> None:
        counts = self.found.counts
        assert job.end_time_s is not None
        told = [event for event in story if event.kind in TOLD]
        if job.state is JobState.COMPLETED and job.end_time_s <= by_s + EPSILON_S:
            counts["kept"] += 1
            counts["kept though told that not"] += bool(told)
        elif any(event.time_s <= by_s for event in told):
            counts[f"given up: {told[0].kind}"] += 1
        elif job.state is JobState.CANCELLED:
            counts["cancelled by its user"] += 1
        else:
            late_s = job.end_time_s - by_s
            what = ", ".join(f"{e.kind} {e.time_s - self.begin_s:.0f}" for e in story)
            self.found.silent.append(f"{job.name} {job.state} {late_s:.1f} s late ({what}): {job}")


def _opens(stimulus: object, name: str) -> bool:
    return type(stimulus).__name__ == "OpenSession" and getattr(stimulus, "node_id", "") == name
