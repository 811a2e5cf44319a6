"""Whom reservations keep off which nodes: one answer for a master and for a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.node import Node
from dlq_master.model.nodes.windows import runs_into, runs_into_later_s

PaceOn = Callable[[Job, Iterable[str]], float]


class KeptNodes(NamedTuple):
    """A job that does not run keeps off `off`; `until_s`: nothing but an event of the job, or of a
    reservation, changes that before (inf: at all)."""

    off: tuple[NodeId, ...]
    until_s: float


def kept_off(
    job: Job,
    booked: Iterable[Node],
    now_s: float,
    terms: Terms,
    pace_on: PaceOn,
) -> KeptNodes:
    """For these nodes, in their order. `pace_on`: how fast the job runs on GPUs of these types."""
    off, until_s = [], inf
    for node in booked:
        if node.windows:
            pace = pace_on(job, node.masks())
            if runs_into(job, node.windows, now_s, terms, pace):
                off.append(node.node_id)
            until_s = min(until_s, runs_into_later_s(job, node.windows, now_s, terms, pace))
    return KeptNodes(tuple(off), until_s)


def is_reserved(node: Node, now_s: float) -> bool:
    """Whether one of its reservations has begun, and is not over."""
    return any(window.begin_s <= now_s < window.end_s for window in node.windows)
