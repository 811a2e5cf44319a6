"""Equal jobs in a row: the second gets the node of the first, and nobody looks for it again."""

import random
from dataclasses import replace

import pytest

from dlq_master.model.nodes.free_gpus import Part, Pool, lowest
from dlq_master.model.resources import Request, Shape
from dlq_master.model.view import View
from dlq_master.policy.pipeline import plan
from dlq_master.policy.place.allocation.grouped import GROUPS
from dlq_master.policy.place.consolidate import CONSOLIDATE
from dlq_master.policy.place.placement import Placement, PlaceStage
from dlq_master.policy.place.skew import SKEW, SKEW_GROUPS, Pack, packing
from support.builders import World, a_job, a_node
from support.counted_calls import counted_calls

TIGHTEST = [
    *(CONSOLIDATE, SKEW, SKEW_GROUPS, GROUPS),
    *(packing(SKEW, pack) for pack in (Pack.TRY, Pack.KNOWN)),
]


@pytest.mark.parametrize("placement", TIGHTEST, ids=lambda it: it.name)
@pytest.mark.parametrize("seed", range(40))
def test_an_equal_job_gets_the_same_node_for_as_long_as_it_fits(
    placement: Placement, seed: int
) -> None:
    assert placement.tightest
    draw = random.Random(seed)
    sizes = [draw.randint(1, 8) for _ in range(6)]
    pool = Pool(sizes)
    for node, size in enumerate(sizes):
        pool.set(node, draw.getrandbits(size))
    shape = Shape(draw.randint(1, 5), None, None, together=draw.choice((None, True, False)))
    found = placement.find(pool, shape)
    while found is not None and len(found) == 1:
        pool.take(found)
        node = found[0].ordinal
        found = placement.find(pool, shape)
        left = pool.masks[node]
        if left.bit_count() >= shape.gpus:
            assert found == (Part(node, lowest(left, shape.gpus)),)


@pytest.mark.parametrize("policy", ["best-effort", "tiresias-las", "dlq"])
@pytest.mark.parametrize("seed", range(15))
def test_a_plan_is_the_same_without_the_short_way(policy: str, seed: int) -> None:
    draw = random.Random(seed)
    world = World(policy, nodes=[a_node(f"n{at}", gpus=draw.choice((4, 8, 8))) for at in range(7)])
    for number in range(1, 40):
        gpus = draw.choice((1, 1, 1, 2, 3, 4, 8, 10))
        least = draw.choice((None, 2**30))
        request = Request(gpus=gpus, memory_bytes_per_node=least)
        world.submit(a_job(number, request=request))
        if not number % 13:
            world.decide()
            world.finish(*draw.sample(world.running, k=len(world.running) // 2))
    world.settle_moves()
    long_way = replace(world.policy)
    place = PlaceStage(long_way.placement._replace(tightest=False), long_way.blocking)
    object.__setattr__(long_way, "place", place)
    view = View(world.cluster, world.now_s)
    assert plan(view, world.policy) == plan(view, long_way)


@pytest.mark.parametrize("policy", ["tiresias-las", "dlq"])
def test_equal_starts_cost_a_fixed_number_of_calls(policy: str) -> None:
    world = World(policy, nodes=32)
    world.submit(*(a_job(number) for number in range(1, 401))).settle_moves()
    world.plan()
    with counted_calls() as calls:
        found = world.plan()
    assert len(found.changes) == 32 * 8
    assert calls.total() <= 15 * len(found.changes)
