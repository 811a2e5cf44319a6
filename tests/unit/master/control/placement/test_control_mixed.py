"""GPUs of several types at once, live: placed last, told to every rank, and never what nobody
has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.errors import Unsatisfiable
from dlq_master.control.config import GpuTypeConfig
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


def test_every_rank_is_told_the_shares_of_the_batch_by_declared_speeds(
    masters: Callable[..., Master],
) -> None:
    master = masters(replace(config_of("dlq"), gpu_types={"a100": GpuTypeConfig(speed=0.5)}))
    kinds = {"n1": "h100", "n2": "a100"}
    agents = [SimAgent(master, NodeId(name), gpu_type=kind) for name, kind in kinds.items()]
    for agent in agents:
        agent.hello()
    job_id = master.submit(request=Request(gpus=8, mixed=True)).job_id
    rigid = master.submit(2)
    for agent in agents:
        agent.obey()
    attempt = master.attempt(job_id)
    shares = {
        kinds[slot.node_id]: share
        for slot, share in zip(
            attempt.lease.allocation.slots,
            agents[0].ranks[attempt.key].launch.node_batch_shares,
            strict=True,
        )
    }
    assert shares == pytest.approx({"h100": 1 / 6, "a100": 1 / 12})
    assert sum(4 * share for share in shares.values()) == pytest.approx(1.0)
    launches = [agent.ranks[attempt.key].launch.node_batch_shares for agent in agents]
    assert launches[0] == launches[1]
    assert rigid.live_attempt is None


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
