"""An agent is killed before and after whatever it does while a job is resized live: the agents'
real cores under a real master, without processes. Nobody's torchrun is started twice or stopped,
the attempt is the same, and it gets its sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from dlq.v1 import job_pb2
from dlq_common.daemon.config import Seconds
from dlq_master.control.config import LeaseConfig
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.resources import Request
from support.core_agent import CoreAgent
from support.extent import some, spread
from support.master_harness import Master, config_of

CONFIG = replace(
    config_of("dlq", cooldown_s="off", min_run="off", know="unknown"),
    lease=LeaseConfig(
        be_term=Seconds(20.0), slo_term=Seconds(80.0), save_lead=Seconds(2.0), resume=Seconds(2.0)
    ),
)
TRAINS = ("fake", "run_for=100000", "beat={}", "saves_for=1")
AWAY_S = 40.0  # long enough for a node to be silent, and its job unknown


class Story:
    """A job grows from one node to two, makes room for another, grows again, and completes."""

    def __init__(self, who: frozenset[str] = frozenset(), at: int = 0, away_s: float = 0.0) -> None:
        """`who` dies at that passage of the agent whose node is grown to and left, and is away so
        long.
        """
        self.master = Master(CONFIG)
        dies_at = at if "grown" in who else 0
        self.grown = CoreAgent(self.master, "n1", dies_at=dies_at, away_s=away_s)
        self.base = CoreAgent(self.master, "n2", away_s=away_s)
        self.agents = [self.grown, self.base]
        self.base_dies_at = at if "base" in who else 0

    def run(self) -> None:
        first = self.submit("first", Request(gpus=4, nodes=1))
        self.until(lambda: self.gpus(first) == 4)
        job_id = self.submit("live", Request(gpus=4, nodes=1, sizes=(4, 8), live=True))
        self.until(lambda: self.gpus(job_id) == 4)
        self.before = self.grown.passages
        self.end(first)
        self.until(lambda: self.gpus(job_id) == 8)
        other = self.submit("other", Request(gpus=4, nodes=1))
        self.until(lambda: (self.gpus(job_id), self.gpus(other)) == (4, 4))
        self.end(other)
        self.until(lambda: self.gpus(job_id) == 8)
        self.after = self.grown.passages
        self.end(job_id)
        self.until(lambda: self.master.job(job_id).state is JobState.COMPLETED)
        self.until(lambda: not self.master.state.attempts.outbox)
        self.master.close()
        self.job_id = job_id

    def submit(self, name: str, request: Request) -> JobId:
        spec = job_pb2.JobSpec(name=name, command=TRAINS)
        spec.resources.gpu_count, spec.resources.node_count = request.gpus, request.nodes or 1
        if request.live:
            spec.elastic.resize = "live"
            spec.elastic.gpu_counts.extend(request.sizes)
        ask = self.master.submission(request=request, name=name)
        job_id: JobId = self.master.ask(replace(ask, spec=spec.SerializeToString())).job.job_id
        return job_id

    def end(self, job_id: JobId) -> None:
        for agent in self.agents:
            agent.end(int(job_id))

    def gpus(self, job_id: JobId) -> int:
        """What it runs on; 0 while it is resized, or not known to run."""
        attempt = self.master.state.cluster.live_attempt(self.master.job(job_id))
        if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.resize:
            return 0
        return attempt.lease.allocation.width

    def until(self, true: Callable[[], bool]) -> None:
        for moment in range(800):
            if true():
                return
            self.master.clock.advance(0.5)
            if moment % 4 == 3:
                self.master.tick()
            for agent in self.agents:
                agent.step()
            if 0 < self.base_dies_at <= self.grown.passages:
                self.base_dies_at = 0
                self.base.kill()
        raise AssertionError(self.master.story())


def judge(story: Story) -> None:
    master, job_id = story.master, story.job_id
    words = Counter(master.words())
    assert (words["job_completed"], words["attempt_assigned"]) == (3, 3), master.story()
    told = [it.data for it in master.events(job_id) if it.kind == "job_resized"]
    sizes = [(it["from"], it["to"], it["mode"]) for it in told]
    assert sizes == [(4, 8, "live"), (8, 4, "live"), (4, 8, "live")], master.story()
    attempt = master.ended(job_id, 1)
    assert [rank.left for rank in attempt.ranks] == [False, True, False]
    starts = [key for agent in story.agents for key in agent.starts if key.job_id == str(job_id)]
    assert sorted(key.node_rank for key in starts) == [0, 1, 2], "each torchrun once"


@pytest.fixture(scope="module")
def moments() -> Sequence[int]:
    """All that the agent of a node does that is joined and left; nobody dies."""
    calm = Story()
    calm.run()
    judge(calm)
    assert calm.base.starts[0].node_rank == 0
    return some(range(calm.before + 1, calm.after + 1), 8)


@pytest.mark.parametrize("away_s", [0.0, AWAY_S])
@pytest.mark.parametrize("who", spread([(("grown", "base"),), (("grown",),), (("base",),)], 1))
def test_a_live_resize_survives_agents_that_die_at_any_moment_of_it(
    moments: Sequence[int], who: tuple[str, ...], away_s: float
) -> None:
    for at in moments:
        story = Story(frozenset(who), at, away_s)
        story.run()
        assert sum(agent.deaths for agent in story.agents) == len(who), at
        judge(story)
