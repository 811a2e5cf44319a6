"""Priced pools in words."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import pool_service_pb2 as wire
from dlq_cli.output.render import Cell, OutputLook, clean_line, table, when
from dlq_common.text.wire import from_timestamp

_POOLS = [
    Cell("POOL"),
    Cell("PROVIDER"),
    Cell("MACHINE"),
    Cell("PER HOUR"),
    Cell("THERE"),
    Cell("MOST"),
    Cell("NOW"),
]
_MACHINES = [
    Cell("MACHINE"),
    Cell("STATE"),
    Cell("INSTANCE"),
    Cell("ASKED FOR"),
    Cell("COST"),
    Cell("ATTEMPTS"),
    Cell("FOR JOBS"),
    Cell("WHY"),
]
GONE = ("away", "failed")


def pools_text(told: wire.ListPoolsResponse, look: OutputLook) -> str:
    """One line for each pool, and the total cost."""
    rows = [
        [
            pool.name,
            pool.provider,
            f"{pool.gpu_count} x {pool.gpu_type}",
            f"{pool.price_per_hour:g}",
            str(sum(one.state not in GONE for one in pool.machines)),
            str(pool.most_count),
            clean_line(pool.closed_reason) or "may be rented",
        ]
        for pool in told.pools
    ]
    if not rows:
        return "no pools: nothing can be rented ([[pools]] in master.toml)\n"
    hour = f"{told.cost_per_hour:.2f}" + (
        f" of {told.most_per_hour:.2f}" if told.HasField("most_per_hour") else ""
    )
    day = f"{told.day_cost:.2f}" + (
        f" of {told.most_per_day:.2f}" if told.HasField("most_per_day") else ""
    )
    return table(_POOLS, rows, look) + f"an hour costs {hour} now; the last 24 hours cost {day}\n"


def machines_text(machines: Sequence[wire.Machine], look: OutputLook) -> str:
    """One line for each machine."""
    rows = [
        [
            one.request_id,
            one.state,
            clean_line(one.instance_id) or "-",
            when(from_timestamp(one.ask_time), look),
            f"{one.cost:.2f}",
            ",".join(one.attempts) or "-",
            ",".join(one.job_ids) or "-",
            clean_line(one.fault) or "-",
        ]
        for one in machines
    ]
    return table(_MACHINES, rows, look) if rows else "no machines\n"
