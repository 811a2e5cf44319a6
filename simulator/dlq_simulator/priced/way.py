"""One job's way through a replay on rented nodes: its remaining work, and its GPUs over time."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.policy.priced.learning import JobShape
from dlq_simulator.metrics import Span


@dataclass
class Way:
    """`left`: the share that is not done; `time_s`: the time of all of it on its present GPUs."""

    left: float = 1.0
    kind: int = 0
    gpus: int = 0
    time_s: float = 0.0
    ready_s: float = 0.0  # from when it makes progress
    since_s: float = 0.0
    overhead_s: float = 0.0  # held without progress
    stops: int = 0
    resizes: int = 0  # of these, those after which it went on at once
    spans: list[Span] = field(default_factory=list)
    progress_s: dict[JobShape, float] = field(
        default_factory=dict
    )  # how long it made some, by shape

    def hold(self, now_s: float, shape: JobShape, time_s: float, ready_s: float) -> None:
        """The job gets these GPUs, instead of its present ones."""
        self.kind, self.gpus = shape
        self.time_s, self.since_s, self.ready_s = time_s, now_s, ready_s

    def drop(self, now_s: float, *, goes_on: bool) -> None:
        """The job is stopped; `goes_on`: with other GPUs, at once."""
        self.end(now_s)
        self.stops += 1
        self.resizes += goes_on

    def end(self, now_s: float) -> None:
        """The job holds no GPUs any more."""
        self.spans.append(Span(self.since_s, now_s, self.gpus))
        self.overhead_s += min(self.ready_s, now_s) - self.since_s
        self.gpus = 0

    def end_s(self, now_s: float) -> float:
        """When it is done if it is left alone."""
        return max(now_s, self.ready_s) + self.left * self.time_s

    def advance(self, now_s: float, then_s: float) -> None:
        """Do the work of the time in between."""
        ran_s = max(0.0, then_s - max(now_s, self.ready_s))
        self.left -= ran_s / self.time_s
        self.progress_s[self.shape] = self.progress_s.get(self.shape, 0.0) + ran_s

    @property
    def shape(self) -> JobShape:
        """The shape of its GPUs."""
        return JobShape(self.kind, self.gpus)
