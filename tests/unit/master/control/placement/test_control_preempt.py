"""Preemption by least attained service: told in time, saved, resumed elsewhere, nothing lost."""

from collections.abc import Callable

import pytest

from dlq_master.control.stimuli import Stop
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import EndReason, JobState
from dlq_master.model.lease import LeaseKind, Terms, first_term_end_s
from support.extent import spread
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent


@pytest.fixture
def las(masters: Callable[..., Master]) -> Master:
    """Two levels: a job of four GPUs leaves the first after 100 s."""
    return masters(config_of("tiresias-las", thresholds="400"))


@pytest.fixture
def nodes(las: Master) -> list[SimAgent]:
    """Two nodes with four GPUs each."""
    agents = [SimAgent(las, NodeId(name)) for name in ("gpu01", "gpu02")]
    for agent in agents:
        agent.hello()
    return agents


def go_on(master: Master, agents: list[SimAgent], seconds: float) -> None:
    """Time passes; everybody is heard and whatever is launched runs."""
    for _ in range(int(seconds)):
        master.clock.advance(1.0)
        for agent in agents:
            if master.clock.now_s() % 5 == 0:
                agent.heartbeat()
        master.tick()
        for agent in agents:
            agent.obey()
            for key in list(agent.ranks):
                agent.start(key)
            agent.report()


def where(agents: list[SimAgent], key: AttemptKey) -> SimAgent:
    return next(agent for agent in agents if key in agent.ranks)


def test_a_long_job_gives_way_at_a_boundary_and_goes_on_elsewhere_from_its_checkpoint(
    las: Master, nodes: list[SimAgent]
) -> None:
    long, other = (las.submit(4).job_id for _ in range(2))
    boundary_s = first_term_end_s(las.clock.now_s(), LeaseKind.BE, Terms(), Terms().save_lead_s)
    go_on(las, nodes, 150.0)
    assert [las.job(job_id).level for job_id in (long, other)] == [1, 1]
    short = las.submit(4).job_id
    codes = [reason.code.value for reason in las.why(short).reasons]
    assert "waiting_for_boundary" in codes, codes
    go_on(las, nodes, boundary_s - las.clock.now_s() - 31.0)
    assert las.attempt(long).stop_cause is None
    assert las.attempt(other).stop_cause is None
    go_on(las, nodes, 2.0)

    leaving = next(j for j in (long, other) if las.attempt(j).stop_cause == "preempt")
    key = AttemptKey(leaving, 1)
    agent = where(nodes, key)
    assert agent.ranks[key].noticed
    stop = next(c for _, c in las.wires.sent[agent.node_id] if isinstance(c, Stop))
    assert (stop.cause, stop.key) == ("preempt", key)
    agent.save(key, 40)
    agent.report()
    agent.exit(key, 99)
    agent.report()
    go_on(las, nodes, 2.0)
    assert las.job(leaving).end_reason is EndReason.PREEMPTED
    assert las.attempt(short).state == "running"

    staying = other if leaving == long else long
    there = where(nodes, AttemptKey(staying, 1))
    there.exit(AttemptKey(staying, 1))
    there.report()
    go_on(las, nodes, 2.0)
    again = las.attempt(leaving)
    assert again.key == AttemptKey(leaving, 2)
    assert again.lease.allocation.node_ids == (there.node_id,)
    assert there.node_id != agent.node_id
    assert there.ranks[again.key].launch.resume_from == f"/ckpt/{key}/40"
    job = las.job(leaving)
    assert (job.preemptions, job.lost_gpu_s) == (1, 0.0)


@pytest.mark.parametrize("second", spread(range(0, 300, 37), 4))
def test_the_master_may_die_at_any_second_around_a_boundary(
    masters: Callable[..., Master], second: int
) -> None:
    las = masters(config_of("tiresias-las", thresholds="40"))
    agent = SimAgent(las, NodeId("gpu01"))
    agent.hello()
    first = las.submit(4).job_id
    go_on(las, [agent], 60.0)
    second_job = las.submit(4).job_id
    for passed in range(330):
        if passed == second:
            agent.cut()
            las.restart()
            agent.hello()
        go_on(las, [agent], 1.0)
        for key in agent.living():
            if agent.ranks[key].noticed:
                agent.save(key, 1)
                agent.exit(key, 99)
                agent.report()

    assert las.job(first).preemptions >= 1
    assert las.job(second_job).first_start_time_s is not None
    ends = [event for event in las.events() if event.kind == "attempt_preempted_lost"]
    assert ends == []


def test_levels_counters_and_order_survive_a_restart(las: Master, nodes: list[SimAgent]) -> None:
    ids = [las.submit(width).job_id for width in (4, 4, 4, 2, 1)]
    go_on(las, nodes, 130.0)
    before = [_standing(las, job_id) for job_id in ids]
    for agent in nodes:
        agent.cut()
    las.restart()

    assert [_standing(las, job_id) for job_id in ids] == before
    for agent in nodes:
        agent.hello()
    go_on(las, nodes, 10.0)
    assert {las.job(job_id).state for job_id in ids} == {JobState.QUEUED}


def _standing(master: Master, job_id: JobId) -> tuple[object, ...]:
    job = master.state.cluster.jobs[job_id]
    return (job.level, job.sequence, job.attained_gpu_s, job.waited_s, job.live_attempt)
