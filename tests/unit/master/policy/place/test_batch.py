"""Jobs that start in one plan are placed as a whole: what is exchanged, what stays, what is
told.
"""

from __future__ import annotations

import pytest

from dlq_common.slowdown import OVERLAP, SKEW_RHO, slowdown
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.plan import Start
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.place.whole.batch import UNKNOWN_RHO, stretch
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.registry.registry import build
from dlq_master.policy.registry.settings import PolicyError
from dlq_master.policy.turn import decide
from support.builders import World, a_job, a_node


def a_world(place: str, *sizes: int, policy: str = "best-effort", **words: str) -> World:
    nodes = [a_node(f"n{number}", size) for number, size in enumerate(sizes, start=1)]
    return World(policy, nodes, None, place=place, **words)


def running(world: World) -> dict[int, list[str]]:
    return {
        key.job_id: [slot.node_id for slot in attempt.lease.allocation.slots]
        for key, attempt in sorted(world.cluster.attempts.items())
    }


def reasons(world: World, job_id: int) -> tuple[Reason, ...]:
    return explain(View(world.cluster, world.now_s), world.policy, JobId(job_id))


@pytest.mark.parametrize(("place", "started"), [("consolidate", 3), ("halving", 4)])
def test_on_nodes_that_cannot_be_halved_those_that_start_are_packed_exactly(
    place: str, started: int
) -> None:
    """2, 2, 4, 4 on two nodes with 6: both 2s on one node leave no room for the second 4."""
    world = a_world(place, 6, 6)
    world.submit(*(a_job(number, gpus) for number, gpus in enumerate([2, 2, 4, 4], start=1)))
    assert len(running(world.decide())) == started


def test_what_is_proven_to_fit_nowhere_waits_and_says_why() -> None:
    world = a_world("halving", 6, 6).submit(a_job(1, 4), a_job(2, 4), a_job(3, 4)).decide()
    assert running(world) == {1: ["n1"], 2: ["n2"]}
    assert reasons(world, 3)[0].code is ReasonCode.FRAGMENTATION


def test_running_work_and_explicit_nodes_are_not_moved_to_make_room() -> None:
    world = a_world("halving", 6, 6).submit(a_job(1, 2), a_job(2, 4, 2)).decide()
    world.submit(a_job(3, 4), a_job(4, 4)).decide()
    assert running(world)[1] == ["n1"]
    assert running(world)[2] == ["n1", "n2"]
    assert 4 not in running(world)


def test_room_for_the_rounded_width_is_wanted_and_told() -> None:
    world = a_world("halving", 8).submit(a_job(1, 4), a_job(2, 1)).decide()
    world.submit(a_job(3, 3)).decide()
    assert running(world).keys() == {1, 2}
    (reason,) = (one for one in reasons(world, 3) if one.code is ReasonCode.FRAGMENTATION)
    assert reason.detail.endswith("place=halving wants room for 4")


def test_what_rounding_adds_is_left_to_others() -> None:
    world = a_world("halving", 8).submit(a_job(1, 3), a_job(2, 3), a_job(3, 1), a_job(4, 1))
    assert running(world.decide()).keys() == {1, 2, 3, 4}


def test_large_jobs_get_whole_nodes_or_wait_and_small_ones_never_do() -> None:
    world = a_world("local-search", 4, 4, 4).submit(a_job(1, 1)).decide()
    world.submit(a_job(2, 9)).decide()
    assert running(world).keys() == {1}
    assert "wants room for 12" in reasons(world, 2)[0].detail
    world.submit(a_job(3, 4), a_job(4, 4), a_job(5, 3)).decide()
    assert running(world).keys() == {1, 3, 4, 5}


SIX = [4, 3, 3, 2, 2, 2]  # on nodes with 6, 5 and 5: in the order of arrival two would be split
HARDY = TrafficProfile(rho=0.01)  # it hardly communicates


def six(profile: TrafficProfile | None = None) -> list[Job]:
    return [a_job(number, gpus, profile=profile) for number, gpus in enumerate(SIX, start=1)]


def told(world: World) -> set[str]:
    decided = decide(world.cluster, world.policy, world.now_s, epoch=1)
    return {one.change.reason.detail for one in decided.happened if isinstance(one.change, Start)}


