"""The settings of a policy that promises deadlines, and the grounds of its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from dlq_master.policy.promise.capacity.margins import KEEP


class Selects(StrEnum):
    """The jobs that may get SLO leases."""

    GUARANTEED = "guaranteed"  # jobs with a promise only
    # Also jobs that would be late in any later slot, in slots that promises leave free
    # (partition.last_chances).
    LAST_CHANCE = "last-chance"
    ALL = "all"  # also jobs that may still be in time, if that breaks no promise


# Best-effort terms of an SLO lease in a replay, where no other number is asked for. Chronus found
# 20 minutes best (5.5). Jobs with near deadlines and no promise want shorter ones.
SLOT_TERMS, CHANCE_TERMS, SELECTED_TERMS = 4, 2, 1


class Guarantees(StrEnum):
    """The jobs that are promised their deadlines."""

    FITTING = "fitting"  # every job for which there is a plan
    WORTH = "worth"  # of these, jobs that earn their bid price (promise.solver.price)


class Selector(StrEnum):
    """The method that judges deadlines and looks for the plan of the slots."""

    PREFIX = "prefix"  # the prefix-capacity model (solver.selector)
    PRINTED = "printed"  # the time-indexed program of the paper, for `solver_s` in a decision
    FEASIBLE = "feasible"  # the same without its objective: any solution will do


# Seconds of wall time: with the program of the paper, decisions depend on the speed of the host.
# A master waits 5 s for the plan of a slot.
SOLVER_S = 4.0


class Spot(StrEnum):
    """The order of jobs without an SLO lease."""

    SRTF = "srtf"
    SRSF = "srsf"
    SF = "sf"
    FIFO = "fifo"
    LAS = "las"  # in levels of attained service, as Tiresias
    EXPECTED = "expected"  # by the expected remaining time (order.expected_left)


class Slots(StrEnum):
    """When a promised job holds the slots that it needs."""

    EARLY = "early"  # as soon as possible; in other slots it takes GPUs that no other job wants
    LATE = "late"  # as late as its promise allows; until then it stands in the line of best effort


class Trials(StrEnum):
    """Where a job with an unknown run time is measured."""

    PARTITION = "partition"  # on GPUs kept for trials, at reduced size if it is wide (Chronus)
    IN_PLACE = "in-place"  # in the line, where an unmeasured job counts as one that ends soon


class DeadlinesDecided(StrEnum):
    """Where promises are computed, since that may take long (policy.elsewhere)."""

    HERE = "here"
    ELSEWHERE = "elsewhere"  # another process makes the plan
    LATER = "later"  # another process is making it; until then all stays as it is
    KEPT = "kept"  # no process makes one: the kept plan holds, and nothing new is promised


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The settings of promises.

    `slot_terms`: best-effort terms in an SLO lease of a replay; a master has its own configuration.
    `slots`: when a promised job holds its slots. `selector`: the method that plans. `solver_s`:
    seconds of the paper's program in a decision (0: never used), and `clock` measures them
    (`solver.budget`).

    `margin`: the share of an estimate that a promise adds to it. None: learned from past errors, so
    that the share `keep` of promises is kept. `whole_leases`: deadlines count in leases used to
    their end, as Chronus prints it. `rounds_up`: widths count as 1, 2, 4 or whole nodes (equation
    6), so that all holders of a slot find room.

    `be_floor`: the share of nodes that new promises leave to best effort, rounded up to whole
    nodes. Existing promises may use it before one is given up. `floor`: nodes for trials, not used
    by new promises. `queue_floor`: likewise GPUs, or a share, for the jobs of a queue
    (partition.quotas). `quotas`: the GPUs of guaranteed jobs that a team may have at any time; "*":
    all other teams.

    `offers`: a refused job gets an offer, which takes longer than the verdict. `anew`: running
    best-effort jobs are placed anew at each boundary, if the placement arranges jobs as a whole.
    """

    slot_terms: int = SLOT_TERMS
    slots: Slots = Slots.EARLY
    selects: Selects = Selects.GUARANTEED
    guarantees: Guarantees = Guarantees.FITTING
    selector: Selector = Selector.PREFIX
    solver_s: float = SOLVER_S
    clock: Callable[[], float] | None = None
    margin: float | None = None
    keep: float = KEEP
    be_floor: float = 0.0
    whole_leases: bool = False
    rounds_up: bool = True
    floor: int = 0
    queue_floor: float = 0.0
    quotas: Mapping[str, int] | None = None
    anew: bool = False
    offers: bool = False
    decided: DeadlinesDecided = DeadlinesDecided.HERE

    @property
    def chances(self) -> bool:
        """Whether refused jobs have last chances."""
        return self.selects is Selects.LAST_CHANCE


def gpus_of(amount: float, total: int) -> int:
    """A number of GPUs; an amount below 1 is a share of `total`, rounded up."""
    return ceil(amount * total - 1e-9) if amount < 1.0 else int(amount)


def reserved_s(estimate_s: float, margin: float) -> float:
    """`work_s` of a guaranteed job, without resumes: a plan charges one for each segment."""
    return estimate_s * (1 + margin)


class VerdictGround(StrEnum):
    """Why a deadline is promised, or why it is not."""

    QUOTA = "quota"  # Refused: the team has promises for all GPUs of its quota.
    WORTH = "worth"  # Refused: GPUs are scarce, and other jobs earn more with as many.
    TYPE = "type"  # Refused: the job may get several GPU types, and its run time is known for one.
    KEEPS = "keeps"  # Refused: the job cannot save, so a stop would lose all its work.
    WIDTH = "width"  # Refused: no slot has as many GPUs as the job asks for.
    REACH = "reach"  # Refused: the deadline is too early, even if the job ran alone.
    FLUID = "fluid"  # Refused: earlier promises leave too few GPU hours before the deadline.
    PLAN = "plan"  # Refused: enough GPU hours are left, but no slots were found.
    PROVEN = "proven"  # Refused: the program of the paper has no solution with the job in it.
    LIMIT = "limit"  # Refused: the program gave no answer in time, and its cached solution no room.
    HOLES = "holes"  # Promised: the kept plan has free slots for the job.
    MOVED = "moved"  # Promised: other jobs moved to other slots of the kept plan.
    REPLAN = "replan"  # Promised: a new plan keeps all promises.
    PROGRAM = "program"  # Promised: the program of the paper has a solution with the job in it.
    OVERRUN = "overrun"  # Withdrawn: the job has used its reserved time and has not ended.
    BROKEN = "broken"  # Withdrawn: no plan keeps the promise any more.
