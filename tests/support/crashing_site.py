"""A short story of promises and boundaries on two nodes, told by a master that dies at a chosen
moment of it.

Whoever has asked something and got no answer asks again with the same request id; agents come back
with all that they have. Jobs work in steps of `STEP_S`, save when they are told to leave, and go on
from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import LeaseConfig
from dlq_master.control.stimuli import AskedDeadline, PlanMade, SubmitJob
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from support.counted_failpoints import Counting, Crash
from support.inline_planner import InlinePlanner
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent

STEP_S, TERM_S = 30.0, 300.0
LONGEST_S = 6_000.0


class Asked(NamedTuple):
    """A job of the story: when it comes, how wide it is, how long it works, and until when."""

    at_s: float
    gpus: int
    work_s: float
    due_s: float | None = None
    told: bool = True  # how long it works


# Two that fill the cluster before anybody has a deadline; promises for which they have to leave at
# a boundary; one deadline that nobody can promise, and one that comes in the lead of the second
# boundary.
STORY: Mapping[str, Asked] = {
    "first": Asked(0.0, 8, 700.0, told=False),
    "other": Asked(0.0, 8, 500.0, told=False),
    "strict": Asked(60.0, 8, 240.0, 1_000.0),
    "wide": Asked(90.0, 16, 150.0, 1_900.0),
    "hopeless": Asked(120.0, 8, 400.0, 420.0),
    "late": Asked(570.0, 4, 120.0, 1_300.0),
}


@dataclass(slots=True)
class Told:
    """What was seen from outside, over all lives of the master."""

    answers: dict[str, JobId] = field(default_factory=dict)
    crashes: int = 0
    passages: Counter[str] = field(default_factory=Counter)
    ended: Counter[AttemptKey] = field(default_factory=Counter)  # by themselves


class CrashingSite:
    """`setting`: as in the configuration, `after_commit:3`; empty: it never dies."""

    def __init__(
        self, setting: str = "", story: Mapping[str, Asked] = STORY, slo_term_s: float = TERM_S
    ) -> None:
        self.story = story
        counting = Counting(setting)
        self.told = Told(passages=counting.passages)
        config = config_of("dlq", be_floor="0")
        lease = LeaseConfig(
            be_term=Seconds(TERM_S),
            slo_term=Seconds(slo_term_s),
            ttl=Seconds(4 * STEP_S),  # nobody is silent
            unreachable=Seconds(5 * STEP_S),
        )
        config = replace(config, lease=lease)
        self.master = Master(config, failpoints=counting)
        self._planner = InlinePlanner()
        self.master.state.placement.offloaded.planner = self._planner
        self.agents = [SimAgent(self.master, NodeId(f"n{at}"), gpus=8) for at in (1, 2)]
        self._worked_s: Counter[JobId] = Counter()
        self._asks: dict[str, SubmitJob] = {}
        for agent in self.agents:
            self._surviving(agent.hello)

    def run(self) -> Told:
        """The whole story, until every job has ended."""
        begin_s = self.master.clock.now_s()
        while (at_s := self.master.clock.now_s() - begin_s) < LONGEST_S:
            for name, asked in self.story.items():
                if asked.at_s == at_s:
                    self._submit(name, asked)
            for agent in self.agents:
                self._surviving(lambda agent=agent: self._live(agent))  # type: ignore[misc]
            self._surviving(self._answer)
            self.master.clock.advance(STEP_S)
            self._surviving(self.master.tick)
            self._surviving(self._answer)
            if len(self.told.answers) == len(self.story) and all(job.ended for job in self.jobs()):
                break
        self.master.close()
        return self.told

    def jobs(self) -> list[Job]:
        """All of them as the disk has them."""
        return list(self.master.store.load().jobs)

    # --- what happens -------------------------------------------------------------------------

    def _submit(self, name: str, asked: Asked) -> None:
        """Ask until there is an answer; once it is there, ask once more."""
        due = () if asked.due_s is None else (AskedDeadline(100.0, after_s=asked.due_s),)
        told_s = asked.work_s if asked.told else None
        request = self.master.submission(
            asked.gpus, name=name, request_id=name, run_estimate_s=told_s, deadlines=due
        )
        answered: list[JobId] = []
        while len(answered) < 2:
            self._surviving(lambda: answered.append(self.master.ask(request).job.job_id))
        assert len(set(answered)) == 1, "one request is one job"
        self.told.answers[name] = answered[0]
        self._surviving(self._answer)

    def _answer(self) -> None:
        while self._planner.asked:
            self.master.turn(PlanMade(self._planner.answer()))

    def _live(self, agent: SimAgent) -> None:
        """What a node does in a step."""
        if agent.session_id is None:
            agent.hello()
        agent.obey()
        for key, rank in list(agent.ranks.items()):
            if rank.launch.at_barrier and not rank.alive and not rank.ended:
                agent.ready(key, rank.launch.port_first)
            agent.start(key)
            if not rank.alive:
                continue
            if rank.noticed:
                agent.save(key, step=1)
                agent.exit(key, 99)
            elif self._works(key, first=rank.launch.node_rank == 0):
                agent.exit(key)
                self.told.ended[key] += rank.launch.node_rank == 0
        agent.report()
        agent.heartbeat()

    def _works(self, key: AttemptKey, *, first: bool) -> bool:
        """One step more; whether it is done."""
        others = [k for agent in self.agents for k in agent.living() if k.job_id == key.job_id]
        assert set(others) == {key}, f"two attempts of one job work at once: {others}"
        if first:
            self._worked_s[key.job_id] += STEP_S  # type: ignore[assignment]  # seconds
        name = next(name for name, job_id in self.told.answers.items() if job_id == key.job_id)
        return self._worked_s[key.job_id] >= self.story[name].work_s

    def _surviving(self, act: Callable[[], object]) -> None:
        """Do it; if the master dies of it, another one comes, and its agents come back."""
        try:
            act()
        except Crash:
            self.crash()

    def crash(self) -> None:
        """The master is gone, another one comes, and its agents come back."""
        self.told.crashes += 1
        for agent in self.agents:
            agent.session_id = None
            agent.inbox.clear()
        self.master.crashed()
        self._planner = InlinePlanner()
        self.master.state.placement.offloaded.planner = self._planner
        for agent in self.agents:
            agent.hello()
