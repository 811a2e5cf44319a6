"""A boundary is decided early enough for the slowest save of what runs."""

from dlq_master.model.jobs.job import Job
from support.builders import World, a_job
from support.validate import validate


def with_saves(world: World, job_id: int, *seconds: float) -> Job:
    return world.cluster.put_job(world.job(job_id)._replace(saves=seconds))


def test_the_lead_is_the_usual_one_while_saves_are_quick() -> None:
    world = World("tiresias-las").submit(a_job(1, 4)).decide()
    with_saves(world, 1, 5.0, 6.0)
    assert world.cluster.saves.lead_s == world.cluster.terms.save_lead_s


def test_a_slow_save_is_begun_earlier_and_only_while_its_job_runs() -> None:
    world = World("tiresias-las").submit(a_job(1, 4)).decide()
    with_saves(world, 1, 80.0, 80.0)
    assert world.cluster.saves.lead_s == 120.0
    validate(world.cluster)
    world.finish(1)
    assert world.cluster.saves.lead_s == world.cluster.terms.save_lead_s
    validate(world.cluster)


def test_the_lead_never_reaches_back_into_the_term_before() -> None:
    world = World("tiresias-las").submit(a_job(1, 4)).decide()
    with_saves(world, 1, 1000.0)
    assert world.cluster.saves.lead_s < world.cluster.terms.be_term_s
