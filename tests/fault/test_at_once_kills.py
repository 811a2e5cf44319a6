"""GPUs are taken at any event (`preempt=at-once`), and a master dies in the middle of it, or the
line of the victim's node goes silent: nothing runs twice, nobody is lost, each stop is paid once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import LeaseConfig
from dlq_master.control.loop import failpoints
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from support.counted_failpoints import MortalStory, dies_at_every_passage
from support.extent import spread
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent, greet_again

PORT = 29_777
TERM_S = 3_000.0  # nothing in this story waits for a boundary
CONFIG = replace(
    config_of("tiresias-las", preempt="at-once", thresholds="400"),
    lease=LeaseConfig(
        be_term=Seconds(TERM_S),
        slo_term=Seconds(TERM_S),
        save_lead=Seconds(2.0),
        resume=Seconds(2.0),
    ),
)


class Story(MortalStory):
    """Two wide jobs are demoted. Two arrivals take their GPUs at once, one from each; these end,
    and the wide jobs go on.
    """

    def __init__(self, setting: str = "") -> None:
        super().__init__(setting)
        self.master = Master(CONFIG, failpoints=self.counting)
        self.agents = [SimAgent(self.master, NodeId(name)) for name in ("n1", "n2")]
        self.silent: SimAgent | None = None
        for agent in self.agents:
            agent.hello()

    def run(self) -> None:
        wide = [self._submit(f"wide-{number}") for number in (1, 2)]
        self._until(lambda: all(self.job(job_id).level == 1 for job_id in wide))
        self.before = Counter(self.counting.passages)
        short = [self._submit(f"short-{number}") for number in (1, 2)]
        self._until(lambda: all(map(self.runs, short)))
        assert self.master.clock.now_s() < self.began_s + TERM_S / 2, "no boundary was waited for"
        for job_id in (*short, *wide):
            self._until(lambda job_id=job_id: self.runs(job_id))  # type: ignore[misc]
            self._complete(job_id)
        self._until(lambda: all(job.ended for job in self.master.store.load().jobs))
        self.master.close()

    @property
    def began_s(self) -> float:
        return self.master.store.load().jobs[0].submit_time_s

    def told(self) -> str:
        return self.master.story()

    def job(self, job_id: JobId) -> Job:
        return self.master.job(job_id)

    def runs(self, job_id: JobId) -> bool:
        attempt = self.master.state.cluster.live_attempt(self.job(job_id))
        return attempt is not None and attempt.state is AttemptState.RUNNING

    def _submit(self, name: str) -> JobId:
        asked = self.master.submission(4, request_id=name, name=name)
        job_id: JobId = self._do(lambda: self.master.ask(asked).job.job_id)
        return job_id

    def _complete(self, job_id: JobId) -> None:
        number = self.job(job_id).live_attempt
        assert number is not None
        for agent in self.agents:
            if AttemptKey(job_id, number) in agent.ranks:
                agent.exit(AttemptKey(job_id, number))

    def _live(self) -> None:
        self.master.tick(4.0)
        for agent in self.agents:
            if agent is self.silent:
                continue
            agent.heartbeat()
            agent.obey()
            for key, rank in list(agent.ranks.items()):
                if rank.launch.at_barrier:
                    agent.ready(key, PORT)
                agent.start(key)
                if rank.noticed and rank.alive:
                    agent.save(key, key.number)
                    agent.exit(key, 99)
            agent.report()

    def _again(self) -> None:
        greet_again(self.master, self.agents)


def judge(story: Story) -> None:
    """The agents themselves refuse GPUs that somebody has."""
    master = story.master
    words = Counter(master.words())
    assert (words["job_completed"], words["attempt_succeeded"]) == (4, 4)
    jobs = {job.name: job for job in master.store.load().jobs}
    assert all(job.state is JobState.COMPLETED for job in jobs.values())
    assert all(job.lost_gpu_s == 0.0 for job in jobs.values())
    for name in ("wide-1", "wide-2"):
        job = jobs[name]
        assert (job.displaced, job.preemptions, job.attempts) == (1, 1, 2), name
        resumed = master.ended(job.job_id, 2).resume_from
        assert resumed is not None
        assert resumed.attempt == 1, "it goes on from what it saved"
    assert [jobs[name].attempts for name in ("short-1", "short-2")] == [1, 1]
    assert not master.state.attempts.outbox


@pytest.mark.parametrize("place", spread(failpoints.NAMES, 2))
def test_a_master_may_die_at_any_moment_of_preemptions_at_once(place: str) -> None:
    dies_at_every_passage(place, Story, judge)


def test_a_victim_that_goes_silent_keeps_its_gpus_and_the_arrival_takes_others() -> None:
    story = Story()
    master = story.master
    wide = [story._submit(f"wide-{number}") for number in (1, 2)]
    story._until(lambda: all(story.job(job_id).level == 1 for job_id in wide))
    short = story._submit("short-1")
    (victim,) = [key for key, it in master.state.cluster.attempts.items() if it.stop_cause]
    story.silent = next(agent for agent in story.agents if victim in agent.ranks)
    story.silent.cut()
    story._until(lambda: story.runs(short))
    story._until(lambda: master.state.cluster.attempts[victim].state is AttemptState.UNKNOWN)
    (other,) = [job_id for job_id in wide if job_id != victim.job_id]
    assert story.job(other).displaced == 1
    more = story._submit("short-2")
    for _ in range(10):
        story._live()
    assert not story.runs(more), (
        "the silent job may still use its GPUs, and no third one is stopped"
    )
    silent, story.silent = story.silent, None
    silent.hello()
    story._until(lambda: story.runs(more))
    assert (story.job(victim.job_id).displaced, story.job(victim.job_id).lost_gpu_s) == (1, 0.0)
    story._complete(short)
    story._until(lambda: story.runs(wide[0]) or story.runs(wide[1]))
    master.close()
