"""The page of metrics and the documentation name the same series."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.fence import LeaderFence
from dlq_common.identity.pki import Authority
from dlq_master.control.composition.starting import NO_LOSSES
from dlq_master.control.config import MetricsConfig
from dlq_master.control.loop.meter import Meter
from dlq_master.leader.lease import MasterPart
from dlq_master.model.ids import JobId, NodeId
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.calls.call_times import CallTimes
from dlq_master.rpc.metrics.exposition import MetricFamily, openmetrics_page
from dlq_master.rpc.metrics.health import health_families, queue_families
from dlq_master.rpc.metrics.host import HostMetrics
from dlq_master.rpc.metrics.infos import info_families
from dlq_master.rpc.metrics.leading import leader_families
from dlq_master.rpc.metrics.page import cluster_families
from dlq_master.rpc.metrics.work import call_families, flow_families, hook_families
from dlq_master.shipping.status import ShippingStatus, write_status
from dlq_master.store.tables.tenants import Foreseen
from support.fake_clock import FakeClock
from support.fake_foresight import FakeForesight
from support.master_harness import Master
from support.metric_names import PAGES, REFERENCE, documented, expressions, metrics_in
from support.sim_agent import SimAgent

A_STANDBY = MasterPart(
    "head2:7320", False, 9.0, "head1:7320", LeaderFence("71", 1, 7), 4.5, 815, 0.2, "", ()
)


@pytest.fixture
def families(tmp_path: Path) -> list[MetricFamily]:
    """All that a master may tell: every series that is off by default is on."""
    master = Master()
    SimAgent(master, NodeId("gpu01")).hello()
    read, now_s = master.loop.published, master.clock.now_s()
    # A start that was forecast, so that the share of good forecasts is known.
    master.state.forecast.accuracy._keep(Foreseen(JobId(1), 0.0, 1.0, 2.0, 3.0, 2.0))
    clock = SteadyClock()
    audit = Audit(tmp_path / "audit.jsonl", FakeClock())
    authority = Authority.create("lab", clock.now_s())
    write_status(tmp_path, ShippingStatus(time_s=clock.now_s()))
    named = MetricsConfig(node_info=True, job_info=True)
    found = [
        *cluster_families(read, Meter()),
        *flow_families(read),
        *call_families(CallTimes(clock.boottime_s)),
        *hook_families(None),
        *info_families(read, named),
        *health_families(read, now_s),
        *queue_families(0, FakeForesight(), now_s),
        *leader_families(A_STANDBY),
        *HostMetrics(tmp_path, clock, audit.writer, authority, NO_LOSSES).families(),
    ]
    audit.close()
    master.close()
    return found


def test_each_metric_of_the_page_is_documented_and_no_other_is(
    families: list[MetricFamily],
) -> None:
    names = [one.name for one in families]
    assert len(names) == len(set(names)), "a metric comes once"
    assert documented() == set(names)


def test_the_labels_are_those_of_the_page(families: list[MetricFamily]) -> None:
    text = REFERENCE.read_text()
    for one in families:
        told = re.search(rf"`{one.name}(?:\{{([\w,]+)\}})?`", text)
        assert told is not None, one.name
        wanted = set((told[1] or "").split(",")) - {""}
        for sample in one.samples:
            assert {key for key, _ in sample.labels} - {"le"} == wanted, one.name


def test_names_and_kinds_are_as_prometheus_wants_them(families: list[MetricFamily]) -> None:
    for one in families:
        assert re.fullmatch(r"dlq_[a-z0-9_]+", one.name)
        assert (one.kind == "counter") == one.name.endswith("_total"), one.name
        assert (one.kind == "info") == one.name.endswith("_info"), one.name
        assert one.words.endswith("."), one.name


def test_nothing_names_a_job_or_a_person_by_default(
    families: list[MetricFamily],
) -> None:
    for one in families:
        if not one.name.endswith("_info"):
            labels = {key for sample in one.samples for key, _ in sample.labels}
            assert not labels & {"user", "job", "job_id", "node", "UUID"}, one.name


def test_the_page_ends_once(families: list[MetricFamily]) -> None:
    assert openmetrics_page(families).splitlines().count("# EOF") == 1


def test_each_metric_that_alerts_dashboards_and_pages_use_is_on_the_page(
    families: list[MetricFamily],
) -> None:
    names = {one.name for one in families}
    histograms = {one.name for one in families if one.kind == "histogram"}
    used = list(expressions())
    assert len(used) > 70
    for where, text in used:
        named = metrics_in(text, histograms)
        assert named <= names, where
    for page in PAGES:
        assert metrics_in(page.read_text(), histograms) <= names, page
