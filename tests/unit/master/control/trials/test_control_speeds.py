"""Elastic jobs whose steps tell how fast they are on each size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq.v1 import job_pb2
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import SetNodeFlags, UpdateJob
from dlq_master.control.stimuli.nodes import Beat
from dlq_master.control.trials.speeds import hear
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.resources import Request
from dlq_master.rpc.specs.elastic import add_elasticity
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent
from unit.master.control.jobs.test_control_elastic import live, width

SIZES = (2, 4, 8)


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    return masters(config_of("dlq", cooldown_s="off", min_run="0"))


@pytest.fixture
def nodes(master: Master) -> list[SimAgent]:
    agent = SimAgent(master, NodeId("gpu01"), gpus=8)
    agent.hello()
    return [agent]


def trains(master: Master, agent: SimAgent, job_id: JobId, step_s: float, steps: int = 60) -> None:
    """It tells its steps, one after the other."""
    key = AttemptKey(job_id, master.job(job_id).attempts)
    for step in range(1, steps + 1):
        master.clock.advance(step_s)
        agent.beat(key, step, 10_000)
        agent.heartbeat()


def an_elastic(master: Master, nodes: list[SimAgent], *steps_s: float) -> JobId:
    """It has run on 8 GPUs and then, beside another job, on 4: steps of that many seconds there."""
    (agent,) = nodes
    job_id = master.submit(request=Request(gpus=2, sizes=SIZES), run_estimate_s=50_000.0).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    trains(master, agent, job_id, steps_s[0])
    if len(steps_s) > 1:
        other = master.submit(4, run_estimate_s=2000.0).job_id
        live(master, nodes, until=lambda: width(master, other) == width(master, job_id) == 4)
        trains(master, agent, job_id, steps_s[1])
    return job_id


def test_two_sizes_tell_how_it_scales(master: Master, nodes: list[SimAgent]) -> None:
    job = master.job(an_elastic(master, nodes, 0.5, 0.8))
    assert [(it.gpus, it.gpu_type) for it in job.paces] == [(4, "H100"), (8, "H100")]
    assert [it.step_s for it in job.paces] == pytest.approx([0.8, 0.5], rel=0.05)
    assert [job.speed_on(size) for size in SIZES] == pytest.approx([1.0, 1.6, 2.56], rel=0.1)
    message = job_pb2.Job()
    add_elasticity(message, job, None)
    told = message.elastic.speeds
    assert [(it.gpu_count, it.relative_speed) for it in told] == [
        (4, job.speeds[1]),
        (8, job.speeds[2]),
    ]
    assert [it.steps_per_second for it in told] == pytest.approx([1.25, 2.0], rel=0.05)


def test_one_size_tells_nothing_of_others(master: Master, nodes: list[SimAgent]) -> None:
    job = master.job(an_elastic(master, nodes, 0.5))
    assert [it.gpus for it in job.paces] == [8]
    assert [job.speed_on(size) for size in SIZES] == [1.0, 2.0, 4.0]


def test_a_few_steps_or_uneven_ones_are_no_pace(master: Master, nodes: list[SimAgent]) -> None:
    (agent,) = nodes
    job_id = master.submit(request=Request(gpus=2, sizes=SIZES)).job_id
    live(master, nodes, until=lambda: width(master, job_id) == 8)
    trains(master, agent, job_id, 0.5, steps=5)
    assert master.job(job_id).paces == ()


def test_steps_on_one_type_are_no_pace_of_another(master: Master) -> None:
    fast, slow = (
        SimAgent(master, NodeId(f"gpu0{at}"), gpus=4, gpu_type=kind)
        for at, kind in ((1, "H100"), (2, "A100"))
    )
    fast.hello()
    job_id = master.submit(request=Request(gpus=4, sizes=(2, 4))).job_id
    live(master, [fast], until=lambda: width(master, job_id) == 4)
    trains(master, fast, job_id, 0.5)
    slow.hello()
    drained = SetNodeFlags(
        caller=ROOT,
        request_id="d",
        node_id=fast.node_id,
        set_flags=frozenset({NodeFlag.DRAINING}),
        clear_flags=frozenset(),
        reason="fan",
    )
    master.ask(drained)
    live(master, [fast, slow], until=lambda: AttemptKey(job_id, 2) in slow.ranks)
    trains(master, slow, job_id, 2.0, steps=30)
    (found,) = master.job(job_id).paces
    assert found.gpu_type == "A100"
    assert found.step_s == pytest.approx(2.0, rel=0.05)


def test_a_restart_of_the_master_keeps_what_was_learned(
    master: Master, nodes: list[SimAgent]
) -> None:
    job_id = an_elastic(master, nodes, 0.5, 0.8)
    before = master.job(job_id)
    master.restart()
    after = master.job(job_id)
    assert (after.paces, after.speeds) == (before.paces, before.speeds)


def test_who_gains_nothing_by_more_is_not_given_more(master: Master, nodes: list[SimAgent]) -> None:
    job_id = an_elastic(master, nodes, 0.5, 0.5)
    (other,) = [it for it in master.state.cluster.running.places if it != job_id]
    nodes[0].exit(AttemptKey(other, 1))
    nodes[0].report()
    until_s = master.clock.now_s() + 700.0
    live(master, nodes, until=lambda: master.clock.now_s() >= until_s, most_s=800)
    assert (width(master, job_id), master.job(job_id).resizes) == (4, 1)


def test_other_sizes_are_reckoned_from_the_same_steps(
    master: Master, nodes: list[SimAgent]
) -> None:
    job_id = an_elastic(master, nodes, 0.5, 0.8)
    job = master.edit(UpdateJob, job_id, sizes=(2, 4, 6, 8)).job  # type: ignore[attr-defined]  # UpdatedJob
    assert len(job.speeds) == 4
    assert job.speed_on(8) / job.speed_on(4) == pytest.approx(1.6, rel=0.05)


def test_a_beat_is_heard_before_the_first_plan_of_a_new_master(
    master: Master, nodes: list[SimAgent]
) -> None:
    job_id = an_elastic(master, nodes, 0.5)
    master.restart()
    key = AttemptKey(job_id, master.job(job_id).attempts)
    turn = Turn(master.state, master.store, master.clock.now_s(), WIRING)
    hear(turn, key, Beat(100, 10_000, None, master.clock.now_s()))
    assert master.state.trials.elastic_tracks[job_id][0] == "H100"
