"""A master dies at any passage of any failpoint while a server is lent, used and taken back: nothing is done twice,
nothing leaks, and whoever asks again gets the same answer."""

from __future__ import annotations

from collections import Counter

import pytest

from dlq_master.control import failpoints
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.job import JobState
from support.counted_failpoints import MortalStory, dies_at_every_passage
from support.lent_servers import Server, asked, flags, lend
from support.master_harness import Master


class Story(MortalStory):
    """A server is lent, a job runs there, and it is asked back; everybody asks until there is an answer."""

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
    assert not master.state.outbox


@pytest.mark.parametrize("place", failpoints.NAMES)
def test_a_loan_survives_a_master_that_dies_at_any_moment_of_it(place: str) -> None:
    dies_at_every_passage(place, Story, judge)
