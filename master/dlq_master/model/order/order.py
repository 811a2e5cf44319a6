"""How jobs of one queue are ordered: levels, thresholds, and positions as single integers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlq_master.model.order.keys import (
    PROMOTED_BASE,
    STARTED_BASE,
    STARTED_END,
    WAITING_BASE,
    KeyRule,
    MovingRule,
)


class Discipline(StrEnum):
    """An event that moves a job inside its level."""

    ARRIVAL = "arrival"  # nothing: its place is kept from submission to the end
    REQUEUE = "requeue"  # running jobs first; demoted to the tail, preempted before the waiting
    FIRST_START = "first-start"  # by first start; jobs that never started come last


class PromoteTo(StrEnum):
    """Where in level 0 a promoted job goes."""

    HEAD = "head"  # and its width is reserved
    TAIL = "tail"  # as if it had just arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """The facts about a policy that the indexes of a cluster need.

    `thresholds` are the upper bounds, in attained GPU-seconds, of all levels but the last. A
    waiting job is promoted after waiting `promote_knob` x its execution (never from level 0), or
    after `starve_limit_s` without a break; None switches either rule off. `promote_to` its TAIL, it
    would starve again at once: that goes with the knob alone. `refresh`: learn the services of
    completed jobs, anew after so many of them; None: not at all. `quantiles`: of what was learned,
    become the thresholds then; as many as there are thresholds. `key`: the order inside a priority,
    promoted jobs first; None: by position. `moving`: how the key of a waiting job moves with the
    services that are learned; None: each may move alone. `bands`: bands and planned slots decide
    before everything else (model.band). `by_base`: jobs wait for the fewest GPUs that they run on,
    not for what they ask. `by_team`: waiting jobs are indexed by team too; `by_member`: by account
    (model.accounts) instead. `half_life_s`: the key begins with how its account stands against its
    share, of usage that counts half after so long (model.shares); None: it does not. `keep_s`: for
    so long the other GPUs of a gang are kept for it, once a node has failed it; 0: they are not.
    """

    discipline: Discipline = Discipline.ARRIVAL
    thresholds: tuple[float, ...] = ()
    promote_knob: float | None = None
    starve_limit_s: float | None = None
    promote_to: PromoteTo = PromoteTo.HEAD
    refresh: int | None = None
    quantiles: tuple[float, ...] = ()
    key: KeyRule | None = None
    moving: MovingRule | None = None
    by_base: bool = False
    bands: bool = False
    by_team: bool = False
    by_member: bool = False
    half_life_s: float | None = None
    keep_s: float = 0.0

    def __post_init__(self) -> None:
        if any(
            high <= low for low, high in zip((0.0, *self.thresholds), self.thresholds, strict=False)
        ):
            raise ValueError(f"thresholds must be positive and rise: {self.thresholds}")
        if self.promote_to is PromoteTo.TAIL and self.starve_limit_s is not None:
            raise ValueError(
                "promote_to=tail goes with promote_knob only: after starve_limit_s a job is put "
                "at the head"
            )

    @property
    def promotes(self) -> bool:
        return self.promote_knob is not None or self.starve_limit_s is not None

    @property
    def levels(self) -> int:
        return len(self.thresholds) + 1

    def priority(self, priority_base: int, level: int) -> int:
        """Lower priorities are served first; a queue's levels are consecutive priorities."""
        return priority_base * self.levels + level


class Positions:
    """Hands out positions; each method's next one lies where its name says."""

    __slots__ = ("_head", "_promoted", "_started", "_tail")

    def __init__(self) -> None:
        self._tail = WAITING_BASE
        self._head = WAITING_BASE
        self._started = STARTED_BASE
        self._promoted = PROMOTED_BASE

    def tail(self) -> int:
        """Behind every waiting job."""
        self._tail += 1
        return self._tail

    def head(self) -> int:
        """Before every waiting job, behind every one that runs or is promoted."""
        self._head -= 1
        return self._head

    def started(self) -> int:
        """Behind every job that started earlier, before every waiting one."""
        self._started += 1
        return self._started

    def promoted(self) -> int:
        """Behind every job promoted earlier, before all others."""
        self._promoted += 1
        return self._promoted

    def seen(self, sequence: int) -> None:
        """A stored job has this position: hand out none that would collide with it."""
        if sequence < STARTED_BASE:
            self._promoted = max(self._promoted, sequence)
        elif sequence < STARTED_END:
            self._started = max(self._started, sequence)
        else:
            self._head = min(self._head, sequence)
            self._tail = max(self._tail, sequence)
