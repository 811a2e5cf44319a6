"""A policy with a bug: nothing of its plan is applied, and the master goes on with all the rest."""

from dataclasses import replace

from dlq_master.control.stimuli import ReleaseJob
from dlq_master.model.pool import Parts, Pool
from dlq_master.model.resources import Shape
from support.master_harness import Master
from support.sim_agent import SimAgent


def with_a_bug(_pool: Pool, _shape: Shape) -> Parts | None:
    raise IndexError("a bug")


def test_a_plan_that_fails_starts_nothing_and_stops_nothing(
    master: Master, agent: SimAgent
) -> None:
    first = master.submit(2).job_id
    second = master.submit(2, hold=True).job_id
    sound = master.state.policy
    placement = sound.placement._replace(find=with_a_bug)
    master.state.policy = replace(sound, placement=placement)
    master.edit(ReleaseJob, second)

    assert master.job(first).live_attempt == 1
    assert master.job(second).live_attempt is None
    assert "plan_failed" in master.words()
    master.state.policy = sound
    master.tick(11.0)
    assert master.job(second).live_attempt == 1
