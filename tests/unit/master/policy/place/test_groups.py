"""Aryl's placement: inelastic jobs on own servers, bases and what can be given away on different
lent ones.
"""

from __future__ import annotations

import pytest

from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.resources import Request
from dlq_master.policy.place.allocation.grouped import decreasing, worker_gpus
from support.builders import H100, World, a_job, a_node

LOANED = frozenset({NodeFlag.LOANED})


def world(
    own: int, lent: int, lent_type: str = "T4", policy: str = "aryl", **settings: str
) -> World:
    """So many own nodes o1, o2, ... and lent ones t1, t2, ..., all with 8 GPUs."""
    owned = [a_node(f"o{number + 1}") for number in range(own)]
    others = [a_node(f"t{number + 1}", gpu_type=lent_type, flags=LOANED) for number in range(lent)]
    return World(policy, [*owned, *others], None, **settings)


def job(job_id: int, *sizes: int, gpu_type: str | None = None, takes_s: float = 1000.0) -> Job:
    request = Request(gpus=sizes[0], sizes=sizes if sizes[1:] else (), gpu_type=gpu_type)
    return a_job(job_id, request=request, duration_estimate_s=takes_s)


def where(found: World, job_id: int) -> dict[NodeId, int]:
    """GPUs by node, in the order of the slots."""
    slots = found.attempt(job_id).lease.allocation.slots
    return {slot.node_id: slot.mask.bit_count() for slot in slots}


@pytest.mark.parametrize("lent_type", ["T4", H100, "Z"])
def test_inelastic_jobs_go_to_own_servers_and_elastic_ones_to_lent_servers(lent_type: str) -> None:
    found = world(1, 1, lent_type).submit(job(1, 2), job(2, 2, 3)).decide()
    assert (where(found, 1), where(found, 2)) == ({"o1": 2}, {"t1": 3})


def test_an_inelastic_job_goes_to_a_lent_server_when_its_own_are_full() -> None:
    found = world(1, 1).submit(job(1, 8, takes_s=1), job(2, 2), job(3, 9, gpu_type=H100)).decide()
    assert (where(found, 1), where(found, 2)) == ({"o1": 8}, {"t1": 2})


def test_an_elastic_job_goes_to_own_servers_when_the_lent_ones_are_full() -> None:
    found = world(1, 1).submit(job(1, 8, 9, takes_s=1), job(2, 4, 5)).decide()
    assert (where(found, 1), where(found, 2)) == ({"t1": 8}, {"o1": 5})


def test_a_job_may_lie_on_own_and_lent_servers_of_one_type_if_nothing_else_is_left() -> None:
    found = world(1, 1, H100).submit(job(1, 12)).decide()
    assert where(found, 1) == {"o1": 8, "t1": 4}


def test_what_can_be_given_away_is_apart_from_bases_and_stands_last() -> None:
    """Bases of 2 fill t1; what is beyond them goes to t2 and t3, where nobody has its base."""
    found = world(0, 3).submit(job(1, 4, 8), job(2, 4, 8)).decide()
    for job_id in (1, 2):
        assert next(iter(where(found, job_id).items())) == ("t1", 4)
        assert where(found, job_id).keys() & {"t2", "t3"}


def test_a_base_does_not_go_where_only_flexible_workers_are_while_there_is_room_elsewhere() -> None:
    found = world(0, 3).submit(job(1, 4, 8)).decide()
    (_, flexible) = where(found, 1)
    found.submit(job(2, 4, 5)).decide()
    base = next(iter(where(found, 2)))
    assert base == "t1"
    assert base != flexible


def test_the_order_of_the_slots_says_which_part_is_the_base() -> None:
    """Its base of 2 is on t1, 6 more on t2; at the boundary a job wants 4 of these: the base
    stays.
    """
    found = world(0, 2).submit(job(1, 2, 4, 6, 8)).decide()
    assert where(found, 1) == {"t1": 2, "t2": 6}
    found.submit(job(2, 6, takes_s=1), job(3, 6, takes_s=1)).at(270.0)
    assert (where(found, 2), found.leaving) == ({"t1": 6}, [1])
    regrant = found.attempt(1).regrant
    assert regrant is not None
    assert [(s.node_id, s.mask.bit_count()) for s in regrant.slots] == [("t1", 2), ("t2", 2)]


def test_jobs_that_start_together_are_placed_the_widest_first() -> None:
    """Shortest first, 3 and then 6 GPUs would leave the 5 that fit beside the 3 to nobody."""
    found = world(2, 0).submit(job(1, 3, takes_s=1), job(2, 5, takes_s=2), job(3, 8, takes_s=3))
    found.decide()
    assert where(found, 3) == {"o1": 8}
    assert (where(found, 1), where(found, 2)) == ({"o2": 3}, {"o2": 5})


def test_the_width_that_counts_is_that_of_a_worker() -> None:
    wide, narrow, gang = job(1, 4, 8), job(2, 6), a_job(3, request=Request(gpus=10, nodes=2))
    assert [worker_gpus(one.request) for one in (wide, narrow, gang)] == [4, 6, 5]
    assert [one.job_id for one in decreasing([gang, wide, narrow])] == [2, 3, 1]


def test_a_job_is_spread_rather_than_kept_waiting() -> None:
    found = world(2, 0).submit(job(1, 5), job(2, 5), job(3, 6)).decide()
    assert (where(found, 3), where(found, 1)) == ({"o1": 6}, {"o2": 5})
    assert where(found, 2) == {"o1": 2, "o2": 3}
