"""One job's course through a replay: when it holds GPUs, and its real progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from dlq_simulator.metrics import ReplayOutcome, Span
from dlq_simulator.workload import TraceJob

Seconds = int | float


@dataclass(slots=True, eq=False)
class Course:
    """One job's course: GPUs from `placed_s`, progress at `rate` from `progress_s`, `done_s` made
    before.

    Work is in seconds of the reference allocation (`dlq_simulator.world.speed`); `row.duration_s`
    have to be done.
    """

    row: TraceJob
    attempt: int = 0  # its number while it holds GPUs and makes progress, else 0
    begun: bool = False  # some of its work
    first_start_s: Seconds | None = None
    placed_s: Seconds = 0
    progress_s: Seconds = 0
    settled_s: Seconds = 0  # held time until then is in the books
    stopped_s: Seconds = 0
    finish_s: Seconds = 0  # if it is left alone
    rate: Seconds = 1
    gpus: int = field(init=False)
    done_s: Seconds = 0
    saved_s: Seconds = 0  # of that, when it last saved because it had to leave
    overhead_s: Seconds = 0
    # The time of the work done beyond its seconds; below 0: it was faster.
    slowed_s: Seconds = 0
    preemptions: int = 0
    resizes: int = 0
    promised_s: Seconds | None = None  # guaranteed when it was judged
    spans: list[Span] = field(default_factory=list)  # when it held GPUs, until its last start
    trial_start_s: Seconds | None = None  # the first trial, if it is profiled
    trial_sent_s: Seconds | None = None
    trials_s: Seconds = 0  # of the overhead: on other GPUs than it asks for
    trial_gpu_s: Seconds = 0
    tried: bool = False  # it ended before its run time was known

    def __post_init__(self) -> None:
        self.gpus = self.row.num_gpus

    def start(
        self, attempt: int, now_s: Seconds, resume_s: Seconds, rate: Seconds, gpus: int
    ) -> Seconds:
        """The job gets GPUs; return when it will end if nothing changes."""
        self.attempt = attempt
        self.placed_s = self.settled_s = now_s
        self.rate, self.gpus = rate, gpus
        self.progress_s = now_s + resume_s if self.begun else now_s
        self.begun = True
        if self.first_start_s is None:
            self.first_start_s = now_s
        return self._aim()

    def try_out(self, attempt: int, now_s: Seconds, trial_s: Seconds, gpus: int) -> Seconds:
        """The job gets GPUs only to be measured, and does none of its work; return when
        that ends.
        """
        self.attempt = attempt
        self.placed_s = self.settled_s = now_s
        self.gpus = gpus
        self.progress_s = inf
        if self.first_start_s is None:
            self.first_start_s = now_s
        self.finish_s = now_s + trial_s
        return self.finish_s

    def measured(self, now_s: Seconds) -> None:
        """Its trial is over, and its GPUs are free."""
        self.attempt = 0
        self._settle(now_s)
        self._close_span(now_s)

    def change(self, now_s: Seconds, rate: Seconds, gpus: int) -> Seconds:
        """The job goes on with other GPUs, or at another speed; return when it will end now."""
        self._settle(now_s)
        if gpus != self.gpus:
            self._close_span(now_s)
            self.placed_s, self.gpus = now_s, gpus
        self.rate = rate
        return self._aim()

    def stop(self, at_s: Seconds) -> None:
        """The job makes no progress from `at_s` on; its progress is saved."""
        self.attempt = 0
        self._settle(at_s)
        self.stopped_s = at_s

    def lose(self) -> None:
        """The progress of this run is lost."""
        self.overhead_s += self.done_s + self.slowed_s
        self.done_s = self.slowed_s = self.saved_s = 0

    def fall_back(self, each_s: float) -> None:
        """The work since its last save is lost. It saves once each `each_s` seconds of work."""
        lost_s = (self.done_s - self.saved_s) % each_s
        if lost_s:
            slowed_s = self.slowed_s * lost_s / self.done_s
            self.overhead_s += lost_s + slowed_s
            self.done_s -= lost_s
            self.slowed_s -= slowed_s

    def leave(self, now_s: Seconds) -> None:
        """Its GPUs are free; it held them while it saved."""
        self.overhead_s += now_s - self.stopped_s
        self.preemptions += 1
        self._close_span(now_s)

    def outcome(self, now_s: Seconds) -> ReplayOutcome:
        """Its history, ended now."""
        self.attempt = 0
        overhead_s = self.overhead_s + (self.progress_s - self.settled_s)
        slowed_s = self.slowed_s
        if self.rate != 1:
            slowed_s += now_s - self.progress_s - (self.row.duration_s - self.done_s)
        jct_s = now_s - self.row.submit_time_s
        return ReplayOutcome(
            job=self.row,
            start_s=self.placed_s if self.first_start_s is None else self.first_start_s,
            finish_s=now_s,
            queue_s=jct_s - self.row.duration_s - overhead_s - slowed_s,
            overhead_s=overhead_s,
            preemptions=self.preemptions,
            resizes=self.resizes,
            spans=(*self.spans, Span(self.placed_s, now_s, self.gpus)),
            promised_s=self.promised_s,
            trial_start_s=self.trial_start_s,
            trial_sent_s=self.trial_sent_s,
            trials_s=self.trials_s,
            trial_gpu_s=self.trial_gpu_s,
            ended_in_trial=self.tried,
        )

    def _aim(self) -> Seconds:
        left_s = self.row.duration_s - self.done_s
        self.finish_s = self.progress_s + (left_s if self.rate == 1 else left_s / self.rate)
        return self.finish_s

    def _settle(self, at_s: Seconds) -> None:
        """Account for the time until `at_s`."""
        if self.progress_s == inf:
            self.trials_s += at_s - self.settled_s
            self.trial_gpu_s += (at_s - self.settled_s) * self.gpus
        ran_s = max(0, at_s - self.progress_s)
        made_s = ran_s if self.rate == 1 else ran_s * self.rate
        self.done_s += made_s
        self.slowed_s += ran_s - made_s
        self.overhead_s += at_s - self.settled_s - ran_s
        self.settled_s = at_s
        self.progress_s = max(self.progress_s, at_s)

    def _close_span(self, now_s: Seconds) -> None:
        self.spans.append(Span(self.placed_s, now_s, self.gpus))
