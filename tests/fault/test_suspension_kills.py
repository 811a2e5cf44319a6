"""Agents and masters are killed before and after whatever they do while a gang leaves its GPUs
without a save and comes back, to these GPUs or to others: the same attempt goes on, no GPU has two
owners, and nobody is started twice. One that is cancelled meanwhile is gone at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import pytest

from dlq.v1 import job_pb2
from dlq_master.control.stimuli import PauseJob, ResumeJob
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import JobId
from dlq_master.model.resources import Request
from support.core_agent import CoreAgent
from support.extent import some
from support.master_harness import Master, config_of

TRAINS = ("fake", "run_for=100000", "beat={}", "saves_for=1")
BUDGET = 64 << 30
ASKED = {
    "back": [""],
    "elsewhere": ["to others: n1: 4+5+6+7, n2: 4+5+6+7"],
    "cancelled": [],
}
AWAY_S = 40.0  # long enough for a node to be silent, and its job unknown


class How(StrEnum):
    """How it ends."""

    BACK = "back"  # The other one ends, and the first comes back.
    ELSEWHERE = "elsewhere"  # The other one stays, and the first goes on beside it.
    CANCELLED = "cancelled"  # The first is cancelled while the other one is on its GPUs.


class Story:
    """A gang on two nodes is suspended, another one runs there meanwhile, and the first goes on."""

    def __init__(self, how: How, at: int = 0, away_s: float = 0.0, master_at: int = 0) -> None:
        """The agent of the first node dies at that passage, the master at that moment."""
        self.master, self.how = Master(config_of()), how
        gpus = 8 if how is How.ELSEWHERE else 4
        self.first = CoreAgent(
            self.master, "n1", gpus, dies_at=at, away_s=away_s, suspend_bytes=BUDGET
        )
        self.agents = [self.first, CoreAgent(self.master, "n2", gpus, suspend_bytes=BUDGET)]
        self._master_at, self.moments = master_at, 0

    def run(self) -> None:
        self.job_id = self.submit()
        self.until(lambda: self.runs(self.job_id))
        self.before = self.first.passages, self.moments
        self.master.edit(PauseJob, self.job_id, in_memory=True, request_id="pause")
        self.until(lambda: self.out(self.job_id))
        guest = self.submit()
        self.until(lambda: self.runs(guest))
        if self.how is How.CANCELLED:
            self.master.cancel(self.job_id)
            self.until(lambda: self.master.job(self.job_id).live_attempt is None)
            assert self.runs(guest) or self.first.deaths
            assert not any(node.strayed for node in self.master.state.cluster.nodes.values())
        else:
            self.master.edit(ResumeJob, self.job_id, request_id="resume")
            if self.how is How.BACK:
                self.end(guest)
            self.until(lambda: self.runs(self.job_id))
        self.after = self.first.passages, self.moments
        self.end(self.job_id)
        self.until(lambda: self.master.job(self.job_id).ended)
        self.end(guest)
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
    assert moves == (1, story.how is not How.CANCELLED), master.story()
    starts = [key for agent in story.agents for key in agent.starts]
    assert len(starts) == len(set(starts)) == 4
    events = master.events(story.job_id)
    asked = [it.cause for it in events if it.kind == "attempt_resume_asked"]
    assert asked == ASKED[story.how]


@pytest.fixture(scope="module", params=list(How))
def calm(request: pytest.FixtureRequest) -> Story:
    story = Story(request.param)
    story.run()
    judge(story)
    return story


def moments(story: Story, which: int) -> Sequence[int]:
    return range(story.before[which] + 1, story.after[which] + 1)


@pytest.mark.parametrize("away_s", [0.0, AWAY_S])
def test_an_agent_dies_in_the_middle_of_a_suspension(calm: Story, away_s: float) -> None:
    for at in some(moments(calm, 0), 2):
        story = Story(calm.how, at=at, away_s=away_s)
        story.run()
        assert story.first.deaths == 1, at
        judge(story)


def test_a_master_dies_in_the_middle_of_a_suspension(calm: Story) -> None:
    for at in some(moments(calm, 1), 2):
        story = Story(calm.how, master_at=at)
        story.run()
        judge(story)
