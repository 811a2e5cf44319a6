"""The rules of a policy that promises deadlines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from dlq_master.policy.promise.capacity.margins import KEEP


class Selects(StrEnum):
    """The jobs that may get SLO leases."""

    GUARANTEED = "guaranteed"  # whose deadline has been promised, and nobody else
    # Also who would be late in any other slots, if promises leave these (partition.last_chances)
    LAST_CHANCE = "last-chance"
    ALL = "all"  # also who has a deadline that may still be made, if that breaks no promise


# Best-effort terms of an SLO lease in a replay, where no other number is asked for. Chronus found
# 20 minutes best (5.5). Jobs with near deadlines and no promise want shorter ones.
SLOT_TERMS, CHANCE_TERMS, SELECTED_TERMS = 4, 2, 1


class Guarantees(StrEnum):
    """Whom a deadline is promised."""

    FITTING = "fitting"  # whoever comes while there is a plan for it
    WORTH = "worth"  # of these, jobs worth their bid price (promise.price)


class Selector(StrEnum):
    """The method that judges deadlines and looks for the plan of the slots."""

    PREFIX = "prefix"  # the prefix-capacity model (solver.selector)
    PRINTED = "printed"  # the time-indexed program of the paper, for `solver_s` in a decision
    FEASIBLE = "feasible"  # the same without its objective: any solution will do


# Of wall time: with the program of the paper, and only with it, decisions depend on the machine.
# A master waits 5 seconds for the plan of a slot.
SOLVER_S = 4.0


class Spot(StrEnum):
    """The order of everybody who has no SLO lease."""

    SRTF = "srtf"
    SRSF = "srsf"
    SF = "sf"
    FIFO = "fifo"
    LAS = "las"  # in levels of attained service, as Tiresias
    EXPECTED = "expected"  # what is expected to be left, whatever is known (order.expected_left)


class Slots(StrEnum):
    """When a promised job holds the slots that it needs."""

    EARLY = "early"  # as soon as they are found; in other slots it takes what nobody else wants
    LATE = "late"  # as late as its promise allows; until then it stands in line as everybody does


class Trials(StrEnum):
    """Where a job is measured of which nobody knows how long it runs."""

    PARTITION = (
        "partition"  # on GPUs that are kept for that, at reduced size if it is wide (Chronus)
    )
    # Its first level: an unmeasured job stands in line as one that ends so soon
    IN_PLACE = "in-place"


class DeadlinesDecided(StrEnum):
    """Where promises are worked out: that may take long (policy.elsewhere)."""

    HERE = "here"
    ELSEWHERE = "elsewhere"  # the plan is left to somebody else
    LATER = "later"  # somebody is at it: until then all stays as it is
    KEPT = "kept"  # nobody does: by the kept plan, and nothing new is promised


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """`slot_terms`: how many best-effort terms an SLO lease has in a replay, where nothing else is
    asked for; a master has its configuration. `margin`: the part of an estimate that a promise adds
    to it; None: learned from past errors, so that `keep` of the promises are kept.

    `slots`: when a promised job holds those that it needs. `be_floor`: the share of the nodes that
    new promises leave to best effort, rounded up to whole nodes. Existing promises may use it
    before one is given up. `whole_leases`: count deadlines in leases that are used to their end, as
    Chronus prints it. `rounds_up`: widths count as 1, 2, 4 or whole nodes (equation 6), so that all
    holders of a slot find room. `solver_s`: seconds of the paper's program in one decision, 0: it
    is not asked; `clock` measures them (`solver.budget`). `floor`: nodes that no new promise may
    use, for they are for trials. `queue_floor`: likewise GPUs, or a share, for the jobs of a queue
    (partition.quotas). `offers`: a refused job gets an offer of a possible promise, which
    takes longer than the verdict. `quotas`: GPUs of guaranteed jobs that a
    team may have at any time; "*": every team not named. `anew`: best-effort work that runs is
    placed anew at each boundary, where its placement arranges jobs as a whole.
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
    """So many of all GPUs; below 1 it is their share, rounded up."""
    return ceil(amount * total - 1e-9) if amount < 1.0 else int(amount)


def reserved_s(estimate_s: float, margin: float) -> float:
    """`work_s` of a guaranteed job. Resumes are not part of it: a plan charges one for each
    segment.
    """
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
