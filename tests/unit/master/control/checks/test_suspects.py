"""Suspected stragglers: a check confirms the suspicion or ends it, and a lie costs little."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.checks.suspects import MOST_OF_USER
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import Doubt, NodeFlag
from support.master_harness import ALICE, Master
from support.running import running
from unit.master.control.attempts.test_control_stragglers import Site as Gangs
from unit.master.control.checks.test_control_checks import Site, checking

HOUR = 3600.0
BOB = Caller("bob", "user")


@pytest.fixture
def site(masters: Callable[..., Master]) -> Site:
    """Suspected nodes alone are checked, each for the same user once in an hour."""
    config = checking("matrix", "disk", when=("suspect",), suspect_every=Seconds(HOUR))
    return Site(masters(config))


def suspect(site: Site, slow: int = 2) -> AttemptKey:
    """A gang on all nodes, whose rank on this one tells that it works longer; it runs on."""
    gangs = Gangs(site.master, [*site.agents.values()])
    key = running(site.master, *gangs.agents, gpus=2)
    gangs.report(key, slow=slow, times=3)
    return key


def over(site: Site, key: AttemptKey) -> None:
    """The gang ends on all its nodes."""
    for agent in site.agents.values():
        agent.exit(key, 0)
        agent.report()
        agent.obey()


def end_checks(site: Site, passed: bool) -> list[tuple[str, NodeId]]:
    """All checks that follow one another, by kind and node."""
    made = []
    while jobs := site.living():
        for job in jobs:
            made.append((job.check, job.request.among[0]))
            site.run(job)
            site.end(job, passed=passed, figure=60.0 if passed else 12.5)
    return made


def test_a_suspected_node_is_checked_before_the_next_job_and_judged_anew_once_all_passed(
    site: Site,
) -> None:
    key = suspect(site)
    assert site.master.node("n2").doubted
    assert site.living() == []
    waits = site.master.submit(8, nodes=4)
    over(site, key)
    assert [job.request.among for job in site.living()] == [("n2",)]
    assert site.master.job(waits.job_id).live_attempt is None
    assert end_checks(site, passed=True) == [("matrix", "n2"), ("disk", "n2")]
    assert not site.master.node("n2").doubted
    assert site.master.job(waits.job_id).live_attempt == 1
    told = [one for one in site.master.events() if one.kind == "node_straggler_over"]
    assert [one.cause for one in told] == ["checks have found nothing wrong with it"]


def test_only_a_failed_check_closes_a_suspected_node(site: Site) -> None:
    key = suspect(site)
    assert site.flags("n2") == frozenset()
    over(site, key)
    assert end_checks(site, passed=False) == [("matrix", "n2")]
    assert site.flags("n2") == frozenset({NodeFlag.QUARANTINED})
    assert site.master.node("n2").doubted


def test_a_job_that_lies_costs_a_node_one_check_in_a_while(site: Site) -> None:
    made: list[tuple[str, str]] = []
    for _ in range(3):
        key = suspect(site)
        over(site, key)
        made += end_checks(site, passed=True)
    assert made == [("matrix", "n2"), ("disk", "n2")]
    assert site.master.node("n2").doubted
    site.later(int(HOUR))
    assert end_checks(site, passed=True) == made


def test_the_lies_of_one_user_cost_few_nodes_a_check_and_others_are_heard(
    masters: Callable[..., Master],
) -> None:
    site = Site(masters(checking("matrix", when=("suspect",))), 7)
    state = site.master.state
    for number, name in enumerate(site.agents):
        node = state.cluster.nodes[NodeId(name)]
        user = BOB.name if number == 6 else ALICE.name
        state.cluster.put_node(node._replace(doubt=Doubt(site.master.clock.now_s(), user)))
    site.later(20)
    asked = [name for name, (_, by) in state.nodes.checks.suspects.items() if by == ALICE.name]
    assert len(asked) == MOST_OF_USER
    assert NodeId("n6") in state.nodes.checks.suspects


def test_a_suspicion_survives_the_master_and_its_check_the_agent_and_a_silence(site: Site) -> None:
    key = suspect(site)
    site.master.restart()
    site.equip()
    for agent in site.agents.values():
        agent.hello()
    assert site.master.node("n2").doubted
    site.later(20)
    over(site, key)
    (check,) = site.living()
    assert check.request.among == ("n2",)
    site.run(check)
    site.agents["n2"].restart()
    site.agents["n2"].hello()
    site.agents["n2"].cut()
    site.later(30, "n0", "n1", "n3")
    site.agents["n2"].hello()
    site.end(check, passed=False)
    assert site.flags("n2") == frozenset({NodeFlag.QUARANTINED})


def test_a_gang_gets_no_suspected_node_while_others_are_free_and_its_start_says_so(
    site: Site,
) -> None:
    key = suspect(site, slow=0)
    site.master.state.nodes.checks.overdue.clear()  # no check is configured
    over(site, key)
    gang, narrow = site.master.submit(4, nodes=2), site.master.submit(2)
    assert {rank.node_id for rank in site.master.attempt(gang.job_id).ranks} == {"n1", "n2"}
    assert site.master.attempt(narrow.job_id).ranks[0].node_id == "n0"
    (start,) = [one for one in site.master.events(gang.job_id) if one.kind == "attempt_assigned"]
    assert start.cause == "not on n0, suspected to slow gangs down"
    last = site.master.submit(4, nodes=2)
    assert site.master.job(last.job_id).live_attempt is None
    site.master.cancel(narrow.job_id)
    site.agents["n0"].obey()
    site.agents["n0"].report()
    site.master.tick()
    assert {rank.node_id for rank in site.master.attempt(last.job_id).ranks} == {"n0", "n3"}
