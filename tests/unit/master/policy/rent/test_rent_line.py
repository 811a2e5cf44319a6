"""When who waits would be done on the own nodes: worked out from what the cluster keeps, and node
by node, it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import NodeFlag, NodePool, NodeState
from dlq_master.policy.rent.line import LineEntry, own_node_ends_s, waiting_in_order
from support import plain_line
from support.builders import World, a_job, a_node
from support.extent import times

# What a node may be: whose it is, with which flags, in which state, and which of its GPUs take no
# work.
PLAIN, LENT = frozenset[NodeFlag](), frozenset({NodeFlag.LOANED})
stands: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"flags": frozenset({NodeFlag.CORDONED})},
        {"flags": frozenset({NodeFlag.DRAINING}), "withheld": 1},
        {"state": NodeState.UNREACHABLE},
        {"withheld": 5},
        {"pool": NodePool.INFERENCE, "flags": LENT},
        {"pool": NodePool.INFERENCE, "flags": LENT, "withheld": 3},
        {"pool": NodePool.INFERENCE, "flags": PLAIN},
        {"pool": NodePool.PRICED, "flags": PLAIN},
    ]
)
lasts = st.sampled_from([None, 0.0, 10.0, 600.0, 5000.0])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some run, on nodes that then become what they may be; the others wait."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    nodes = [a_node(f"n{n}", gpus) for n, gpus in enumerate(sizes)]
    world = World(nodes=nodes)
    asked = st.lists(st.tuples(st.integers(1, 6), lasts), max_size=5)
    early = [
        a_job(n, gpus, duration_estimate_s=told) for n, (gpus, told) in enumerate(draw(asked), 1)
    ]
    world.submit(*early).decide()
    world.now_s += draw(st.sampled_from([0.0, 5.0, 700.0]))
    for node in nodes:
        world.cluster.put_node(node._replace(**draw(stands)))
    late = enumerate(draw(asked), 1 + len(early))
    return world.submit(*(a_job(n, gpus, duration_estimate_s=told) for n, (gpus, told) in late))


def as_entries(jobs: Sequence[Job]) -> list[LineEntry]:
    """Every third may have one GPU more, and then takes half as long."""
    return [
        LineEntry(
            int(job.job_id),
            job.gpus_now,
            lasts_s := job.duration_estimate_s or 60.0,
            ((job.gpus_now + 1, lasts_s / 2),) if job.job_id % 3 == 0 else (),
        )
        for job in jobs
    ]


@settings(max_examples=times(100, 2000))
@given(world=worlds(), grows=st.booleans(), gives_way=st.booleans(), moves=st.integers(0, 3))
def test_it_is_the_same_node_by_node(
    world: World, grows: bool, gives_way: bool, moves: int
) -> None:
    cluster = world.cluster
    line = [
        *waiting_in_order(cluster, cluster.waiting),
        *(cluster.jobs[job_id] for job_id in cluster.pending),
    ]
    first = line[0].job_id if line and gives_way else None
    outranked = {} if first is None else dict.fromkeys([*cluster.attempts][:2], first)
    moving = {key: cluster.jobs[key.job_id] for key in [*cluster.attempts][:moves]}
    how: dict[str, Any] = {"grows": grows, "outranked": outranked}
    found = own_node_ends_s(cluster, world.now_s, line, as_entries, **how, moving=moving)
    ahead = [job for key, job in moving.items() if key not in outranked]  # who gives way does that
    behind = [cluster.jobs[key.job_id] for key in outranked]
    stood = as_entries([*ahead, *line[:1], *behind, *line[1:]])
    left = moving.keys() - outranked.keys()
    assert found == plain_line.own_node_ends_s(cluster, world.now_s, stood, **how, moving=left)
