"""Limits of CPU and memory that no host has, or that only some have: refused, placed, explained."""

from collections.abc import Callable

import pytest

from dlq_common.errors import Unsatisfiable
from dlq_master.model.ids import NodeId
from dlq_master.model.resources import Request
from dlq_master.model.why import ReasonCode
from support.master_harness import Master
from support.sim_agent import SimAgent

GIB = 2**30


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    """A master with a small and a large node, of four GPUs each."""
    made = masters()
    SimAgent(made, NodeId("n1"), cpu_count=8, memory_bytes=64 * GIB).hello()
    SimAgent(made, NodeId("n2"), cpu_count=64, memory_bytes=512 * GIB).hello()
    return made


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(gpus=1, memory_bytes_per_node=3 * 10**15), "the largest has 512GiB of memory"),
        (Request(gpus=1, cpus_per_node=65), "nodes with 65 cores; the largest has 64 cores"),
        (Request(gpus=2, nodes=2, memory_bytes_per_node=65 * GIB), "true could never hold it"),
    ],
)
def test_what_no_nodes_have_is_refused_with_the_most_there_is(
    master: Master, request_: Request, words: str
) -> None:
    with pytest.raises(Unsatisfiable) as refused:
        master.submit(request=request_)
    assert any(words in each for each in refused.value.reasons), refused.value.reasons


def test_a_job_gets_only_nodes_that_are_large_enough_and_waits_for_them(master: Master) -> None:
    first = master.submit(request=Request(gpus=4, memory_bytes_per_node=100 * GIB))
    master.tick()
    assert master.attempt(first.job_id).lease.allocation.node_ids == ("n2",)
    waits = master.submit(request=Request(gpus=1, cpus_per_node=9))
    master.tick()
    codes = {reason.code for reason in master.why(waits.job_id).reasons}
    assert ReasonCode.CONSTRAINT in codes


def test_what_is_declared_is_not_taken_off_for_others(master: Master) -> None:
    jobs = [
        master.submit(request=Request(gpus=1, memory_bytes_per_node=512 * GIB)) for _ in range(4)
    ]
    master.tick()
    assert {master.attempt(job.job_id).lease.allocation.node_ids for job in jobs} == {("n2",)}


def test_a_host_that_tells_no_size_is_large_enough(masters: Callable[..., Master]) -> None:
    made = masters()
    SimAgent(made, NodeId("n1")).hello()
    job = made.submit(request=Request(gpus=1, memory_bytes_per_node=3 * 10**15))
    made.tick()
    assert made.attempt(job.job_id).lease.allocation.node_ids == ("n1",)


def test_a_host_that_comes_back_with_less_memory_takes_no_more_than_it_has(master: Master) -> None:
    SimAgent(master, NodeId("n2"), cpu_count=64, memory_bytes=32 * GIB, boot_id="boot-2").hello()
    with pytest.raises(Unsatisfiable):
        master.submit(request=Request(gpus=1, memory_bytes_per_node=100 * GIB))
