"""Starts whose network traffic is recorded, and what was found: the stored values."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job

_SHORTER_S = 1.0  # an agent looks at its ranks no more often


class Cause(StrEnum):
    """Why a start is recorded."""

    FIRST = "first"  # nothing is known yet of its job or family
    PLACEMENT = "placement"  # not yet on so few, or so many, nodes: how much slower is it there?
    STALE = "stale"  # the estimate is old
    ASKED = "asked"  # its user wants it


class Told(NamedTuple):
    """How something was found, how sure it is, and why it is not known ("": it is)."""

    method: str
    confidence: str
    reason: str = ""


class Found(NamedTuple):
    """The traffic of one attempt, merged over its nodes. An iteration is one in steady state.

    `traffic` judges period and bytes; `sizes` judges model and skew, which is an interval.
    """

    traffic: Told
    sizes: Told
    iterations: int = 0
    period_s: float | None = None
    bytes_per_iteration: float | None = None  # by the busiest process
    model_bytes: float | None = None
    skew_low: float | None = None
    skew_high: float | None = None
    server_skew: float | None = None
    recorded_s: float | None = None  # on the node that recorded least

    @property
    def timed(self) -> bool:
        """How long an iteration takes is known."""
        return not self.traffic.reason and bool(self.period_s)


class Recording(NamedTuple):
    """A start whose traffic is recorded: ordered at its launch, then told by each node."""

    key: AttemptKey
    epoch: int  # with the key's number: the fence of the launch
    family: str
    gpu_type: str
    gpus: int
    node_ids: tuple[NodeId, ...]  # in rank order
    spread: bool  # over more nodes than its width needs
    cause: Cause
    order_time_s: float
    window_s: float
    told: tuple[int, ...] = ()  # ranks whose nodes have told, rising
    found: Found | None = None  # once all have
    found_time_s: float | None = None

    @property
    def trusted(self) -> bool:
        return self.found is not None and self.found.timed

    @property
    def cut_short(self) -> bool:
        """It told nothing, and ended before its window or before all of its nodes had told."""
        found = self.found
        if found is None or found.timed or found.recorded_s is None:
            return False
        return found.recorded_s < self.window_s - _SHORTER_S

    @property
    def complete(self) -> bool:
        return len(self.told) == len(self.node_ids)


class Evidence(NamedTuple):
    """The report of one node, kept as it came, so that reports can be merged again."""

    key: AttemptKey
    node_rank: int
    node_id: NodeId
    gpu_type: str
    window_s: float  # how long was recorded
    limits: tuple[str, ...]  # what was known before the start to keep a part from being seen
    profile: str  # of its processes merged, JSON (JobProfile of dlq_profiler)
    processes: str  # a JSON list, one for each process (ProcessProfile); "": not sent
    time_s: float = 0.0  # when recording ended


class Belief(NamedTuple):
    """The belief about a job's communication, and its source."""

    profile: TrafficProfile  # what plans go by
    basis: Recording  # the start that its figures are from
    own: bool  # it was the job's own start; else one of its family
    together: Recording | None = None  # on as few nodes as can be, and ...
    spread: Recording | None = None  # ... on more: the reference of a measured slowdown


def family_of(job: Job) -> str:
    """Under which name its recordings are found; a job without a family is one by itself."""
    return job.family or lone_family(job.job_id)


def lone_family(job_id: JobId) -> str:
    return f"#{job_id}"
