"""A master dies at any passage of any failpoint while an elastic job is shrunk and grown: it runs
nowhere twice, is never lost, and ends up on the sizes on which it would have run anyway."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import LeaseConfig
from dlq_master.control.loop import failpoints
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.resources import Request
from support.counted_failpoints import MortalStory, dies_at_every_passage
from support.extent import spread
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent, greet_again

PORT = 29_777
CONFIG = replace(
    config_of("dlq", cooldown_s="off", min_run="off", know="unknown"),
    lease=LeaseConfig(
        be_term=Seconds(20.0), slo_term=Seconds(80.0), save_lead=Seconds(2.0), resume=Seconds(2.0)
    ),
)


class Story(MortalStory):
    """A job grows to all there is, makes room for another, grows again, and completes."""

    request = Request(gpus=2, sizes=(2, 4, 8))

    def __init__(self, setting: str = "") -> None:
        super().__init__(setting)
        self.master = Master(CONFIG, failpoints=self.counting)
        self.agents = [SimAgent(self.master, NodeId(name)) for name in ("n1", "n2")]
        for agent in self.agents:
            agent.hello()

    def run(self) -> None:
        master = self.master
        elastic = master.submission(request=self.request, request_id="elastic")
        job_id = self._do(lambda: master.ask(elastic).job.job_id)
        self._until(lambda: self.gpus(job_id) == 8)
        self.before = Counter(self.counting.passages)
        another = master.submission(4, request_id="other")
        other = self._do(lambda: master.ask(another).job.job_id)
        self._until(lambda: (self.gpus(job_id), self.gpus(other)) == (4, 4))
        self._complete(other)
        self._until(lambda: self.gpus(job_id) == 8)
        self._complete(job_id)
        self._until(lambda: master.store.load().jobs[0].state is JobState.COMPLETED)
        master.close()

    def told(self) -> str:
        return self.master.story()

    def gpus(self, job_id: JobId) -> int:
        """What it runs on."""
        attempt = self.master.state.cluster.live_attempt(self.master.job(job_id))
        running = attempt is not None and attempt.state == "running"
        settled = attempt is not None and running and attempt.resize is None
        return attempt.lease.allocation.width if attempt is not None and settled else 0

    def _complete(self, job_id: JobId) -> None:
        number = self.master.job(job_id).live_attempt
        assert number is not None
        for agent in self.agents:
            if AttemptKey(job_id, number) in agent.ranks:
                agent.exit(AttemptKey(job_id, number))

    def _live(self) -> None:
        self.master.tick(4.0)
        for agent in self.agents:
            agent.heartbeat()
            agent.obey()
            for key, rank in list(agent.ranks.items()):
                if rank.launch.at_barrier:
                    agent.ready(key, PORT)
                agent.start(key)
                if rank.noticed and rank.alive:
                    if not rank.launch.node_rank:
                        agent.save(key, key.number)
                    agent.exit(key, 99)
            agent.report()

    def _again(self) -> None:
        greet_again(self.master, self.agents)


class LiveStory(Story):
    """The same, with one torchrun on each of its nodes, which is never stopped on the first of
    them.
    """

    request = Request(gpus=4, nodes=1, sizes=(4, 8), live=True)


def judge(story: Story) -> None:
    """The agents themselves refuse GPUs that somebody has."""
    master = story.master
    words = Counter(master.words())
    assert (words["job_completed"], words["attempt_succeeded"]) == (2, 2)
    assert words["attempt_assigned"] == 4
    sizes = [(it.data["from"], it.data["to"]) for it in master.events() if it.kind == "job_resized"]
    assert sizes == [(8, 4), (4, 8)]
    job = master.store.load().jobs[0]
    assert (job.attempts, job.resizes, job.lost_gpu_s) == (3, 2, 0.0)
    resumed = [master.ended(job.job_id, number).resume_from for number in (2, 3)]
    assert [it.attempt for it in resumed if it is not None] == [1, 2], (
        "each goes on from the one before"
    )
    assert not master.state.attempts.outbox


@pytest.mark.parametrize("place", spread(failpoints.NAMES, 1))
def test_a_resize_survives_a_master_that_dies_at_any_moment_of_it(place: str) -> None:
    dies_at_every_passage(place, Story, judge)


def judge_live(story: Story) -> None:
    master = story.master
    words = Counter(master.words())
    assert (words["job_completed"], words["attempt_succeeded"]) == (2, 2)
    assert words["attempt_assigned"] == 2
    told = [it.data for it in master.events() if it.kind == "job_resized"]
    sizes = [(it["from"], it["to"], it["mode"]) for it in told]
    assert sizes == [(8, 4, "live"), (4, 8, "live")]
    job = master.store.load().jobs[0]
    assert (job.attempts, job.resizes, job.lost_gpu_s) == (1, 2, 0.0)
    ranks = master.ended(job.job_id, 1).ranks
    assert [rank.left for rank in ranks] == [False, True, False]
    assert not master.state.attempts.outbox


@pytest.mark.parametrize("place", spread(failpoints.NAMES, 2))
def test_a_live_resize_survives_a_master_that_dies_at_any_moment_of_it(place: str) -> None:
    dies_at_every_passage(place, LiveStory, judge_live)
