"""A master dies at any passage of any failpoint while a job moves from own GPUs to a machine: it is
done once, what was paid adds up, and nothing is left."""

from __future__ import annotations

import pytest

from dlq_master.control.loop import failpoints
from dlq_master.control.stimuli import AskedLateness
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.resources import Request
from support.counted_failpoints import MortalStory, dies_at_every_passage
from support.extent import spread
from support.lent_servers import Server
from support.rented import HOUR_S, Site
from support.sim_agent import SimRank


class Story(MortalStory):
    """It crawls on an own GPU, its machine comes, it saves, goes on there and ends, and the machine
    goes.
    """

    def __init__(self, setting: str = "") -> None:
        super().__init__(setting)
        self.site = Site(own=4, policy="dlq", failpoints=self.counting)
        self.job_id = JobId(0)
        self.saved: set[AttemptKey] = set()

    def told(self) -> str:
        return self.site.master.story()

    def run(self) -> None:
        site = self.site
        self._do(lambda: site.master.submit(3, request_id="other"))
        late = AskedLateness(100.0 / HOUR_S, after_s=0.5 * HOUR_S)
        sizes = Request(gpus=1, sizes=(1, 2, 4))
        self.job_id = self._do(
            lambda: (
                site.master.submit(
                    request_id="job", request=sizes, lateness=late, run_estimate_s=4 * HOUR_S
                ).job_id
            )
        )
        self._until(lambda: site.master.attempt(self.job_id).state == "running")
        self.before = self.counting.passages.copy()
        self._until(lambda: any(self._runs_on(host) for host in site.hosts.values()))
        host = next(host for host in site.hosts.values() if self._runs_on(host))
        (key,) = [key for key, rank in host.ranks.items() if rank.alive]
        host.exit(key, 0)
        self._until(lambda: site.master.job(self.job_id).state == "completed")
        self._until(lambda: all(not one.open for one in site.machines().values()))

    def _runs_on(self, host: Server) -> bool:
        return any(rank.alive and not rank.noticed for rank in host.ranks.values())

    def _agents(self) -> list[Server]:
        assert self.site.own is not None
        there = self.site.master.state.cluster.nodes
        return [one for one in (self.site.own, *self.site.hosts.values()) if one.node_id in there]

    def _live(self) -> None:
        site = self.site
        site.tick()
        for machine in list(site.machines().values()):
            come = machine.state == "starting" and machine.instance_id
            if come and machine.node_id not in site.hosts:
                site.boot(machine)
        for agent in self._agents():
            if agent.session_id is None:
                continue
            agent.answer()
            for key, rank in list(agent.ranks.items()):
                self._go_on(agent, key, rank)
            agent.report()

    def _go_on(self, agent: Server, key: AttemptKey, rank: SimRank) -> None:
        """Who is launched starts; who is told to leave saves."""
        if not rank.alive and not rank.ended:
            agent.start(key)
        elif rank.alive and rank.noticed and key not in self.saved:
            self.saved.add(key)
            agent.save(key, 1)
            agent.exit(key, 99)

    def _again(self) -> None:
        self.site.crashed()


def judge(story: Story) -> None:
    site = story.site
    master = site.master
    assert master.words().count("job_completed") == 1
    assert site.provider.there == {}
    assert site.provider.started == list(site.machines()), "each is asked for once"
    assert len(site.machines()) <= 1 + story.crashes, (
        "who was on its way is forgotten with its master, once"
    )
    assert all(one.state == "away" for one in site.machines().values())
    assert list(master.state.cluster.nodes) == ["own01"]
    told = master.store.costs_of(0, 1_000_000, master.clock.now_s())
    (paid,) = told.pools.values()
    cost = sum(one.cost(0.0) for one in site.machines().values())
    assert paid.whole == pytest.approx(cost)
    assert sum(one.running for one in told.jobs.values()) == pytest.approx(paid.jobs)
    assert paid.jobs > 0.0


@pytest.mark.parametrize("place", spread(failpoints.NAMES, 1))
def test_a_move_survives_a_master_that_dies_at_any_moment_of_it(place: str) -> None:
    dies_at_every_passage(place, Story, judge)
