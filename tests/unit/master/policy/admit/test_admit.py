"""Who is let in: what could ever run; who came before the nodes did waits for them."""

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import JobState
from support.builders import World, a_job, a_node


def test_a_job_that_could_never_run_is_refused_when_it_comes() -> None:
    world = World("fifo", nodes=1).submit(a_job(1, 16)).decide()
    assert world.job(1).state is JobState.FAILED


def test_a_job_from_before_its_nodes_waits_while_smaller_ones_register() -> None:
    world = World("fifo", nodes=0).submit(a_job(1, 16)).decide()
    assert world.job(1).state is JobState.PENDING
    world.cluster.put_node(a_node("n1", 8))
    world.at(10.0).decide()
    assert world.job(1).state is JobState.PENDING
    world.cluster.put_node(a_node("n2", 8))
    world.at(20.0).decide()
    assert world.running == [1]


def test_a_node_that_has_joined_without_devices_refuses_nobody() -> None:
    world = World("fifo", nodes=0)
    world.cluster.put_node(a_node("n1", 0))
    world.submit(a_job(1, 1)).decide()
    assert world.cluster.jobs[JobId(1)].state is JobState.PENDING
