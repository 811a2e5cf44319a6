"""A master dies at any passage of any failpoint while a server is lent, used and taken back, from a
job that has to leave and from one that is shrunk: nothing is done twice, nothing leaks, and whoever
asks again gets the same answer."""

from __future__ import annotations

from collections import Counter

import pytest

from dlq_master.control.loop import failpoints
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.resources import Request
from support.counted_failpoints import MortalStory, dies_at_every_passage
from support.extent import spread
from support.lent_servers import Server, asked, flags, lend
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent, greet_again

CONFIG = config_of("dlq", cooldown_s="off", min_run="off", know="unknown")


class Story(MortalStory):
    """A server is lent, a job runs there, and it is asked back; everybody asks until there is an
    answer.
    """

    def __init__(self, setting: str = "") -> None:
        super().__init__(setting)
        self.master = Master(failpoints=self.counting)
        self.agent = Server(self.master, NodeId("inf01"))
        self._do(self.agent.hello)

    def told(self) -> str:
        return self.master.story()

    def run(self) -> None:
        master, agent = self.master, self.agent
        self._do(lambda: lend(master, "inf01", request_id="lend"))
        self._until(lambda: flags(master) == {"loaned"})
        ask = master.submission(4, request_id="job")
        job_id = self._do(lambda: master.ask(ask).job.job_id)
        key = AttemptKey(job_id, 1)
        self._until(lambda: key in agent.ranks)
        self._do(lambda: agent.start(key))
        self._until(lambda: master.attempt(job_id).state == "running")
        ask_back = asked("inf01", request_id="reclaim")
        told = self._do(lambda: master.ask(ask_back))
        assert self._do(lambda: master.ask(ask_back)) == told, "asked again, the same is told"
        self._until(lambda: agent.ranks[key].noticed)
        agent.save(key, 1)
        agent.exit(key, 99)
        self._until(lambda: flags(master) == set())
        master.close()

    def _live(self) -> None:
        self.master.tick(1.0)
        self.agent.heartbeat()
        self.agent.answer()
        self.agent.report()

    def _again(self) -> None:
        self.agent.session_id = None
        self.agent.inbox.clear()
        self.agent.looks.clear()
        self.master.crashed()
        self.agent.hello()


def judge(story: Story) -> None:
    master = story.master
    words = Counter(master.words())
    assert (words["job_reclaimed"], words["server_returned"]) == (1, 1)
    assert (words["job_submitted"], words["attempt_assigned"]) == (1, 1)
    assert flags(master) == set()
    (job,) = master.store.load().jobs
    assert (job.state, job.live_attempt) == (JobState.QUEUED, None)
    assert not master.state.attempts.outbox


@pytest.mark.parametrize("place", spread(failpoints.NAMES, 2))
def test_a_loan_survives_a_master_that_dies_at_any_moment_of_it(place: str) -> None:
    dies_at_every_passage(place, Story, judge)


class ShrinkStory(Story):
    """An elastic job has its base at home and the rest on the server, which is asked back by a
    plan.
    """

    def __init__(self, setting: str = "") -> None:
        MortalStory.__init__(self, setting)
        self.master = Master(CONFIG, failpoints=self.counting)
        self.home = SimAgent(self.master, NodeId("gpu01"))
        self.agent = Server(self.master, NodeId("inf01"))
        self.agents: list[SimAgent] = [self.home, self.agent]
        for agent in self.agents:
            agent.hello()

    def run(self) -> None:
        master = self.master
        lend(master, "inf01", request_id="lend")
        self._until(lambda: flags(master) == {"loaned"})
        elastic = master.submission(request=Request(gpus=4, sizes=(4, 8)), request_id="job")
        job_id = master.ask(elastic).job.job_id
        self._until(lambda: self._gpus(job_id) == 8)
        self.before = Counter(self.counting.passages)
        plan = self._do(lambda: master.ask(asked(count=1, plan_only=True)))
        assert [hit.action for hit in plan.hits] == ["shrink"]
        ask_back = asked(count=1, token=plan.token, request_id="reclaim")
        told = self._do(lambda: master.ask(ask_back))
        assert self._do(lambda: master.ask(ask_back)) == told, "asked again, the same is told"
        self._until(lambda: flags(master) == set() and self._gpus(job_id) == 4)
        master.close()

    def _gpus(self, job_id: JobId) -> int:
        attempt = self.master.state.cluster.live_attempt(self.master.job(job_id))
        running = attempt is not None and attempt.state == "running"
        return attempt.lease.allocation.width if attempt is not None and running else 0

    def _live(self) -> None:
        self.master.tick(1.0)
        for agent in self.agents:
            agent.heartbeat()
            agent.obey()
            for key, rank in list(agent.ranks.items()):
                if rank.launch.at_barrier:
                    agent.ready(key)
                agent.start(key)
                if rank.noticed and rank.alive:
                    if not rank.launch.node_rank:
                        agent.save(key, key.number)
                    agent.exit(key, 99)
            agent.report()
        self.agent.answer()

    def _again(self) -> None:
        self.agent.looks.clear()
        greet_again(self.master, self.agents)


def judge_shrunk(story: ShrinkStory) -> None:
    """The agents themselves refuse GPUs that somebody has."""
    master = story.master
    words = Counter(master.words())
    assert (words["job_reclaimed"], words["server_returned"], words["attempt_assigned"]) == (
        1,
        1,
        2,
    )
    (resized,) = [it for it in master.events() if it.kind == "job_resized"]
    assert (resized.data["from"], resized.data["to"]) == (8, 4)
    assert resized.cause == "asked back for the inference side: inf01"
    (job,) = master.store.load().jobs
    assert (job.resizes, job.lost_gpu_s) == (1, 0.0)
    assert master.attempt(job.job_id).lease.allocation.node_ids == ("gpu01",)
    assert not master.state.attempts.outbox


@pytest.mark.parametrize("place", spread(failpoints.NAMES, 1))
def test_who_is_shrunk_for_a_reclaim_survives_a_master_that_dies_at_any_moment_of_it(
    place: str,
) -> None:
    dies_at_every_passage(place, ShrinkStory, judge_shrunk)
