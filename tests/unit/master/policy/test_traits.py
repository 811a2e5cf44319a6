"""Jobs that choose their nodes: by labels, by name; what they get, and what they are told."""

import random

import pytest

from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.free_gpus import Pool
from dlq_master.model.nodes.node import Gpu, Node
from dlq_master.model.resources import PODMAN, Request, Shape
from dlq_master.model.traits import Traits, chosen, has_all, runtime_of, too_small, wanted

GIB = 2**30
N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
NODES = [
    Node(N1, (), labels=frozenset({"rack=r1", "disk=fast"})),
    Node(
        N2,
        (),
        labels=frozenset({"rack=r1"}),
        runtimes=frozenset({PODMAN}),
        cpu_count=8,
        memory_bytes=64 * GIB,
    ),
    Node(
        N3,
        (),
        labels=frozenset({"rack=r2"}),
        runtimes=frozenset({PODMAN}),
        cpu_count=64,
        memory_bytes=63 * GIB,
    ),
]
CASES = [
    (wanted(None, ["rack=r1"]), [N1, N2]),
    (wanted(None, ["rack=r1", "disk=fast"]), [N1]),
    (wanted(PODMAN, ["rack=r1"]), [N2]),
    (wanted(PODMAN), [N2, N3]),
    (wanted(None, ["rack=r9"]), []),
    (wanted(None, ["rack=r"]), []),
    (wanted(None, [], [N3, N1]), [N1, N3]),
    (wanted(None, [], [], [N3, N1]), [N2]),
    (wanted(PODMAN, ["rack=r2"], [N1, N3], [N1]), [N3]),
    (wanted(None, [], [NodeId("gone")]), []),
    (wanted(None, [], [], [NodeId("gone")]), [N1, N2, N3]),
    (wanted(None, cpus=8), [N1, N2, N3]),
    (wanted(None, cpus=9), [N1, N3]),
    (wanted(None, memory_bytes=64 * GIB), [N1, N2]),
    (wanted(None, memory_bytes=64 * GIB + 1), [N1]),
    (wanted(PODMAN, ["rack=r1"], [N2], cpus=8, memory_bytes=GIB), [N2]),
]


@pytest.mark.parametrize(("text", "able"), CASES)
def test_the_nodes_that_have_all_of_it_are_the_same_one_by_one_and_all_at_once(
    text: str, able: list[NodeId]
) -> None:
    assert [node.node_id for node in NODES if has_all(node, text)] == able
    mask = Traits({}, NODES).mask(text)
    assert [node.node_id for at, node in enumerate(NODES) if mask >> at & 1] == able


def test_equal_wishes_are_one_shape_in_whatever_order_they_are_written() -> None:
    one = Request(gpus=1, constraint=("a=1", "b=2"), among=(N1, N2))
    other = Request(gpus=1, constraint=("b=2", "a=1"), among=(N2, N1))
    assert one.shape == other.shape
    assert Request(gpus=1).shape.traits is None


@pytest.mark.parametrize(
    ("text", "runtime", "words"),
    [
        (wanted(PODMAN), PODMAN, []),
        (wanted(PODMAN, ["rack=r1"]), PODMAN, ["rack=r1"]),
        (wanted(None, ["rack=r1"]), None, ["rack=r1"]),
        (wanted(None, [], [N1, N2]), None, ["one of n1,n2"]),
        (wanted(None, ["k=v"], [], [N1]), None, ["k=v", "not n1"]),
        (wanted(None, cpus=1), None, ["nodes with 1 core"]),
        (wanted(PODMAN, memory_bytes=64 * GIB), PODMAN, ["nodes with 64GiB of memory"]),
    ],
)
def test_people_are_told_what_they_chose(text: str, runtime: str | None, words: list[str]) -> None:
    assert runtime_of(text) == runtime
    assert chosen(text) == words


def test_what_is_left_for_a_shape_is_the_same_whichever_way_it_is_worked_out() -> None:
    chance = random.Random(7)
    for _ in range(200):
        count = chance.randrange(1, 12)
        masks = [chance.getrandbits(4) for _ in range(count)]
        able = chance.getrandbits(count)
        pool = Pool([4] * count, traits=Traits({"k=v": able}))
        for ordinal, mask in enumerate(masks):
            pool.set(ordinal, mask)
        got = pool.allowed(Shape(1, None, None, (), "k=v"))
        kept = [mask if able >> at & 1 else 0 for at, mask in enumerate(masks)]
        assert got.masks == kept
        assert got.total == sum(mask.bit_count() for mask in kept)
        assert sum(got.buckets) == (1 << count) - 1
        assert [pool.masks[at] for at in range(count)] == masks, "the pool itself is as it was"


def test_a_size_that_no_host_has_is_told_with_the_largest_there_is() -> None:
    sized = NODES[1:]
    assert too_small(sized, wanted(PODMAN, memory_bytes=65 * GIB) or "") == "64GiB of memory"
    assert too_small(sized, wanted(None, cpus=65, memory_bytes=GIB) or "") == "64 cores"
    assert too_small(sized, wanted(None, ["rack=r1"], cpus=9) or "") == ""
    assert too_small(NODES, wanted(None, memory_bytes=65 * GIB) or "") == "", "n1 may have so much"


def test_a_job_that_halves_its_batch_takes_gpus_with_half_the_memory() -> None:
    sizes = {N1: 80, N2: 40, N3: 0}  # who tells no size is large enough
    nodes = [
        Node(name, (Gpu(index=0, gpu_type="x", memory_bytes=gib * GIB),))
        for name, gib in sizes.items()
    ]

    def able(request: Request) -> list[NodeId]:
        text = request.shape.traits
        assert text is not None
        assert Traits({}, nodes).mask(text) == sum(
            1 << at for at, node in enumerate(nodes) if has_all(node, text)
        )
        return [node.node_id for node in nodes if has_all(node, text)]

    asks = Request(gpus=1, gpu_memory_bytes=80 * GIB)
    assert able(asks) == [N1, N3]
    assert able(Request(gpus=1, gpu_memory_bytes=80 * GIB, halves_batch=True)) == [N1, N2, N3]
    assert asks.shape.traits is not None
    assert too_small(nodes[1:2], asks.shape.traits) == "40GiB of GPU memory"
    assert chosen(asks.shape.traits) == ["nodes with 80GiB of GPU memory"]
