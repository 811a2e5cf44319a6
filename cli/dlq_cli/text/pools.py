"""Priced pools in words."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import pool_service_pb2 as wire
from dlq_cli.output.render import Cell, OutputLook, clean_line, table, when
from dlq_common.text.wire import from_timestamp

POOLS = [
    Cell("POOL"),
    Cell("PROVIDER"),
    Cell("MACHINE"),
    Cell("PER HOUR"),
    Cell("THERE"),
    Cell("MOST"),
    Cell("NOW"),
]
MACHINES = [
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
NO_POOLS = "no pools: nothing can be rented ([[pools]] in master.toml)"


def pools_text(told: wire.ListPoolsResponse, look: OutputLook) -> str:
    """One line for each pool, and the total cost."""
    if not told.pools:
        return f"{NO_POOLS}\n"
    return table(POOLS, [pool_row(pool) for pool in told.pools], look) + f"{sum_words(told)}\n"


def pool_row(pool: wire.Pool) -> list[str]:
    """A pool in the columns POOLS."""
    return [
        pool.name,
        pool.provider,
        f"{pool.gpu_count} x {pool.gpu_type}",
        f"{pool.price_per_hour:g}",
        str(sum(one.state not in GONE for one in pool.machines)),
        str(pool.most_count),
        clean_line(pool.closed_reason) or "may be rented",
    ]


def sum_words(told: wire.ListPoolsResponse) -> str:
    """The cost of all machines, beside the limits."""
    hour = f"{told.cost_per_hour:.2f}" + (
        f" of {told.most_per_hour:.2f}" if told.HasField("most_per_hour") else ""
    )
    day = f"{told.day_cost:.2f}" + (
        f" of {told.most_per_day:.2f}" if told.HasField("most_per_day") else ""
    )
    return f"an hour costs {hour} now; the last 24 hours cost {day}"


def machines_text(machines: Sequence[wire.Machine], look: OutputLook) -> str:
    """One line for each machine."""
    rows = [machine_row(one, look) for one in machines]
    return table(MACHINES, rows, look) if rows else "no machines\n"


def machine_row(one: wire.Machine, look: OutputLook) -> list[str]:
    """A machine in the columns MACHINES."""
    return [
        one.request_id,
        one.state,
        clean_line(one.instance_id) or "-",
        when(from_timestamp(one.ask_time), look),
        f"{one.cost:.2f}",
        ",".join(one.attempts) or "-",
        ",".join(one.job_ids) or "-",
        clean_line(one.fault) or "-",
    ]
