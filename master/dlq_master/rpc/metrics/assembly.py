"""Assembles the pages of metrics. Only a master that serves them imports this module."""

from __future__ import annotations

from collections.abc import Iterator

from dlq_common.clock import Clock
from dlq_common.text.addresses import is_loopback
from dlq_master.control.config import MasterConfig
from dlq_master.control.loop.loop import Loop
from dlq_master.control.loop.meter import Meter
from dlq_master.control.read_model.ports import Foresight
from dlq_master.leader.lease import MasterPart
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.metrics.access import MetricsDoor, MetricsTls
from dlq_master.rpc.metrics.exposition import MetricFamily
from dlq_master.rpc.metrics.health import health_families, queue_families
from dlq_master.rpc.metrics.host import HostMetrics
from dlq_master.rpc.metrics.infos import info_families
from dlq_master.rpc.metrics.leading import leader_families, readiness
from dlq_master.rpc.metrics.metrics import MetricsServer, Source
from dlq_master.rpc.metrics.page import cluster_families
from dlq_master.rpc.metrics.slurm import slurm_families
from dlq_master.rpc.metrics.token_file import token_file_of
from dlq_master.rpc.metrics.work import call_families, flow_families, hook_families
from dlq_master.rpc.server import MasterServer


def metrics_server(
    config: MasterConfig,
    loop: Loop,
    meter: Meter,
    host: HostMetrics,
    clock: Clock,
    server: MasterServer,
    foresight: Foresight,
    authority: Signs,
) -> MetricsServer:
    """The server of `listen.metrics`, not started. ConfigError: its token file is of no use."""
    address = config.listen.metrics
    token = token_file_of(config.metrics.token_file)
    tls = None if is_loopback(address) else MetricsTls(authority, clock, demanding=token is None)
    door = MetricsDoor(tls=tls, token=token, check_member=server.check_member)

    def part() -> MasterPart | None:
        return None if server.lead is None else server.lead.part()

    def families() -> Iterator[MetricFamily]:
        read, now_s = loop.published, clock.now_s()
        yield from cluster_families(read, meter)
        yield from flow_families(read, exemplars=config.metrics.job_info)
        yield from info_families(read, config.metrics)
        yield from call_families(server.times)
        yield from hook_families(None if server.hooks is None else server.hooks.desk)
        yield from health_families(read, now_s)
        yield from queue_families(loop.waiting, foresight, now_s)
        yield from host.families()
        yield from leader_families(part())

    pages: dict[str, Source] = {"/metrics": families}
    if config.metrics.slurm_names:
        pages["/metrics/slurm"] = lambda: slurm_families(loop.published, meter)
    return MetricsServer(address, pages, clock, door, ready=lambda: readiness(part()))
