"""/metrics/slurm: the figures of the cluster by the names that dashboards for Slurm use."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.rpc.metrics.slurm import slurm_families
from dlq_master.store.batch import Batch
from support.master_harness import Master
from support.metric_names import ROOT
from support.metric_pages import told
from support.sim_agent import SimAgent

PAGE = ROOT / "docs" / "reference" / "slurm-metrics.md"


@pytest.fixture
def master() -> Iterator[Master]:
    """Two nodes of 4 GPUs: one is full, the other has a job on two. One job waits, one is held."""
    master = Master()
    agents = [SimAgent(master, NodeId(name)) for name in ("gpu01", "gpu02")]
    for agent in agents:
        agent.hello()
    for gpus in (4, 2, 4):
        master.submit(gpus)
    master.hold(master.submit(4).job_id)
    for agent in agents:
        agent.obey()
    yield master
    master.close()


def figures(master: Master) -> dict[str, float]:
    return told(slurm_families(master.loop.published, master.loop._meter))


def test_jobs_nodes_and_gpus_have_slurms_words(master: Master) -> None:
    found = figures(master)
    assert found["slurm_jobs"] == 4
    assert found["slurm_queue_pending"] == found["slurm_jobs_pending"] == 2
    assert found["slurm_jobs_hold"] == 1
    assert found["slurm_queue_running"] + found["slurm_queue_configuring"] == 2
    assert found['slurm_partition_jobs_pending{partition="default"}'] == 2
    assert (found["slurm_nodes"], found["slurm_nodes_alloc"]) == (2, 1)
    assert found["slurm_nodes_mix"] == found["slurm_nodes_mixed"] == 1
    assert found["slurm_nodes_idle"] == found["slurm_nodes_down"] == 0
    assert (found["slurm_gpus_alloc"], found["slurm_gpus_idle"]) == (6, 2)
    assert (found["slurm_gpus_total"], found["slurm_gpus_utilization"]) == (8, 0.75)
    assert found["slurm_sdiag_jobs_submitted"] == 4
    assert found["slurm_schedule_cycle_cnt"] > 0


def test_a_drained_node_is_neither_idle_nor_mixed(master: Master) -> None:
    read = master.loop.published
    node = read.node(NodeId("gpu02"))
    assert node is not None
    read.publish(Batch(nodes=[node._replace(flags=frozenset({NodeFlag.CORDONED}))]))
    found = figures(master)
    assert (found["slurm_nodes_drain"], found["slurm_nodes_mix"]) == (1, 0)
    read.publish(Batch(nodes=[node]))  # as on disk


def test_each_name_is_documented_and_no_other_is(master: Master) -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line[:3] == "| `"]
    documented = {name for row in rows for name in re.findall(r"`(slurm_\w+)", row)}
    names = [one.name for one in slurm_families(master.loop.published, master.loop._meter)]
    assert len(names) == len(set(names))
    assert documented == set(names)