def test_those_that_start_are_exchanged_where_that_is_faster() -> None:
    one_by_one = a_world("ilp", 6, 5, 5).submit(*six(profile=HARDY)).decide()
    assert any(len(nodes) > 1 for nodes in running(one_by_one).values())
    world = a_world("pattern", 6, 5, 5).submit(*six(profile=HARDY)).decide()
    assert all(len(nodes) == 1 for nodes in running(world).values())


def test_local_search_splits_the_hardy_for_the_sensitive() -> None:
    """6, 3 and 3 on one node with 6 and single GPUs: one by one the 6 would have the node."""
    world = a_world("local-search", 6, 1, 1, 1, 1, 1, 1)
    world.submit(a_job(1, 6, profile=HARDY))
    world.submit(*(a_job(number, 3, profile=TrafficProfile(rho=2.0)) for number in (2, 3))).decide()
    assert [len(nodes) for nodes in running(world).values()] == [6, 1, 1]


def test_a_start_tells_how_its_nodes_were_found() -> None:
    assert told(a_world("pattern", 6, 5, 5).submit(*six(profile=HARDY))) == {
        "placed with 5 others by placement program: worth 16 GPUs, proven"
    }
    assert "packed anew with 5 others to make room" in told(
        a_world("pattern", 6, 5, 5).submit(*six())
    )


def test_under_pattern_who_would_suffer_is_packed_exactly_or_waits() -> None:
    assert running(a_world("skew", 6, 5, 5).submit(*six()).decide()).keys() != {1, 2, 3, 4, 5, 6}
    world = a_world("pattern", 6, 5, 5).submit(*six()).decide()
    assert {job: len(nodes) for job, nodes in running(world).items()} == dict.fromkeys(
        range(1, 7), 1
    )
    world = a_world("pattern", 4, 4).submit(a_job(1, 3), a_job(2, 3), a_job(3, 2)).decide()
    assert reasons(world, 3)[0].code is ReasonCode.CONSOLIDATION
    world.submit(a_job(4, 2, profile=HARDY)).decide()
    assert running(world).keys() == {1, 2, 4}
    trying = a_world("pattern", 4, 4, pack="try").submit(a_job(1, 3), a_job(2, 3), a_job(3, 2))
    assert running(trying.decide()).keys() == {1, 2, 3}


def test_jobs_that_ask_for_other_nodes_are_exchanged_among_their_like() -> None:
    """Six that may not go to n1 or n2 keep off them, and a seventh that may keeps its GPUs."""
    world = a_world("pattern", 2, 6, 6, 5, 5).submit(a_job(1, 2))
    off = (NodeId("n1"), NodeId("n2"))
    for number, gpus in enumerate([4, 3, 3, 2, 2, 2], start=2):
        world.submit(a_job(number, request=Request(gpus=gpus, not_among=off)))
    where = running(world.decide())
    assert where.pop(1) == ["n1"]
    assert len(where) == 6
    assert all(len(nodes) == 1 and nodes[0] not in off for nodes in where.values())


def test_a_job_for_which_another_leaves_takes_its_gpus() -> None:
    world = a_world("pattern", 4, 4, policy="lf", preempt="free")
    world.submit(a_job(1, 2), a_job(2, 2), a_job(3, 3)).decide()
    world.submit(a_job(4, 8)).decide()
    assert running(world) == {4: ["n1", "n2"]}


def test_how_a_job_communicates_says_how_much_it_would_suffer() -> None:
    assert stretch(TrafficProfile(0.9, 0.5)) == slowdown(0.5, OVERLAP)
    assert stretch(TrafficProfile(0.9)) == slowdown(0.9 * SKEW_RHO, OVERLAP)
    assert stretch(None) == stretch(TrafficProfile()) == slowdown(UNKNOWN_RHO, OVERLAP)


def test_the_search_space_is_a_setting_of_local_search() -> None:
    assert build("srtf", {"place": "local-search", "search": "50"}).placement.name == "local-search"
    with pytest.raises(PolicyError, match="'search' needs place=local-search"):
        build("srtf", {"place": "pattern", "search": "50"})
    with pytest.raises(PolicyError, match="expected a whole number from 1 on"):
        build("srtf", {"place": "local-search", "search": "0"})
