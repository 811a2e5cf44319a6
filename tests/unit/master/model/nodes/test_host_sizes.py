"""Requests that the nodes cannot tell apart are one shape, and none that they can is."""

import random

import pytest

from dlq_master.model.nodes.host_sizes import CountedSizes, HostSizes
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import Request
from dlq_master.model.traits import Traits, wanted
from support.builders import World, a_job, a_node
from support.counted_calls import counted_calls

GIB = 2**30


def counted(nodes: list[Node]) -> CountedSizes:
    sizes = CountedSizes()
    for node in nodes:
        sizes.change(None, node)
    return sizes


def sizes_of(nodes: list[Node]) -> HostSizes:
    return counted(nodes).change(None, None)


def asks(gib: int) -> str:
    text = wanted(None, memory_bytes=gib * GIB)
    assert text is not None
    return text


@pytest.mark.parametrize(
    ("gib", "alike"),
    [
        (40, None),
        (64, None),
        (65, f"memory>={64 * GIB + 1}"),
        (128, f"memory>={64 * GIB + 1}"),
        (129, f"memory>={128 * GIB + 1}"),
    ],
)
def test_a_size_counts_only_by_the_nodes_that_are_too_small(gib: int, alike: str | None) -> None:
    nodes = [a_node(f"n{size}", memory_bytes=size * GIB) for size in (64, 128)]
    assert sizes_of([*nodes, a_node("silent")]).alike(asks(gib)) == alike


def test_other_traits_stay_as_they_are() -> None:
    sizes = sizes_of([a_node("n1", memory_bytes=64 * GIB, cpu_count=8)])
    text = wanted("podman", ["rack=r1"], cpus=4, memory_bytes=99 * GIB) or ""
    assert sizes.alike(text) == f"podman&rack=r1&memory>={64 * GIB + 1}"


@pytest.mark.parametrize("seed", range(20))
def test_alike_requests_have_the_same_nodes_and_others_have_not(seed: int) -> None:
    draw = random.Random(seed)
    nodes = [
        a_node(f"n{at}", memory_bytes=draw.choice((0, 1, 2, 5, 9)), cpu_count=draw.randrange(4))
        for at in range(6)
    ]
    traits, sizes = Traits({}, nodes), sizes_of(nodes)
    asked = [
        text
        for memory in range(11)
        for cpus in range(5)
        if (text := wanted(None, cpus=cpus or None, memory_bytes=memory or None))
    ]
    able = {text: traits.mask(text) & 63 for text in asked}
    for text in asked:
        alike = sizes.alike(text)
        assert (63 if alike is None else traits.mask(alike) & 63) == able[text]
    lines = {sizes.alike(text) for text in asked if text.count(">") == 1}
    assert len(lines) <= len({*able.values()}) + 1


@pytest.mark.parametrize("seed", range(30))
def test_a_line_that_is_kept_has_no_request_that_is_now_another(seed: int) -> None:
    draw = random.Random(seed)
    nodes = {at: a_node(f"n{at}", memory_bytes=draw.randrange(12)) for at in range(4)}
    sizes = counted(list(nodes.values()))
    former = sizes.change(None, None)
    place = draw.randrange(4)
    now = sizes.change(nodes[place], a_node(f"n{place}", memory_bytes=draw.randrange(12)))
    for least in range(1, 14):
        was = former.alike(f"memory>={least}")
        if now.keeps(was, former):
            assert now.alike(f"memory>={least}") == was


def test_a_node_that_changes_no_size_moves_nobody() -> None:
    sizes = counted([a_node("n1", memory_bytes=GIB)])
    first = sizes.change(None, None)
    assert sizes.change(None, a_node("n2", memory_bytes=GIB)) is first
    assert sizes.change(a_node("n2", memory_bytes=GIB), None) is first
    assert sizes.change(None, a_node("n3", memory_bytes=2 * GIB)) is not first
    assert first.steps == {"memory": [GIB]}, "a value stays as it is"


@pytest.mark.parametrize("seed", range(10))
def test_sizes_are_those_of_the_nodes_that_are_there(seed: int) -> None:
    draw = random.Random(seed)
    nodes = dict.fromkeys(range(5), a_node("n"))
    sizes = counted([*nodes.values()])
    for _ in range(30):
        at, node = draw.randrange(5), a_node("n", memory_bytes=draw.randrange(4))
        now = sizes.change(nodes[at], node)
        nodes[at] = node
        told = {node.memory_bytes for node in nodes.values()} - {0}
        assert now.steps.get("memory", []) == sorted(told)


def test_waiting_jobs_change_their_line_as_nodes_come_change_and_go() -> None:
    world = World("best-effort", nodes=[a_node("n1", gpus=1, memory_bytes=64 * GIB)])
    for number, gib in enumerate((1, 40, 60, 64), start=1):
        request = Request(gpus=1, memory_bytes_per_node=gib * GIB)
        world.submit(a_job(number, request=request))
    world.decide()
    assert shapes(world) == [None]
    small = a_node("n2", gpus=1, memory_bytes=48 * GIB)
    for node, expected in (
        (small, [None, f"memory>={48 * GIB + 1}"]),
        (small._replace(memory_bytes=50 * GIB), [None, f"memory>={50 * GIB + 1}"]),
        (small._replace(memory_bytes=0), [None]),
    ):
        world.cluster.put_node(node)
        world.settle_moves()
        assert shapes(world) == expected
    world.cluster.put_node(small)
    world.cluster.remove_node(small.node_id)
    assert shapes(world) == [None]
    world.decide()


def shapes(world: World) -> list[str | None]:
    lines = world.cluster.waiting.by_priority.values()
    return sorted({shape.traits for line in lines for shape in line}, key=lambda it: it or "")


@pytest.mark.parametrize("others", [10, 1_000])
def test_a_node_of_a_size_of_its_own_costs_few_calls_among_many(others: int) -> None:
    sizes = counted([a_node(f"n{at}", memory_bytes=GIB + at) for at in range(others)])
    with counted_calls() as calls:
        sizes.change(None, a_node("new", memory_bytes=2 * GIB))
    assert sum(calls.values()) < 60
