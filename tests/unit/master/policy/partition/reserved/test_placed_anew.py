"""Best-effort work that is placed anew when its term ends. Terms have 300 s, nodes 8 GPUs, and what
is to change is decided 30 s before.
"""

from __future__ import annotations

import pytest

from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import BEST_EFFORT
from dlq_master.model.plan import Lapse
from dlq_master.model.why import ReasonCode
from dlq_master.policy.elsewhere import Elsewhere
from dlq_master.policy.offload import plain, trapped
from dlq_master.policy.partition.reserved.placed_anew import placed_anew
from dlq_master.policy.place.whole.arranging import LOCAL_SEARCH
from support.builders import World, a_job, a_node, a_waiting_job, an_attempt

DECIDED_S = 275.0  # of the terms that end at 300 s


def best_effort(job_id: int, gpus: int) -> Job:
    return a_job(job_id, gpus, duration_estimate_s=1e5, steps=BEST_EFFORT)


def a_spread_world(policy: str = "chronus-paper", **settings: str) -> World:
    """Job 3 has two GPUs on each of two nodes, since no node had four left; then job 2 ends."""
    world = World(policy, 2, None, **settings)
    world.submit(best_effort(1, 6), best_effort(2, 6)).decide()
    world.submit(best_effort(3, 4)).decide()
    assert nodes_of(world, 3) == 2
    return world.finish(2).decide()


def nodes_of(world: World, job_id: int) -> int:
    return len(world.attempt(job_id).lease.allocation.node_ids)


def test_who_is_spread_goes_where_it_is_together() -> None:
    world = a_spread_world().at(DECIDED_S)
    assert world.leaving == [3]
    assert world.running == [1]
    world.now_s = 300.0
    world.leave(3).decide()
    assert (world.running, nodes_of(world, 3)) == ([1, 3], 1)


def test_it_is_told_why_it_stops() -> None:
    world = a_spread_world()
    world.now_s = DECIDED_S
    (lapse,) = [change for change in world.plan().changes if isinstance(change, Lapse)]
    assert (lapse.key.job_id, lapse.at_s) == (3, 300.0)
    assert lapse.reason.code is ReasonCode.MAKES_WAY
    assert lapse.reason.detail.startswith("placed anew with 0 others: ")


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("chronus-paper", {"rearrange": "off"}),
        ("chronus-paper", {"place": "consolidate"}),
        ("chronus", {"place": "local-search", "be_floor": "0"}),
    ],
)
def test_elsewhere_it_goes_on_where_it_is(policy: str, settings: dict[str, str]) -> None:
    if settings.get("place") == "consolidate":
        world = World(policy, 2, None, **settings)
        world.submit(best_effort(1, 6), best_effort(2, 6), best_effort(3, 2)).decide()
    else:
        world = a_spread_world(policy, **settings)
    assert world.at(DECIDED_S).leaving == []


def test_who_cannot_save_stays() -> None:
    world = World("chronus-paper", 2, None)
    world.submit(best_effort(1, 6), best_effort(2, 6)).decide()
    world.submit(best_effort(3, 4)._replace(keeps_work=False)).decide()
    assert nodes_of(world, 3) == 2
    assert world.finish(2).decide().at(DECIDED_S).leaving == []


def held_as(*jobs: tuple[tuple[str, int], ...]) -> World:
    """Each job holds these GPUs of nodes n1 and n2, which are masks."""
    world = World("chronus-paper", [a_node("n1"), a_node("n2")], None)
    for job_id, slots in enumerate(jobs, start=1):
        gpus = sum(mask.bit_count() for _, mask in slots)
        job = a_waiting_job(job_id, gpus, duration_estimate_s=1e5)
        world.cluster.put_job(job._replace(queued_since_s=None, live_attempt=1, attempts=1))
        world.cluster.put_attempt(an_attempt(job_id, slots=slots))
    return world


def moves(world: World) -> list[int]:
    found = placed_anew(world.cluster, LOCAL_SEARCH, list(world.cluster.attempts))
    return sorted(key.job_id for key in found)


def test_all_are_placed_anew_where_the_spread_alone_gain_nothing() -> None:
    """Six GPUs lie on two nodes, each beside three of another job. There is room for the six when
    one of these joins the other.
    """
    world = held_as((("n1", 0b111),), (("n2", 0b111),), (("n1", 0b111000), ("n2", 0b111000)))
    assert 3 in moves(world)
    assert len(moves(world)) == 2


def test_who_is_together_stays() -> None:
    assert moves(held_as((("n1", 0b111),), (("n2", 0b111),))) == []


def test_jobs_of_two_nodes_or_more_stay() -> None:
    assert moves(held_as((("n1", 0xFF), ("n2", 0xFF)))) == []


def test_it_is_long_work_that_a_loop_leaves_to_others() -> None:
    world = a_spread_world()
    world.now_s = DECIDED_S
    policy = world.policy
    world.policy = trapped(policy)
    with pytest.raises(Elsewhere):
        world.plan()
    world.policy = plain(policy)
    assert not [change for change in world.plan().changes if isinstance(change, Lapse)]
