"""Lists of nodes: by states, flags, GPU types and words, in pages, with their count."""

from __future__ import annotations

from typing import Any

import pytest

from dlq.v1 import node_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_master.model.nodes.node import Gpu, NodeFlag, NodeState
from dlq_master.rpc.cluster.node_lists import page_of, wanted_nodes
from support.fake_clock import FakeClock
from support.fake_control import FakeControl, FakeRead


async def _rests(_cost: int) -> None:
    """Nobody else is there."""


@pytest.fixture
def read() -> FakeRead:
    control = FakeControl(FakeClock())
    nodes = control.published.all_nodes
    for number in range(1, 131):
        node = control.add_node(f"gpu{number:03}")
        nodes[node.node_id] = node._replace(
            gpus=(Gpu(index=0, gpu_type="H100" if number % 2 else "A100"),),
            labels=frozenset({f"rack=R{number // 10}"}),
            state=NodeState.DOWN if number % 10 == 0 else NodeState.UP,
            flags=frozenset({NodeFlag.DRAINING}) if number == 7 else frozenset(),
        )
    return control.published


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ({}, 130),
        ({"states": ["down"]}, 13),
        ({"states": ["down", "up"]}, 130),
        ({"flags": ["draining", "cordoned"]}, 1),
        ({"gpu_type": "H100"}, 65),
        ({"gpu_type": "h100"}, 0),
        ({"text": "GPU00"}, 9),
        ({"text": "rack=r12 gpu"}, 10),
        ({"text": "gpu00", "states": ["down"]}, 0),
    ],
)
async def test_the_nodes_that_fit_are_listed_in_pages(
    read: FakeRead, words: dict[str, Any], count: int
) -> None:
    found = await wanted_nodes(wire.ListNodesRequest(**words), read, _rests)
    assert len(found) == count
    names, token = list[str](), ""
    while True:
        page, token = page_of(found, token, 7)
        names += [node.node_id for node in page]
        if not token:
            break
    assert names == sorted(node.node_id for node in found)


@pytest.mark.parametrize(
    "words", [{"states": ["upp"]}, {"flags": ["drained"]}, {"text": "a b c d e f g h i"}]
)
async def test_a_word_that_nobody_knows_is_refused(read: FakeRead, words: dict[str, Any]) -> None:
    request = wire.ListNodesRequest(**words)
    with pytest.raises(InvalidRequest):
        await wanted_nodes(request, read, _rests)
