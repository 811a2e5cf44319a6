"""May a deadline be promised? By the fluid test, holes of the kept plan, displacements, or a new
plan.

A `PromiseBook` has the guaranteed jobs, and the kept plan that serves all of them. A job enters
only with a plan that serves it and all others. So the book's plan is the promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlq_master.model.jobs.band import Segments
from dlq_master.policy.promise.capacity.fluid import SlotDemand, Slots
from dlq_master.policy.promise.capacity.leases import (
    Grid,
    SloJob,
    due_s,
    last_slots,
    needed,
    runtime_s,
    width,
    within,
)
from dlq_master.policy.promise.capacity.rules import VerdictGround
from dlq_master.policy.promise.slots.augment import augment
from dlq_master.policy.promise.slots.eject import eject
from dlq_master.policy.promise.slots.holes import insert
from dlq_master.policy.promise.slots.ledger import Promised, PromiseLedger, latest_slot, row
from dlq_master.policy.promise.slots.plan import SlotPlan, free_gpus, hold, slots_of
from dlq_master.policy.promise.slots.realise import FIRM, STICKY, Order, serve_all
from dlq_master.policy.promise.solver.selector import never


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseBook:
    """The guaranteed jobs, each with its promised step, and the plan that keeps all promises.

    `quotas`: the requested GPUs of guaranteed jobs that a team may have at any time. "*" is for all
    other teams; without it they have no limit.
    """

    grid: Grid
    jobs: tuple[SloJob, ...] = ()
    plan: SlotPlan = field(default_factory=SlotPlan)
    quotas: Mapping[str, int] | None = None
    _kept: list[PromiseLedger] = field(init=False, default_factory=list, compare=False, repr=False)

    def ledger(self, slots: int = 0) -> PromiseLedger:
        """The promises and the plan as arrays over at least `slots` slots; computed once."""
        if not self._kept or self._kept[0].horizon < slots:
            slots = max(slots, slots_of(self.plan), len(self.grid.capacity))
            self._kept[:] = [PromiseLedger(self.jobs, self.plan, self.grid, slots)]
        return self._kept[0]

    def used(self, team: str) -> int:
        """The GPUs of a team's guaranteed jobs."""
        return sum(job.gpus for job in self.jobs if job.team == team)

    def demand(self, horizon: int) -> SlotDemand:
        """W(t) of all promises."""
        return self.ledger(horizon).demand.upto(horizon)

    def free(self, slots: int) -> Slots:
        """The free GPUs in each of the first `slots` slots."""
        return self.ledger(slots).free[:slots]

    def horizon(self) -> int:
        """The slots up to the last promised deadline, or to the plan's end."""
        last = self.ledger().last.max(initial=0)
        return max(slots_of(self.plan), len(self.grid.capacity), int(last))

    def without(self, keys: Iterable[str]) -> PromiseBook:
        """The book without jobs that have ended, or have lost their promises."""
        gone = frozenset(keys)
        left = tuple([job for job in self.jobs if job.key not in gone])
        return replace(self, jobs=left, plan=self.plan.without(gone))

    def exchanged(
        self, gone: Sequence[Promised], come: Sequence[Promised], now: Sequence[Promised]
    ) -> PromiseBook:
        """The book with some promises replaced, which makes the promises `now`, in order."""
        jobs = tuple([job for job, _ in now])
        plan = SlotPlan({job.key: slots for job, slots in now if slots})
        book = replace(self, jobs=jobs, plan=plan)
        for ledger in self._kept:
            made = ledger.exchanged(gone, come, jobs, self.grid)
            book._kept[:] = [] if made is None else [made]
        return book

    def quota(self, team: str) -> int | None:
        """The quota of the team, or that of all other teams ("*"); None: no limit."""
        quotas = self.quotas or {}
        return quotas.get(team, quotas.get("*"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionVerdict:
    """The answer. `step`: the promised step; None: refused. `book`: the book, with a promised job
    in it.

    For a refusal, by its ground: `need`, what was asked for, and `have`, what there is
    (`model.words.promise_words`).
    """

    by: VerdictGround
    step: int | None = None
    book: PromiseBook
    need: float | None = None
    have: float | None = None

    @property
    def guaranteed(self) -> bool:
        return self.step is not None


def in_reach(job: SloJob, grid: Grid, steps: Sequence[int] | None = None) -> list[int]:
    """Those of `steps` (default: all) that the job could meet if it ran alone."""
    return [step for step in within(job, grid) if steps is None or step in steps]


def admit(
    book: PromiseBook,
    job: SloJob,
    steps: Sequence[int] | None = None,
    *,
    demand: SlotDemand | None = None,
    out_of_time: Callable[[], bool] = never,
) -> AdmissionVerdict:
    """Promise the first of `steps` (default: all, the best first) for which a plan is found.

    `demand`: W(t), if not the book's. A step that fails the fluid test costs O(horizon). A new plan
    is made only if the kept one has no room and no displacement helps.
    """
    refused, reach = shut_out(book, job, steps)
    if refused is not None:
        return refused
    ledger = book.ledger(latest_slot(job, reach[-1], book.grid))
    demand = demand or ledger.demand
    able = [step for step in reach if demand.fits(*row(job, step, book.grid))]
    for step in able:
        if (found := _kept(book, job._replace(promised=step), ledger)) is not None:
            return found
        if out_of_time():
            break
    return lacking(book, job, reach, ledger, VerdictGround.PLAN if able else VerdictGround.FLUID)


def shut_out(
    book: PromiseBook, job: SloJob, steps: Sequence[int] | None
) -> tuple[AdmissionVerdict | None, list[int]]:
    """The refusal of a job that no plan could serve, or whose team has used its quota, else None;
    and the steps in its reach.
    """
    quota = book.quota(job.team)
    if quota is not None and (wanted := book.used(job.team) + job.gpus) > quota:
        return AdmissionVerdict(by=VerdictGround.QUOTA, book=book, need=wanted, have=quota), []
    reach = in_reach(job, book.grid, steps)
    return (None if reach else _beyond(book, job)), reach


def lacking(
    book: PromiseBook,
    job: SloJob,
    reach: Sequence[int],
    ledger: PromiseLedger,
    by: VerdictGround,
) -> AdmissionVerdict:
    """A refusal on this ground, with the slots needed and the slots with enough free GPUs."""
    last = last_slots(job, reach[-1], book.grid)
    wide = int((ledger.free[:last] >= width(job, book.grid)).sum())
    slots = needed(runtime_s(job), book.grid.term_s)
    return AdmissionVerdict(by=by, book=book, need=slots, have=wide)


def _beyond(book: PromiseBook, job: SloJob) -> AdmissionVerdict:
    """The refusal of a job that could meet no step even alone: too wide, or too late."""
    wide, most = width(job, book.grid), max(book.grid.capacity)
    if wide > most:
        return AdmissionVerdict(by=VerdictGround.WIDTH, book=book, need=wide, have=most)
    last_s = due_s(job, len(job.steps) - 1, book.grid)
    return AdmissionVerdict(by=VerdictGround.REACH, book=book, need=runtime_s(job), have=last_s)


def _kept(book: PromiseBook, job: SloJob, ledger: PromiseLedger) -> AdmissionVerdict | None:
    """Promise a job's step with as few changes of the plan as possible; None: no plan is found."""
    step, grid = job.promised or 0, book.grid
    held = insert(job, due_s(job, step, grid), ledger.free, grid)
    if held is not None:
        return held_in(book, job, held, ledger)
    jobs = (*book.jobs, job)
    asked = ledger.with_job(job.key, row(job, step, grid), ledger.free)
    moved = eject(book.plan, jobs, [len(book.jobs)], asked, grid)
    made = None if moved else replan(jobs, grid, FIRM[:1])
    if moved is None and made is None:
        moved = augment(book.plan, jobs, len(book.jobs), asked, grid)
    if moved is not None:
        return entered(book, job, VerdictGround.MOVED, moved.plan, moved.free)
    made = made or replan(jobs, grid, FIRM[1:])
    if made is None:
        return None
    return entered(
        book, job, VerdictGround.REPLAN, made, free_gpus(made, jobs, grid, ledger.horizon)
    )


def replan(jobs: Sequence[SloJob], grid: Grid, orders: Sequence[Order] = STICKY) -> SlotPlan | None:
    """A plan that serves every guaranteed job at its promised step; None: none of the orders finds
    one.
    """
    picks = {job.key: job.promised for job in jobs if job.promised is not None}
    return serve_all(jobs, picks, grid, orders)


def renewed(book: PromiseBook) -> PromiseBook:
    """The book with a new plan if one serves every promise and ends no later, else the
    book itself.
    """
    plan = replan(book.jobs, book.grid)
    if plan is None or slots_of(plan) > slots_of(book.plan):
        return book
    return replace(book, plan=plan)


def held_in(
    book: PromiseBook, job: SloJob, held: Segments, ledger: PromiseLedger
) -> AdmissionVerdict:
    """Promise these slots, which the kept plan leaves free."""
    free = ledger.free.copy()
    hold(free, held, width(job, book.grid))
    return entered(book, job, VerdictGround.HOLES, book.plan.with_job(job.key, held), free)


def entered(
    book: PromiseBook, job: SloJob, by: VerdictGround, plan: SlotPlan, free: Slots
) -> AdmissionVerdict:
    """The book with the job in it and this plan, which leaves `free` GPUs in each slot."""
    made = replace(book, jobs=(*book.jobs, job), plan=plan)
    asked = row(job, job.promised or 0, book.grid)
    made._kept[:] = [book.ledger(len(free)).with_job(job.key, asked, free)]
    return AdmissionVerdict(by=by, step=job.promised, book=made)
