"""Usage in words: a table of who used what, and one of what the GPUs did; or lines for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from dlq.v1 import usage_service_pb2 as wire
from dlq_cli.facts.common import Facts
from dlq_cli.facts.usage import pool_facts, usage_facts
from dlq_cli.past import local
from dlq_cli.render import Cell, Look, table
from dlq_common.wire import from_timestamp


def usage_text(answer: wire.GetUsageResponse, by: tuple[str, ...], look: Look) -> str:
    """Both tables, and from when to when."""
    rows = [usage_facts(one, by) for one in answer.usages]
    text = f"{local(from_timestamp(answer.from_time))} to {local(from_timestamp(answer.until_time))}, in GPU-hours\n"
    text += _table(rows, by, look)
    if answer.pools:
        text += "\n" + _table([pool_facts(one, by) for one in answer.pools], ("day", "pool"), look)
    return text


def usage_csv(answer: wire.GetUsageResponse, by: tuple[str, ...]) -> str:
    """The groups, one a line; the pools are another table, and not in it."""
    rows = [usage_facts(one, by) for one in answer.usages]
    made = io.StringIO()
    writer = csv.DictWriter(made, list(usage_facts(wire.Usage(), by)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return made.getvalue()


def _table(rows: Sequence[Facts], groups: Iterable[str], look: Look) -> str:
    if not rows:
        return ""
    left = set(groups)
    cells = [Cell(_heading(name), right=name not in left) for name in rows[0]]
    shown = [[_shown(value) for value in row.values()] for row in rows]
    return table(cells, shown, look)


def _heading(name: str) -> str:
    return name.removesuffix("_gpu_hours").upper() if name != "gpu_hours" else "HELD"


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
