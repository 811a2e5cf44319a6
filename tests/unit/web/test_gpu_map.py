"""The GPU map as values: what a GPU does, which are chosen, and which jobs fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dlq.v1 import job_pb2, lease_pb2, node_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq_web.pages.machines.gpu_map import (
    GpuChoice,
    GpuMap,
    GpuUse,
    Mark,
    blocks,
    chosen,
    counts,
    map_of,
)


def node(name: str, places: list[int], percents: list[int] | None = None, **facts: Any) -> Any:
    numbers = range(len(places))
    known: dict[str, Any] = {"open": True, "gpu_types": ["h100"], "pool": "training"} | facts
    return wire.GpuMapNode(
        node_id=name,
        state=node_pb2.NODE_STATE_UP,
        gpu_indexes=numbers,
        lease_places=places,
        utilization_percents=percents or [-1] * len(places),
        **known,
    )


def lease(job: str, state: int = job_pb2.ATTEMPT_STATE_RUNNING, **facts: Any) -> Any:
    return wire.GpuMapLease(job_id=job, user="alice", attempt_state=state, **facts)  # type: ignore[arg-type]


def the_map(nodes: list[Any], leases: Sequence[Any] = ()) -> GpuMap:
    return map_of([wire.GetGpuMapResponse(nodes=nodes, leases=leases)])


def uses(shown: GpuMap) -> list[str]:
    return [str(gpu.use) for node in shown.nodes for gpu in node.gpus]


def test_allocated_used_and_idle_are_three_things() -> None:
    starts = lease("2", job_pb2.ATTEMPT_STATE_STARTING)
    nodes = [node("n1", [0, 0, 0, 1, -1], [80, 0, -1, 0, 0])]
    assert uses(the_map(nodes, [lease("1"), starts])) == ["used", "idle", "held", "held", "free"]


def test_what_takes_no_work_is_withheld_or_closed_and_a_held_one_is_held() -> None:
    closed = node("n1", [-1, -1, 0], [-1, -1, 5], open=False, withheld_gpu_indexes=[1])
    assert uses(the_map([closed], [lease("1")])) == ["closed", "withheld", "used"]


def test_a_gang_of_two_pages_is_one_lease() -> None:
    pages = [
        wire.GetGpuMapResponse(nodes=[node("n1", [0])], leases=[lease("7")]),
        wire.GetGpuMapResponse(nodes=[node("n2", [1, 0])], leases=[lease("7"), lease("8")]),
    ]
    shown = map_of(pages)
    assert [one.job_id for one in shown.leases] == ["7", "8"]
    assert [[gpu.lease for gpu in one.gpus] for one in shown.nodes] == [[0], [1, 0]]


def test_all_numbers_are_of_the_same_choice() -> None:
    promised = lease("1", kind=lease_pb2.LEASE_KIND_SLO)
    nodes = [
        node("n1", [0, -1], [50, -1]),
        node("n2", [1, -1], gpu_types=["a100"]),
        node("n3", [-1], pool="priced", open=False),
        node("n4", [-1], pool="inference", flags=["loaned"]),
    ]
    whole = the_map(nodes, [promised, lease("2")])
    assert sum(counts(whole).values()) == 6
    for choice, names, number in (
        (GpuChoice(gpu_type="a100"), ["n2"], 2),
        (GpuChoice(pool="priced"), ["n3"], 1),
        (GpuChoice(state="free"), ["n1", "n2", "n4"], 3),
        (GpuChoice(state="promised"), ["n1"], 1),
        (GpuChoice(state="lent"), ["n4"], 1),
        (GpuChoice(gpu_type="h100", state="used"), ["n1"], 1),
        (GpuChoice(state="no such word"), [], 0),
    ):
        shown = chosen(whole, choice)
        assert [one.node_id for one in shown.nodes] == names
        assert sum(counts(shown).values()) == number


@pytest.mark.parametrize(
    ("flags", "marks"), [(["loaned"], Mark.LENT), (["lending"], None), ([], None)]
)
def test_a_server_of_the_inference_side_is_marked_while_it_is_lent(
    flags: list[str], marks: Mark | None
) -> None:
    assert the_map([node("n1", [-1], pool="inference", flags=flags)]).nodes[0].mark is marks


def test_a_wide_job_fits_on_whole_nodes_alone() -> None:
    free = [-1] * 8
    nodes = [node("n1", free), node("n2", free), node("n3", [0, *free[1:]]), node("n4", free)]
    (block,) = blocks(the_map(nodes, [lease("1")]))
    assert (block.gpu_type, block.free, block.largest) == ("h100", 31, 8)
    assert block.fits == {8: 3, 16: 1, 32: 0}


def test_a_cluster_without_nodes_or_gpus_has_no_blocks() -> None:
    assert blocks(the_map([])) == []
    empty = the_map([node("n1", [])])
    assert blocks(empty) == []
    assert set(counts(empty)) == set(GpuUse)
