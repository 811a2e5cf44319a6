"""A lapse is decided early and told late: at one instant, whoever restarts in between."""

from collections.abc import Callable

import pytest

from dlq_master.control.stimuli import Stop
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.lease import LeaseKind, Terms, first_term_end_s
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent
from unit.master.control.placement.test_control_preempt import go_on

SAVE_S = 4.0
LEAD_S = Terms().save_lead_s


@pytest.fixture
def las(masters: Callable[..., Master]) -> Master:
    """A job of four GPUs leaves the first level after 100 s."""
    return masters(config_of("tiresias-las", thresholds="400"))


def lapsed(las: Master, agent: SimAgent) -> tuple[AttemptKey, float]:
    """A job that has just lost its lease, and will be told when 1.5 saves are left; its
    boundary.
    """
    agent.hello()
    job_id = las.submit(4).job_id
    boundary_s = first_term_end_s(las.clock.now_s(), LeaseKind.BE, Terms(), LEAD_S)
    go_on(las, [agent], 150.0)
    key = AttemptKey(job_id, 1)
    agent.save(key, 10, save_s=SAVE_S)
    agent.report()
    las.submit(4)
    while las.attempt(job_id).stop_cause is None:
        las.clock.advance(1.0)
        agent.heartbeat()
        las.tick()
    assert las.clock.now_s() < boundary_s - 1.5 * SAVE_S - 10.0, "it is decided well ahead"
    return key, boundary_s


def test_the_notice_is_due_when_the_save_just_fits(las: Master) -> None:
    agent = SimAgent(las, NodeId("gpu01"))
    key, boundary_s = lapsed(las, agent)
    (stop,) = [c for _, c in las.wires.sent[agent.node_id] if isinstance(c, Stop)]
    assert las.clock.now_s() + stop.delay_s == boundary_s - 1.5 * SAVE_S
    assert las.attempt(key.job_id).notice_due_s == boundary_s - 1.5 * SAVE_S


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_a_welcome_tells_the_same_instant(las: Master, restart: bool, taken: bool) -> None:
    agent = SimAgent(las, NodeId("gpu01"))
    key, boundary_s = lapsed(las, agent)
    if taken:
        agent.obey()
    agent.cut()
    las.clock.advance(7.0)
    if restart:
        las.restart()
    opened = agent.hello()

    stops = [stop for stop in opened.stops if stop.key == key]
    assert stops, "it is on its way out"
    for stop in stops:
        assert las.clock.now_s() + stop.delay_s == boundary_s - 1.5 * SAVE_S
        assert (stop.cause, stop.grace_s > 0.0) == ("preempt", True)


def test_what_is_overdue_is_told_at_once(las: Master) -> None:
    agent = SimAgent(las, NodeId("gpu01"))
    key, boundary_s = lapsed(las, agent)
    agent.cut()
    las.clock.advance(boundary_s - las.clock.now_s() + 3.0)
    opened = agent.hello()
    assert [stop.delay_s for stop in opened.stops if stop.key == key] == [0.0]


def test_a_cancel_does_not_wait_for_the_boundary(las: Master) -> None:
    agent = SimAgent(las, NodeId("gpu01"))
    key, _ = lapsed(las, agent)
    las.cancel(key.job_id)
    assert las.attempt(key.job_id).notice_due_s == las.clock.now_s()
    stops = [c for _, c in las.wires.sent[agent.node_id] if isinstance(c, Stop)]
    assert (stops[-1].cause, stops[-1].delay_s) == ("cancel", 0.0)
