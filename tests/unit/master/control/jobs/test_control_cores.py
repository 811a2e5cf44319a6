"""Jobs without GPUs, from the submission to the end: where they run, what they count, and what is
left of it after a restart of the master.
"""

from __future__ import annotations

import pytest

from dlq_common.errors import Unsatisfiable
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.resources import CORE_TYPE, Request
from dlq_master.model.words.sentence import sentence
from support.master_harness import Master
from support.sim_agent import SimAgent

GIB = 2**30


def cores(number: int, nodes: int | None = None, **more: object) -> Request:
    return Request(gpus=number, nodes=nodes, gpu_type=CORE_TYPE, **more)  # type: ignore[arg-type]


@pytest.fixture
def host(master: Master) -> SimAgent:
    """Two GPUs, and four cores with 2 GiB each for jobs without GPUs."""
    made = SimAgent(master, NodeId("gpu01"), gpus=2, cores=4, core_memory_bytes=2 * GIB)
    made.hello()
    return made


def test_it_runs_on_exact_cores_beside_jobs_with_gpus(master: Master, host: SimAgent) -> None:
    one = master.submit(request=cores(3))
    two = master.submit(2)
    host.obey()
    launch = host.ranks[AttemptKey(one.job_id, 1)].launch
    assert (launch.gpu_indexes, launch.core_indexes) == ((), (0, 1, 2))
    assert launch.node_core_counts == (3,)
    other = host.ranks[AttemptKey(two.job_id, 1)].launch
    assert (other.gpu_indexes, other.core_indexes) == ((0, 1), ())
    read = master.loop.published
    assert read.free_gpu_count(NodeId("gpu01")) == 0
    assert read.free_core_count(NodeId("gpu01")) == 1


def test_it_ends_and_gives_its_cores_back(master: Master, host: SimAgent) -> None:
    one, two = master.submit(request=cores(3)), master.submit(request=cores(3))
    host.obey()
    host.start(AttemptKey(one.job_id, 1))
    host.report()
    master.tick(10.0)
    assert master.job(two.job_id).live_attempt is None
    host.exit(AttemptKey(one.job_id, 1), 0)
    host.report()
    master.tick(0.0)
    assert master.job(one.job_id).state == "completed"
    assert master.job(two.job_id).live_attempt == 1


def test_a_core_counts_as_the_stated_part_of_a_gpu(master: Master, host: SimAgent) -> None:
    one = master.submit(request=cores(4))
    host.obey()
    host.start(AttemptKey(one.job_id, 1))
    host.report()
    master.tick(16.0)
    host.heartbeat()
    host.exit(AttemptKey(one.job_id, 1), 0)
    host.report()
    job = master.job(one.job_id)
    assert job.total_gpu_s == pytest.approx(job.total_executed_s * 4 / 8)
    assert job.total_executed_s > 0


def test_memory_takes_as_many_cores_as_carry_it(master: Master, host: SimAgent) -> None:
    one = master.submit(request=cores(1, 1, memory_bytes_per_node=5 * GIB))
    assert master.job(one.job_id).request.cores == 3
    two = master.submit(request=cores(1, core_memory_bytes=4 * GIB))
    assert master.job(two.job_id).request.cores == 2


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (cores(80, 1), "it asks for 80 cores, the largest node gives 4 to CPU jobs"),
        (cores(10, 2), "it asks for 5 cores on each of 2 nodes, the largest node gives 4"),
        (cores(6, 2), "it asks for 3 cores on each of 2 nodes, and only 1 nodes give so many"),
        (cores(80), "it asks for 80 cores, and all nodes together give 4 to CPU jobs"),
        (cores(1, 1, memory_bytes_per_node=9 * GIB), "the largest node gives 8GiB to CPU jobs"),
        (cores(1, constraint=("rack=r1",)), "no node that gives cores has rack=r1"),
    ],
)
def test_what_no_node_could_hold_is_refused_with_its_numbers(
    master: Master, host: SimAgent, request_: Request, words: str
) -> None:
    with pytest.raises(Unsatisfiable) as caught:
        master.submit(request=request_)
    assert words in str(caught.value.reasons)


def test_nodes_without_job_cores_refuse_it_and_say_what_is_missing(
    master: Master, agent: SimAgent
) -> None:
    with pytest.raises(Unsatisfiable) as caught:
        master.submit(request=cores(1))
    assert "no node gives cores to CPU jobs" in str(caught.value.reasons)


def test_a_node_without_gpus_serves_it_and_no_job_with_gpus(master: Master) -> None:
    host = SimAgent(master, NodeId("cpu01"), gpus=0, cores=8)
    host.hello()
    waits = master.submit(1)  # no node with GPUs has come yet: it waits for one
    runs = master.submit(request=cores(8))
    assert master.job(runs.job_id).live_attempt == 1
    assert master.job(waits.job_id).live_attempt is None
    assert not master.job(waits.job_id).ended


def test_a_restart_of_the_master_keeps_its_cores(master: Master, host: SimAgent) -> None:
    one = master.submit(request=cores(3))
    host.obey()
    host.start(AttemptKey(one.job_id, 1))
    host.report()
    before = master.attempt(one.job_id).lease.allocation
    master.restart()
    host.session_id = None
    host.hello()
    master.tick(1.0)
    assert master.attempt(one.job_id).lease.allocation == before
    assert master.loop.published.free_core_count(NodeId("gpu01")) == 1


def test_a_node_that_comes_back_with_fewer_cores_lets_its_job_end(
    master: Master, host: SimAgent
) -> None:
    one = master.submit(request=cores(4))
    host.obey()
    host.start(AttemptKey(one.job_id, 1))
    host.report()
    host.cut()
    host.cores = 2
    host.hello()
    master.tick(1.0)
    assert master.loop.published.free_core_count(NodeId("gpu01")) == 0
    two = master.submit(request=cores(2))
    assert master.job(two.job_id).live_attempt is None  # the first one still has these two
    host.exit(AttemptKey(one.job_id, 1), 0)
    host.report()
    master.tick(0.0)
    assert master.job(one.job_id).state == "completed"
    assert master.attempt(two.job_id).lease.allocation.slots[0].core_indices == (0, 1)


def test_reasons_and_counts_speak_of_cores(master: Master, host: SimAgent) -> None:
    one = master.submit(request=cores(3))
    two = master.submit(request=cores(3))
    job = master.job(two.job_id)
    told = [sentence(reason, job) for reason in master.why(two.job_id).reasons]
    assert told == [
        "needs 3 cores, 1 is free; the largest free block is 1 on gpu01; job 1 holds cores it "
        "could use"
    ]
    queue = next(it for it in master.loop.published.queues() if it.is_default)
    assert (queue.running_cores, queue.waiting_cores) == (3, 3)
    assert (queue.running_gpus, queue.waiting_gpus) == (0, 0)
    assert master.job(one.job_id).live_attempt == 1
