"""Whether a job that holds GPUs does something: idle by rules of the site, or stalled in its steps.

Pure values: reports come in with their instants, and verdicts go out. A span of which nobody knows
anything counts as busy, so a silent agent, a lost report, or a restart makes no job idle. Windows
are sums of spans as agents measured them, so a clock of the master that jumps cannot fill one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

JITTER_S: Final = 10.0  # a report may be so late without a gap in what is known
_GRAINS: Final = 32  # entries that hold the longest window
FRESH_S: Final = 90.0  # an older report says nothing of now


class IdleAction(StrEnum):
    """The action about a job that is idle by a rule."""

    WARN = "warn"  # shown, and written into the journal
    NOTIFY = "notify"  # the same, and told by rules of dlq-notify
    PAUSE = "pause"  # saved and taken off its GPUs, unless that would lose work
    CANCEL = "cancel"


class Worker(NamedTuple):
    """The facts of a job that rules look at."""

    user: str
    team: str
    queue: str
    name: str
    number: str  # its id
    interactive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRule:
    """A rule: the jobs that it covers, its bound, and its action. Empty words cover all."""

    window_s: float
    interactive_window_s: float
    action: IdleAction
    dry_run: bool
    queue: str = ""
    team: str = ""
    exempt_users: frozenset[str] = frozenset()
    exempt_jobs: frozenset[str] = frozenset()  # ids, and names
    section: str = ""  # of the configuration; "": one of [[idle]]

    def covers(self, job: Worker) -> bool:
        """Whether it is about this job."""
        if self.queue not in ("", job.queue) or self.team not in ("", job.team):
            return False
        exempt = self.exempt_jobs
        return not (job.user in self.exempt_users or job.name in exempt or job.number in exempt)

    def window_of(self, job: Worker) -> float:
        """Its window for this job."""
        return self.interactive_window_s if job.interactive else self.window_s


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule(ActivityRule):
    """A rule about jobs that hold GPUs and do not use them."""

    below: float  # the mean utilization of the window, from 0 to 1


class UseSpan(NamedTuple):
    """A time that ended just now, and how much of it counts as busy."""

    span_s: float
    busy_s: float


def busiest(spans: Iterable[tuple[float, float, float]]) -> UseSpan:
    """Of GPUs of one job: span, seen part, mean use from 0 to 1. The busiest decides, and what was
    not seen counts as busy.
    """
    longest = UseSpan(0.0, 0.0)
    for span_s, seen_s, mean in spans:
        busy_s = min(span_s, max(0.0, span_s - seen_s) + seen_s * mean)
        longest = UseSpan(max(longest.span_s, span_s), max(longest.busy_s, busy_s))
    return longest


@dataclass(slots=True)
class UseWindow:
    """The last `longest_s` of a job on one node, in a bounded number of entries."""

    longest_s: float
    until_s: float = float("-inf")
    spans: deque[UseSpan] = field(default_factory=deque)
    total_s: float = 0.0

    def add(self, now_s: float, span: UseSpan) -> None:
        """A report of just now. After a clock that went back, all begins anew."""
        if now_s < self.until_s:
            self.spans.clear()
            self.total_s = 0.0
        elif self.spans and now_s - span.span_s - self.until_s > JITTER_S:
            gap_s = now_s - span.span_s - self.until_s
            self._put(UseSpan(gap_s, gap_s))
        self.until_s = now_s
        self._put(span)

    def _put(self, span: UseSpan) -> None:
        last = self.spans[-1] if self.spans else None
        if last is not None and last.span_s + span.span_s <= self.longest_s / _GRAINS:
            self.spans[-1] = UseSpan(last.span_s + span.span_s, last.busy_s + span.busy_s)
        else:
            self.spans.append(span)
        self.total_s += span.span_s
        while self.total_s - self.spans[0].span_s >= self.longest_s:
            self.total_s -= self.spans.popleft().span_s

    def busy_s(self, window_s: float) -> float | None:
        """Busy seconds of the last `window_s`; None: less than that is known of it."""
        if self.total_s < window_s:
            return None
        left_s, busy_s = window_s, 0.0
        for span in reversed(self.spans):
            if span.span_s >= left_s:
                return busy_s + (span.busy_s * left_s / span.span_s if span.span_s else 0.0)
            left_s, busy_s = left_s - span.span_s, busy_s + span.busy_s
        return busy_s


def mean_use(
    windows: Mapping[str, UseWindow], nodes: Iterable[str], window_s: float, now_s: float
) -> float | None:
    """The mean use of a job's window, from 0 to 1: that of its busiest node. None: it is not known
    of each of its nodes.
    """
    worst = 0.0
    for node in nodes:
        window = windows.get(node)
        if window is None or not 0.0 <= now_s - window.until_s <= FRESH_S:
            return None
        busy_s = window.busy_s(window_s)
        if busy_s is None:
            return None
        worst = max(worst, busy_s / window_s)
    return worst


def is_idle(
    rule: IdleRule, job: Worker, use: float | None, beat_s: float | None, now_s: float
) -> bool:
    """Whether a job is idle by a rule. A beat within the window is work, whatever its GPUs do."""
    if use is None or use >= rule.below:
        return False
    return beat_s is None or now_s - beat_s > rule.window_of(job)


# --- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StallRule:
    """A job is stalled after `factor` times its own pace without a step, and `margin_s`."""

    factor: float
    margin_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStepRule(ActivityRule):
    """A rule about jobs that have no pace yet, since they have made no second step. `stall`: that
    of jobs with a pace.
    """

    stall: StallRule

    def patience_s(self, window_s: float, longest_s: float, enough: bool) -> float:
        """After so long without a step such a job counts as stalled. `longest_s`: the longest first
        step of its family. A slow family has more than the window. A quick one has less, if enough
        are known: a part of the window beyond its own times, for a cold cache.
        """
        own_s = self.stall.factor * longest_s + self.stall.margin_s if longest_s else 0.0
        return max(own_s, min(window_s, own_s + _COLD * window_s) if enough else window_s)


_COLD: Final = 1.0 / 3.0  # of the window


class StepPace(NamedTuple):
    """The steps of one attempt. `step_s`: the longest of its latest steps; `silent_s`: how long
    beats have said that no new step has come; `spell_s`: the longest such time after which it went
    on. A cut line is no such time.
    """

    attempt: int
    step: int
    since_s: float  # of the last new step
    step_s: float | None = None  # None: it has made no second step yet
    spell_s: float = 0.0
    silent_s: float = 0.0

    def heard(self, step: int, time_s: float) -> StepPace:
        """A beat with another step. One that goes back, as after a resume, begins anew."""
        if step < self.step or time_s < self.since_s:
            return StepPace(self.attempt, step, time_s)
        gap_s = time_s - self.since_s
        each_s = gap_s / (step - self.step)
        before_s = 0.0 if self.step_s is None else self.step_s
        # A slower step counts at once. A faster pace is believed little by little.
        step_s = max(each_s, 0.8 * before_s + 0.2 * each_s)
        return StepPace(self.attempt, step, time_s, step_s, max(self.spell_s, self.silent_s))

    def patience_s(self, rule: StallRule) -> float | None:
        """After so long without another step it counts as stalled; None: its pace is not known yet.
        A longer spell that it has survived, as for an evaluation, counts as its pace.
        """
        if self.step_s is None:
            return None
        patience_s = rule.factor * self.step_s + rule.margin_s
        return patience_s if self.spell_s <= patience_s else rule.factor * self.spell_s


def behind(
    steps: Mapping[int, int], cores: Mapping[int, float], count: int
) -> tuple[int, str] | None:
    """Of `count` ranks the one that fell behind, and how that shows. None: no one stands out.

    `cores`: how many cores the ranks have used lately. Ranks that wait for each other stand at the
    same step. Then a rank is told that alone uses no CPU, or alone uses any.
    """
    if len(steps) > 1:
        last, first = max(steps.values()), min(steps.values())
        slow = [rank for rank, step in steps.items() if step == first]
        if first < last and len(slow) == 1:
            return slow[0], f"it is at step {first}, and others are at {last}"
    if len(cores) == count > 1:
        still = [rank for rank, used in cores.items() if used < _STILL]
        busy = [rank for rank, used in cores.items() if used >= _BUSY]
        if len(still) == 1 and len(busy) == len(cores) - 1:
            return still[0], "it uses no CPU, and the others do"
        if len(busy) == 1 and len(still) == len(cores) - 1:
            return busy[0], "it alone uses CPU"
    return None


_STILL, _BUSY = 0.05, 0.5  # cores
_APART_S: Final = 0.25  # reports of nodes take some time on their way


class SentLast(NamedTuple):
    """A look at what a rank sends to others: when it was, and when the rank had sent last."""

    looked_s: float
    sent_s: float


@dataclass(slots=True)
class GangSends:
    """The sends of an attempt. `quiet_s`: the longest time between two sends of any rank."""

    last: dict[int, SentLast] = field(default_factory=dict)
    quiet_s: float = 0.0

    def hear(self, rank: int, looked_s: float, sent_ago_s: float, quiet_s: float) -> None:
        """A look at one rank."""
        self.last[rank] = SentLast(looked_s, looked_s - sent_ago_s)
        self.quiet_s = max(self.quiet_s, quiet_s)

    def silent_s(self, rule: StallRule, count: int, now_s: float) -> float | None:
        """How long none of `count` ranks has sent anything, if that is a stall. None: it is none,
        or not known of each of them.
        """
        if len(self.last) < count or self.quiet_s <= 0.0:
            return None
        patience_s = rule.factor * self.quiet_s + rule.margin_s
        for looked_s, sent_s in self.last.values():
            if now_s - looked_s > FRESH_S or looked_s - sent_s <= patience_s:
                return None
        return now_s - max(sent_s for _, sent_s in self.last.values())

    def is_fresh(self, now_s: float) -> bool:
        """Whether somebody still looks at one of them."""
        return any(now_s - looked_s <= FRESH_S for looked_s, _ in self.last.values())

    def behind(self) -> tuple[int, str] | None:
        """The rank that stopped to send before all others: they have sent their part of the next
        step, and wait. None: no one stands out.
        """
        if len(self.last) < 2:
            return None
        (first, one), (_, second) = sorted(self.last.items(), key=lambda pair: pair[1].sent_s)[:2]
        apart_s = second.sent_s - one.sent_s
        if apart_s < _APART_S:
            return None
        return first, f"it stopped to send {apart_s:.1f} s before any other"
