"""Whom reservations keep off which nodes: one answer for a master and for a replay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.node import Node
from dlq_master.model.nodes.windows import runs_into, runs_into_later_s


class KeptNodes(NamedTuple):
    """A job that does not run keeps off `off`; `until_s`: nothing but an event of the job, or of a
    reservation, changes that before (inf: at all)."""

    off: tuple[NodeId, ...]
    until_s: float


def kept_off(job: Job, booked: Iterable[Node], now_s: float, terms: Terms) -> KeptNodes:
    """For these nodes, in their order."""
    nodes = [node for node in booked if node.windows]
    off = [node.node_id for node in nodes if runs_into(job, node.windows, now_s, terms)]
    windows = [window for node in nodes for window in node.windows]
    return KeptNodes(tuple(off), runs_into_later_s(job, windows, now_s, terms))


def is_reserved(node: Node, now_s: float) -> bool:
    """Whether one of its reservations has begun, and is not over."""
    return any(window.begin_s <= now_s < window.end_s for window in node.windows)
