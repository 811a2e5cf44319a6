"""What a look at /metrics costs, counted in calls of functions: never more with more jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlq_master.control.config import MetricsConfig
from dlq_master.control.loop.meter import Meter
from dlq_master.model.ids import NodeId
from dlq_master.rpc.metrics.exposition import MetricFamily, openmetrics_page
from dlq_master.rpc.metrics.health import health_families
from dlq_master.rpc.metrics.infos import info_families
from dlq_master.rpc.metrics.page import cluster_families
from dlq_master.rpc.metrics.work import flow_families
from support.counted_calls import counted_calls
from support.master_harness import Master
from support.metric_pages import told
from support.sim_agent import SimAgent


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    for name in ("gpu01", "gpu02", "gpu03"):
        SimAgent(master, NodeId(name)).hello()
    for _ in range(40):
        master.submit(1)
    master.hold(master.submit(1).job_id)
    yield master
    master.close()


def families(master: Master) -> Iterator[MetricFamily]:
    read = master.loop.published
    yield from cluster_families(read, Meter())
    yield from flow_families(read)
    yield from info_families(read, MetricsConfig())
    yield from health_families(read, master.clock.now_s())


def calls_of_a_scrape(master: Master) -> int:
    """Functions that one look calls, C functions as well."""
    openmetrics_page(families(master))  # what has changed has been looked at
    with counted_calls(of_c=True) as calls:
        openmetrics_page(families(master))
    return calls.total()


def test_a_scrape_calls_as_many_functions_for_many_jobs_as_for_few(master: Master) -> None:
    few = calls_of_a_scrape(master)
    for _ in range(30):
        master.submit(1)
        master.hold(master.submit(1).job_id)
    assert len([*master.loop.published.jobs()]) > 60
    assert calls_of_a_scrape(master) == few


def test_a_scrape_looks_only_at_nodes_that_have_changed(master: Master) -> None:
    read = master.loop.published
    told(families(master))
    looked = read.node_tally.looked
    told(families(master))
    assert read.node_tally.looked == looked
    running = next(iter(read.living()))
    master.cancel(running.key.job_id)
    told(families(master))
    assert read.node_tally.looked == looked + 1


def test_names_are_on_the_page_only_where_the_configuration_asks(master: Master) -> None:
    read = master.loop.published
    assert told(info_families(read, MetricsConfig())) == {}
    nodes = told(info_families(read, MetricsConfig(node_info=True)))
    assert len(nodes) == 3
    assert all(name.startswith("dlq_node_info{") for name in nodes)
    jobs = told(info_families(read, MetricsConfig(job_info=True)))
    assert len(jobs) == 12
    assert all('user="alice"' in name and 'UUID="' in name for name in jobs)
