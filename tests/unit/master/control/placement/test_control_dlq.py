"""A live master by the default policy: promises over restarts, lost nodes, and other policies
before and after.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq_common.errors import IllegalTransition
from dlq_master.control.stimuli import SetPolicy
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.jobs.band import Band
from support.master_harness import ROOT, Master
from support.validate import validate
from unit.master.control.deadlines.test_control_deadlines import Site

Masters = Callable[..., Master]


def choose(site: Site, policy: str, request_id: str, *, force: bool = False) -> None:
    asked = SetPolicy(caller=ROOT, request_id=request_id, policy=policy, settings=(), force=force)
    site.master.ask(asked)


def starts_all(site: Site) -> None:
    """What was launched by now runs."""
    for agent in site.agents:
        agent.obey()
        for key in list(agent.ranks):
            agent.start(key)
        agent.report()


@pytest.fixture
def site(masters: Masters) -> Site:
    return Site(masters)


@pytest.mark.parametrize("silent_s", [10.0, 1300.0, 2500.0])
def test_a_slot_that_is_decided_before_the_nodes_are_back_breaks_no_promise(
    site: Site, silent_s: float
) -> None:
    site.submit(9000.0, run_s=3500.0)
    starts_all(site)
    site.master.clock.advance(silent_s)
    site.master.restart()
    site.master.state.placement.offloaded.planner = site.planner
    site.master.tick(1.0)
    site.answer()
    assert (site.job(1).promised, site.told(1, "promise_broken")) == (0, [])
    validate(site.master.state.cluster)
    for agent in site.agents:
        agent.hello()
    site.passes(60.0)
    assert (site.job(1).promised, site.job(1).live_attempt is not None) == (0, True)


def test_a_promised_job_waits_for_its_last_slots_and_then_has_them(site: Site) -> None:
    """Somebody shorter runs until then; nothing is idle meanwhile, and the promise is kept."""
    site.submit(9000.0, run_s=2000.0)
    site.submit(run_s=100.0, gpus=8)
    assert site.job(2).live_attempt == 1 or site.job(1).live_attempt == 1
    starts_all(site)
    site.passes(6600.0)
    starts_all(site)
    job = site.job(1)
    assert (job.band, job.promised, job.live_attempt is not None) == (Band.SLO, 0, True)


def test_when_a_node_is_lost_promises_that_still_can_be_are_kept_and_the_other_is_announced(
    masters: Masters,
) -> None:
    site = Site(masters, nodes=2)
    site.submit(6500.0, run_s=3900.0)
    site.submit(6500.0, run_s=3900.0)
    assert [site.job(it).promised for it in (1, 2)] == [0, 0]
    starts_all(site)
    lost = site.agents.pop()
    lost.cut()
    site.passes(1500.0, step_s=20.0)
    promised = [site.job(it).promised for it in (1, 2)]
    assert sorted(promised, key=str) == [0, None]
    (given_up,) = [it for it in (1, 2) if site.job(it).promised is None]
    assert len(site.told(given_up, "promise_broken")) == 1
    assert site.told(3 - given_up, "promise_broken") == []
    instead = site.job(given_up).alternative
    assert instead is not None
    assert (
        instead.detail
        == f"its slots are short of 8 GPUs: n2 is unreachable; kept: job {3 - given_up}"
    )
    assert instead.earliest_s is not None
    assert instead.earliest_s > due_s(site.job(given_up), 0)


def test_promises_that_are_over_stay_in_the_order_of_their_ends_over_a_restart(
    masters: Masters,
) -> None:
    site = Site(masters, nodes=2)
    for _ in range(2):
        site.submit(9000.0, run_s=3900.0)
    starts_all(site)
    for job_id in (2, 1):
        site.passes(60.0)
        for agent in site.agents:
            for key in [key for key in agent.ranks if key.job_id == job_id]:
                agent.exit(key)
            agent.report()

    def over() -> list[int]:
        return [job.job_id for job, _ in site.master.loop.published.promises_over()]

    assert over() == [1, 2]
    site.master.restart()
    assert over() == [1, 2]


def test_promises_pass_from_chronus_to_dlq_and_end_with_a_policy_that_makes_none(
    masters: Masters,
) -> None:
    site = Site(masters, "chronus", nodes=2)
    site.submit(30_000.0, run_s=3500.0)
    starts_all(site)
    before = site.job(1)
    assert before.promised == 0
    choose(site, "dlq", "p1")
    site.answer()
    assert (site.job(1).promised, site.job(1).slots) == (0, before.slots)
    site.passes(1300.0)
    assert site.job(1).promised == 0
    assert site.job(1).slots[-1].begin > before.slots[-1].begin, "they are as late as can be now"
    validate(site.master.state.cluster)
    with pytest.raises(IllegalTransition, match="1 job has promises"):
        choose(site, "tiresias-las", "p2")
    choose(site, "tiresias-las", "p3", force=True)
    job = site.job(1)
    assert (job.promised, job.band, job.slots) == (None, Band.SPOT, ())
    assert len(site.told(1, "promise_dropped")) == 1
    site.passes(300.0)
    site.master.restart()
    validate(site.master.state.cluster)
