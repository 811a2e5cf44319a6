"""Agents and masters are killed before and after whatever they do while a gang leaves its GPUs
without a save and comes back: the same attempt goes on, no GPU has two owners, and nobody is
started twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dlq.v1 import job_pb2
from dlq_master.control.stimuli import PauseJob, ResumeJob
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.resources import Request
from support.core_agent import CoreAgent
from support.extent import some
from support.master_harness import Master, config_of

TRAINS = ("fake", "run_for=100000", "beat={}", "saves_for=1")
BUDGET = 64 << 30
AWAY_S = 40.0  # long enough for a node to be silent, and its job unknown


class Story:
    """A gang on two nodes is suspended, another one runs there meanwhile, and the first goes on."""

    def __init__(self, at: int = 0, away_s: float = 0.0, master_at: int = 0) -> None:
        """The agent of the first node dies at that passage, the master at that moment."""
        self.master = Master(config_of())
        self.first = CoreAgent(self.master, "n1", dies_at=at, away_s=away_s, suspend_bytes=BUDGET)
        self.agents = [self.first, CoreAgent(self.master, "n2", suspend_bytes=BUDGET)]
        self._master_at, self.moments = master_at, 0

    def run(self) -> None:
        self.job_id = self.submit()
        self.until(lambda: self.runs(self.job_id))
        self.before = self.first.passages, self.moments
        self.master.edit(PauseJob, self.job_id, in_memory=True, request_id="pause")
        self.until(lambda: self.out(self.job_id))
        guest = self.submit()
        self.until(lambda: self.runs(guest))
        self.master.edit(ResumeJob, self.job_id, request_id="resume")
        self.end(guest)
        self.until(lambda: self.runs(self.job_id))
        self.after = self.first.passages, self.moments
        self.end(self.job_id)
        self.until(lambda: self.master.job(self.job_id).state is JobState.COMPLETED)
        self.until(lambda: not self.master.state.attempts.outbox)
        self.master.close()

    def submit(self) -> JobId:
        spec = job_pb2.JobSpec(name="gang", command=TRAINS)
        spec.resources.gpu_count, spec.resources.node_count = 8, 2
        ask = self.master.submission(request=Request(gpus=8, nodes=2))
        object.__setattr__(ask, "spec", spec.SerializeToString())
        job_id: JobId = self.master.ask(ask).job.job_id
        return job_id

    def end(self, job_id: JobId) -> None:
        for agent in self.agents:
            agent.end(int(job_id))

    def runs(self, job_id: JobId) -> bool:
        attempt = self.master.state.cluster.live_attempt(self.master.job(job_id))
        return attempt is not None and attempt.state is AttemptState.RUNNING

    def out(self, job_id: JobId) -> bool:
        attempt = self.master.state.cluster.live_attempt(self.master.job(job_id))
        return attempt is not None and attempt.is_out

    def until(self, true: Callable[[], bool]) -> None:
        for _ in range(800):
            if true():
                return
            self.moments += 1
            self.master.clock.advance(0.5)
            if self.moments == self._master_at:
                self.master.restart()
                for agent in self.agents:
                    agent.lose_master()
            if self.moments % 4 == 3:
                self.master.tick()
            for agent in self.agents:
                agent.step()
        raise AssertionError(self.master.story())


def judge(story: Story) -> None:
    master = story.master
    assert master.job(story.job_id).attempts == 1, master.story(story.job_id)
    words = master.words(story.job_id)
    moves = words.count("attempt_suspended"), words.count("attempt_unsuspended")
    assert moves == (1, 1), master.story()
    starts = [key for agent in story.agents for key in agent.starts]
    assert len(starts) == len(set(starts)) == 4


@pytest.fixture(scope="module")
def calm() -> Story:
    story = Story()
    story.run()
    judge(story)
    return story


def moments(story: Story, which: int) -> Sequence[int]:
    return range(story.before[which] + 1, story.after[which] + 1)


@pytest.mark.parametrize("away_s", [0.0, AWAY_S])
def test_an_agent_dies_in_the_middle_of_a_suspension(calm: Story, away_s: float) -> None:
    for at in some(moments(calm, 0), 3):
        story = Story(at=at, away_s=away_s)
        story.run()
        assert story.first.deaths == 1, at
        judge(story)


def test_a_master_dies_in_the_middle_of_a_suspension(calm: Story) -> None:
    for at in some(moments(calm, 1), 4):
        story = Story(master_at=at)
        story.run()
        judge(story)
