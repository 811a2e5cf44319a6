"""Nodes that slow their gangs down: when they are told, by what, and when not any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Any

import pytest

from dlq_common.errors import ConfigError
from dlq_master.control.activity_config import StragglerConfig
from dlq_master.control.stimuli import Heartbeat, SetNodeFlags
from dlq_master.control.stimuli.nodes import ToldUse
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.policy.stragglers import WorkTimes
from dlq_master.rpc.views.convert import node_message
from dlq_master.rpc.views.job_view import job_message
from support.master_harness import ROOT, Master, config_of
from support.running import running
from support.sim_agent import SimAgent

EVERY_S, STEPS = 30.0, 40
KINDS = ("node_straggler", "node_straggler_over")


@dataclass
class Site:
    """A master with some nodes, whose ranks make 40 steps in half a minute."""

    master: Master
    agents: list[SimAgent]

    def report(
        self, key: AttemptKey, slow: int | None = None, *, times: int = 1, **more: Any
    ) -> None:
        """Half a minute passes, so many times. The rank `slow` works a tenth longer."""
        for _ in range(times):
            self.master.clock.advance(EVERY_S)
            for agent in self.agents:
                agent.heartbeat()
            attempt = self.attempt(key)
            for rank, status in enumerate(attempt.ranks):
                agent = next(one for one in self.agents if one.node_id == status.node_id)
                assert agent.session_id is not None
                each = log(1.1) if rank == slow else 0.0
                logs = [each + (0.05 if step % 2 else -0.05) for step in range(STEPS)]
                work = WorkTimes(STEPS, sum(logs), sum(value * value for value in logs))
                use = ToldUse(key, attempt.epoch, rank, EVERY_S, work=work, **more)
                self.master.turn(
                    Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(use,))
                )
            self.master.tick()

    def flag(self, node: str, add: frozenset[NodeFlag], drop: frozenset[NodeFlag]) -> None:
        self.master.ask(
            SetNodeFlags(
                caller=ROOT,
                request_id="",
                node_id=NodeId(node),
                set_flags=add,
                clear_flags=drop,
                reason="fan",
            )
        )

    def attempt(self, key: AttemptKey) -> Attempt:
        return self.master.state.cluster.attempts[key]

    def told(self) -> list[tuple[str, str]]:
        events = self.master.events()
        return [(one.kind, str(one.node_id)) for one in events if one.kind in KINDS]


@pytest.fixture
def site(masters: Callable[..., Master]) -> Callable[..., Site]:
    def make(nodes: int = 4, **straggler: Any) -> Site:
        master = masters(replace(config_of(), straggler=StragglerConfig(**straggler)))
        agents = [SimAgent(master, NodeId(f"gpu{number:02d}")) for number in range(nodes)]
        for agent in agents:
            agent.hello()
        return Site(master, agents)

    return make


def test_a_node_is_told_once_with_its_evidence(site: Callable[..., Site]) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, slow=2)
    assert one.told() == [], "40 steps say nothing"
    one.report(key, slow=2, times=5)
    assert one.told() == [("node_straggler", "gpu02")]
    (event,) = [each for each in one.master.events() if each.kind in KINDS]
    assert event.job_id == key.job_id
    assert event.cause == (
        "its ranks work 10.0 % longer on a step than their peers:"
        f" rank 2 of job {key.job_id}; no other node has had this part, so the job may be the cause"
    )
    assert event.data["gang_count"] == 1
    assert event.data["told_apart"] is False


def test_the_node_and_its_job_show_it(site: Callable[..., Site]) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, slow=2, times=3)
    read = one.master.loop.published
    node = read.node(NodeId("gpu02"))
    assert node is not None
    told = node_message(node, read).straggler
    assert told.suspected
    assert told.excess_percent == pytest.approx(10.0)
    assert told.confidence > 0.95
    other = read.node(NodeId("gpu01"))
    assert other is not None
    assert not node_message(other, read).straggler.suspected
    job = read.job(key.job_id)
    assert job is not None
    message = job_message(job, read, one.master.clock.now_s())
    assert message.activity.straggler_reason == (
        "rank 2 on gpu02 works 10 % longer on a step than its peers"
    )
    assert read.suspected_stragglers() == 1


def test_a_healthy_gang_and_a_gang_of_one_are_never_told(site: Callable[..., Site]) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, times=20)
    assert one.told() == []
    single = site(nodes=1)
    key = running(single.master, *single.agents)
    single.report(key, slow=0, times=20)
    assert single.told() == []


def test_a_node_that_has_healed_is_told_and_can_be_told_again(site: Callable[..., Site]) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, slow=1, times=5)
    one.report(key, times=20)
    assert one.told() == [("node_straggler", "gpu01"), ("node_straggler_over", "gpu01")]
    one.report(key, slow=1, times=20)
    assert one.told()[-1] == ("node_straggler", "gpu01")


def test_traffic_and_beats_of_a_gang_are_never_mixed(site: Callable[..., Site]) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, slow=1)
    one.report(key, slow=1, traffic=True)
    assert one.told() == [], "40 steps by each of them"
    one.report(key, slow=1, traffic=True)
    assert one.told() == [("node_straggler", "gpu01")]


def test_a_master_that_starts_judges_anew(site: Callable[..., Site]) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, slow=2, times=3)
    one.master.restart()
    for agent in one.agents:
        agent.hello()
    assert one.master.loop.published.suspected_stragglers() == 1  # it stands in the node
    assert one.master.state.attempts.stragglers.scores == {}
    one.report(key, slow=2)
    assert len(one.told()) == 1
    one.report(key, slow=2, times=2)
    assert one.told() == [("node_straggler", "gpu02")]  # as before: it is not told again
    assert one.master.state.attempts.stragglers.scores[NodeId("gpu02")].suspected


def test_while_a_line_is_silent_nothing_changes_and_a_day_later_it_is_forgotten(
    site: Callable[..., Site],
) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, slow=2, times=3)
    one.master.tick(600.0)
    assert one.told() == [("node_straggler", "gpu02")]
    one.master.tick(86_400.0)
    one.master.tick(5.0)
    assert one.told()[-1] == ("node_straggler_over", "gpu02")
    stragglers = one.master.state.attempts.stragglers
    assert (stragglers.seen, stragglers.places, stragglers.scores) == ({}, {}, {})


def test_a_node_that_somebody_opens_again_is_judged_anew(site: Callable[..., Site]) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, slow=2, times=3)
    closed = frozenset({NodeFlag.CORDONED})
    one.flag("gpu02", closed, frozenset())
    assert len(one.told()) == 1
    one.flag("gpu02", frozenset(), closed)
    assert one.told()[-1] == ("node_straggler_over", "gpu02")
    one.report(key, slow=2, times=2)
    assert one.told()[-1] == ("node_straggler", "gpu02")


def test_what_is_kept_of_a_node_is_bounded(site: Callable[..., Site]) -> None:
    one = site(nodes=2)
    for _ in range(12):
        key = running(one.master, *one.agents)
        one.report(key, times=3)
        for agent in one.agents:
            agent.exit(key)
            agent.report()
        one.master.tick(10.0)
    stragglers = one.master.state.attempts.stragglers
    assert {len(kept) for kept in stragglers.seen.values()} == {8}
    assert sum(map(len, stragglers.places.values())) == 16
    assert stragglers.gangs == {}


def test_it_can_be_switched_off(site: Callable[..., Site]) -> None:
    one = site(enabled=False)
    key = running(one.master, *one.agents)
    one.report(key, slow=2, times=10)
    assert one.told() == []
    assert one.master.state.attempts.stragglers.gangs == {}


@pytest.mark.parametrize("wrong", [{"limit": 0.0}, {"limit": 20.0}, {"steps": 5}, {"steps": 500}])
def test_values_that_cannot_be_are_refused_with_their_key(wrong: dict[str, Any]) -> None:
    (key,) = wrong
    with pytest.raises(ConfigError, match=rf"straggler\.{key}: "):
        StragglerConfig(**wrong).rule()


def test_more_work_of_one_rank_in_every_place_is_of_the_job(site: Callable[..., Site]) -> None:
    one = site(nodes=8)
    first = running(one.master, *one.agents[:4], family="f")
    one.report(first, slow=0, times=3)
    assert one.told() == [("node_straggler", "gpu00")]
    second = running(one.master, *one.agents[4:], family="f")
    assert "gpu00" not in [status.node_id for status in one.attempt(second).ranks]
    one.report(second, slow=0, times=3)
    one.report(first, slow=0)
    assert one.told() == [("node_straggler", "gpu00"), ("node_straggler_over", "gpu00")]
    assert one.master.state.attempts.stragglers.scores[NodeId("gpu00")].told_apart


def test_a_rank_that_counts_something_else_in_its_traffic_spoils_no_verdict(
    site: Callable[..., Site],
) -> None:
    one = site()
    key = running(one.master, *one.agents)
    one.report(key, slow=1, traffic=True)
    agent = one.agents[3]
    assert agent.session_id is not None
    work = WorkTimes(4 * STEPS, 0.0, 1.0)
    use = ToldUse(key, 1, 3, EVERY_S, work=work, traffic=True)
    one.master.turn(Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(use,)))
    for rank in range(3):
        agent = one.agents[rank]
        assert agent.session_id is not None
        use = ToldUse(key, 1, rank, EVERY_S, work=WorkTimes(STEPS, 0.0, 1.0), traffic=True)
        one.master.turn(
            Heartbeat(node_id=agent.node_id, session_id=agent.session_id, rank_uses=(use,))
        )
    assert one.told() == []
    assert one.master.state.attempts.stragglers.scores == {}
