"""The forecasts of a twin, as values that both ends know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import Node


class Range(NamedTuple):
    """An instant at best, probably and at worst. `inf`: later than the forecast reaches."""

    low_s: float
    likely_s: float
    high_s: float


class PastRuns(NamedTuple):
    """A job that is over, whatever came of it."""

    user: str
    name: str
    run_s: float  # seconds of work on the GPUs that it asked for
    limit_s: float | None = None
    estimate_s: float | None = None


class Forecast(NamedTuple):
    """When jobs that wait at `at_s` will start. A job that starts in no world is left out.

    `complete_to_s`: so far the likely world was worked out. `worlds`: how many were, in `cpu_s`.
    `ends`: of jobs with deadlines, where that was asked for.
    """

    at_s: float
    starts: Mapping[JobId, Range]
    complete_to_s: float
    worlds: int
    cpu_s: float = 0.0
    ends: Mapping[JobId, Range] = {}


class StartEstimate(NamedTuple):
    """The same for one job. None: in no world. `basis`: the source of its run time. `judged`: the
    likely world has judged its deadlines, and promised the step `promised`, or none.
    """

    at_s: float
    start: Range | None
    end: Range | None
    basis: str
    judged: bool = False
    promised: int | None = None


class Compared(NamedTuple):
    """All that wait, as things are and as they would be."""

    now: Forecast
    then: Forecast


class Changes(NamedTuple):
    """The changed assumption: other nodes, other jobs, or another policy. `lost`: nodes that die
    with the work of their jobs; `come`: jobs that are submitted now.
    """

    more: tuple[Node, ...] = ()
    closed: tuple[NodeId, ...] = ()
    policy: str = ""
    settings: Mapping[str, str] = {}
    lost: tuple[NodeId, ...] = ()
    come: tuple[Job, ...] = ()
