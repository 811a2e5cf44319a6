"""Nodes that come, change and go one by one leave the pools as if all had come at once."""

from __future__ import annotations

import random

import pytest

from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.nodes.capacity import Capacity
from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.nodes.node import Gpu, Node, NodeFlag
from dlq_master.model.traits import Traits, closed_at, gap_at, has_all
from support.builders import a_node, an_allocation
from support.counted_calls import counted_calls

TYPES = ("a100", "h100", "v100")
TEXTS = (
    "podman",
    "rack=r1",
    "podman&rack=r2",
    "memory>=3",
    "memory>=6&cpus>=2",
    "cpus>=9",
    "@n03,n11",
    "!n03",
)


def drawn(draw: random.Random, name: str) -> Node:
    """A node of any size, of one or two types of GPUs."""
    types = draw.sample(TYPES, draw.choice((1, 1, 2)))
    gpus = [Gpu(index=at, gpu_type=draw.choice(types)) for at in range(draw.randrange(1, 9))]
    return Node(
        NodeId(name),
        tuple(gpus),
        flags=frozenset({NodeFlag.DRAINING}) if draw.random() < 0.2 else frozenset(),
        runtimes=frozenset({"podman"}) if draw.random() < 0.5 else frozenset(),
        labels=frozenset({f"rack=r{draw.randrange(3)}"}),
        memory_bytes=draw.choice((0, 2, 4, 5, 7)),
        cpu_count=draw.choice((0, 1, 2, 8)),
        cores=draw.choice((0, 0, 3)),
    )


def pool_values(pool: Pool) -> tuple[object, ...]:
    traits = [pool.traits.mask(text) for text in TEXTS]
    told = pool.masks, pool.buckets, pool.total, pool.sizes, pool.widths, list(pool.node_ids)
    return (*told, traits)


def values(capacity: Capacity) -> object:
    capacity.ready()
    pools = [
        [(name, pool_values(pool)) for name, pool in each.items()]
        for each in (capacity.free, capacity.open, capacity.total)
    ]
    return capacity.node_ids, capacity.ordinals, capacity.free_devices, pools


def at_once(capacity: Capacity) -> Capacity:
    """The same nodes and claims, put into a new one."""
    other = Capacity()
    for node in capacity.nodes.values():
        other.put_node(node)
    for node_id, claims in capacity.claims.items():
        for key, mask in claims.items():
            other.claim(key, an_allocation((node_id, mask)), soon=False)
    return other


@pytest.mark.parametrize("seed", range(12))
def test_pools_do_not_depend_on_how_nodes_came(seed: int) -> None:
    draw = random.Random(seed)
    capacity = Capacity()
    names = [f"n{at:02d}" for at in range(16)]
    for name in draw.sample(names, 10):
        capacity.put_node(drawn(draw, name))
    for step in range(60):
        name = NodeId(draw.choice(names))
        held = capacity.claims.get(name)
        if held:
            (key, mask), *_ = held.items()
            capacity.release(key, an_allocation((name, mask)), soon=False)
        elif name in capacity.nodes and draw.random() < 0.3:
            capacity.remove_node(name)
        elif name in capacity.nodes and draw.random() < 0.5:
            mask = 1 << draw.randrange(len(capacity.nodes[name].gpus))
            claim = an_allocation((name, mask))
            capacity.claim(AttemptKey(JobId(step), 1), claim, soon=False)
        else:
            capacity.put_node(drawn(draw, name))
        if draw.random() < 0.7:
            assert values(capacity) == values(at_once(capacity))
    assert values(capacity) == values(at_once(capacity))


@pytest.mark.parametrize("seed", range(5))
def test_traits_of_nodes_are_kept_up(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [drawn(draw, f"n{at:02d}") for at in range(0, 24, 2)]
    traits = Traits({}, nodes)
    for step in range(40):
        at = draw.randrange(len(nodes))
        if step % 3 == 0:
            nodes.insert(at, drawn(draw, f"n{at:02d}"))
            traits.insert(at, nodes[at])
        elif step % 3 == 1:
            nodes[at] = drawn(draw, nodes[at].node_id)
            traits.change(at, nodes[at])
        else:
            del nodes[at]
            traits.delete(at)
        for text in TEXTS:
            able = sum(has_all(node, text) << place for place, node in enumerate(nodes))
            assert traits.mask(text) & (1 << len(nodes)) - 1 == able, text


def test_traits_for_which_nobody_asks_any_more_are_let_go() -> None:
    nodes = [a_node("n1", memory_bytes=10)]
    traits = Traits({}, nodes)
    for number in range(300):
        assert traits.mask(f"k=v{number}") == 0
    traits.insert(1, a_node("n2", labels=frozenset({"k=v7"})))
    assert traits.mask("k=v7") == 0b10


def test_a_place_in_a_mask_is_made_and_closed() -> None:
    assert gap_at(0b1011, 1) == 0b10101
    assert gap_at(0b11, 2) == 0b11
    for place in range(5):
        assert closed_at(gap_at(0b1011, place), place) == 0b1011


@pytest.mark.parametrize("others", [20, 2_000])
def test_a_node_that_comes_looks_at_no_other_node(others: int) -> None:
    capacity = Capacity()
    for at in range(others):
        capacity.put_node(a_node(f"n{at:04d}", memory_bytes=at))
    capacity.ready()
    capacity.free["H100-80GB"].traits.mask("memory>=10&rack=r1")
    with counted_calls(of_c=True) as calls:
        capacity.put_node(a_node("n0007-more", memory_bytes=7))
        capacity.ready()
    assert sum(calls.values()) < 250
