"""A master dies at any passage of any failpoint while a machine is rented, used and given back: it
is paid once, and nothing is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.loop import failpoints
from dlq_master.control.pool_config import RentingConfig
from dlq_master.model.ids import AttemptKey
from dlq_master.policy.priced.names import RENTS
from dlq_master.policy.rent.decide import AHEAD_S
from support.counted_failpoints import MortalStory, dies_at_every_passage
from support.extent import spread
from support.rented import HOUR_S, SPOT, Site


class Story(MortalStory):
    """A job is submitted, its machine comes, it runs and ends, and the machine goes; everybody asks
    until there is an answer."""

    minimum_s = 0.0
    policy = "dlq"

    def __init__(self, setting: str = "") -> None:
        super().__init__(setting)
        pool = replace(SPOT, minimum_billing=Seconds(self.minimum_s))
        renting = RentingConfig(policy=self.policy)
        self.site = Site(pool, renting=renting, failpoints=self.counting)

    def told(self) -> str:
        return self.site.master.story()

    def run(self) -> None:
        site = self.site
        job_id = self._do(lambda: site.submit(request_id="job"))
        self._until(lambda: len(site.machines()) == 1 and site.only().instance_id != "")
        self._do(site.boot)
        (host,) = site.hosts.values()
        key = AttemptKey(job_id, 1)
        self._until(lambda: key in host.ranks)
        self._do(lambda: host.start(key))
        self._until(lambda: site.master.attempt(job_id).state == "running")
        host.exit(key, 0)
        self._until(lambda: all(not one.open for one in site.machines().values()))

    def _live(self) -> None:
        self.site.tick()
        for host in self.site.hosts.values():
            if host.node_id in self.site.master.state.cluster.nodes and host.session_id is not None:
                host.answer()
                host.report()

    def _again(self) -> None:
        self.site.crashed()


class BilledAtLeast(Story):
    """Longer than all of that takes: it is kept until then, for whoever comes."""

    minimum_s = 20.0


def judge(story: Story) -> None:
    site = story.site
    words = Counter(site.master.words())
    assert words["machine_asked_for"] == words["machine_away"] == 1
    assert site.provider.started == [site.only().request_id], "paid once"
    assert (site.provider.there, site.only().state) == ({}, "away")
    assert (site.master.state.people.tokens, site.master.state.cluster.nodes) == ({}, {})
    charged_once(site)
    machine = site.only()
    assert machine.end_s is not None
    assert machine.end_s >= machine.asked_s + story.minimum_s - AHEAD_S, "what is paid is kept"


def charged_once(site: Site) -> None:
    """The one attempt is charged from its placement to its end, and the rest is boot and idle."""
    machine, now_s = site.only(), site.master.clock.now_s()
    when = {event.kind: event.time_s for event in site.master.store.events(0, 1_000_000)}
    told = site.master.store.costs_of(0, 1_000_000, now_s)
    (paid,) = told.pools.values()
    held_s = when["attempt_succeeded"] - when["attempt_assigned"]
    assert paid.jobs == pytest.approx(held_s * machine.price_per_hour / HOUR_S)
    assert paid.whole == pytest.approx(machine.cost(now_s))
    assert machine.up_s is not None
    boot_s = machine.up_s - machine.asked_s
    assert paid.boot == pytest.approx(boot_s * machine.price_per_hour / HOUR_S)
    (cost,) = [cost for cost in told.jobs.values() if any(cost)]
    assert cost.running == pytest.approx(paid.jobs)
    assert cost.foretold_running == pytest.approx(10.0)
    assert paid.foretold == pytest.approx(machine.foretold)


@pytest.mark.parametrize("story", [Story, BilledAtLeast])
@pytest.mark.parametrize("place", spread(failpoints.NAMES, 1))
def test_a_rent_survives_a_master_that_dies_at_any_moment_of_it(
    place: str, story: type[Story]
) -> None:
    dies_at_every_passage(place, story, judge)


EVERY_METHOD = [(name, place) for place in failpoints.NAMES for name in sorted(RENTS)]


@pytest.mark.parametrize(("policy", "place"), spread(EVERY_METHOD, len(RENTS)))
def test_a_rent_by_every_method_survives_a_master_that_dies(policy: str, place: str) -> None:
    story = type("ByMethod", (Story,), {"policy": policy})
    dies_at_every_passage(place, story, judge)
