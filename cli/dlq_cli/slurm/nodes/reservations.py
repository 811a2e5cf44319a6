"""Reservations of nodes as `scontrol show reservation` and `sinfo -T` print them."""

from __future__ import annotations

import time

from dlq_cli.app import App
from dlq_client.reservations import Reservations
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.wire import from_timestamp
from dlq_compat.job_page import clock


def reservation_pages(app: App, *, one_line: bool) -> list[str]:
    """One page each; dlq's are of whole nodes, and no job runs in them."""
    pages = []
    for one in Reservations(app.connection()).list():
        begin_s, end_s = from_timestamp(one.begin_time), from_timestamp(one.end_time)
        state = "ACTIVE" if one.state == "active" else "INACTIVE"
        lines = [
            f"ReservationName={one.reservation_id} StartTime={_local(begin_s)} "
            f"EndTime={_local(end_s)} Duration={clock(end_s - begin_s)}",
            f"Nodes={compress_hostlist(one.node_ids)} NodeCnt={len(one.node_ids)} CoreCnt=0 "
            "Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES",
            "TRES=(null)",
            f"Users={one.created_by} Groups=(null) Accounts=(null) Licenses=(null) "
            f"State={state} BurstBuffer=(null) Watts=n/a",
            "MaxStartDelay=(null)",
        ]
        pages.append(" ".join(lines) if one_line else "\n   ".join(lines) + "\n")
    return pages


def _local(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s))
