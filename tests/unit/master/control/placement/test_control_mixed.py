"""GPUs of several types at once, live: placed last, told to every rank, and never what nobody
has.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlq_common.errors import Unsatisfiable
from dlq_master.model.ids import NodeId
from dlq_master.model.resources import Request
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent

TYPES = {"gpu01": "H100", "gpu02": "A100"}


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    return masters(config_of("dlq"))


@pytest.fixture
def nodes(master: Master) -> list[SimAgent]:
    """Four GPUs of each of two types."""
    agents = [SimAgent(master, NodeId(name), gpu_type=kind) for name, kind in TYPES.items()]
    for agent in agents:
        agent.hello()
    return agents


def test_it_starts_on_all_types_and_every_rank_is_told_them(
    master: Master, nodes: list[SimAgent]
) -> None:
    job_id = master.submit(request=Request(gpus=6, mixed=True)).job_id
    for agent in nodes:
        agent.obey()
    launches = [rank.launch for agent in nodes for rank in agent.ranks.values()]
    slots = master.attempt(job_id).lease.allocation.slots
    told = tuple(TYPES[slot.node_id] for slot in slots)
    assert sorted(told) == ["A100", "H100"]
    assert [launch.node_gpu_types for launch in launches] == [told, told]


@pytest.mark.usefixtures("nodes")
def test_who_did_not_say_so_is_refused_what_no_type_has(master: Master) -> None:
    with pytest.raises(Unsatisfiable):
        master.submit(6)
    with pytest.raises(Unsatisfiable) as refused:
        master.submit(request=Request(gpus=9, mixed=True))
    assert "of all types together there are 8" in str(refused.value.metadata)


@pytest.mark.usefixtures("nodes")
def test_it_waits_for_others_and_a_restart_of_the_master_keeps_it(master: Master) -> None:
    blocker = master.submit(4).job_id
    job_id = master.submit(request=Request(gpus=6, mixed=True)).job_id
    assert master.job(blocker).live_attempt == 1
    master.restart()
    assert master.job(job_id).request.mixed
    assert master.job(job_id).live_attempt is None
