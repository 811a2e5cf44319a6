"""Admission as Chronus prints it (section 3.3.2): does the program have a solution with the job in
it?

Every guaranteed job meets any one of its deadlines: constraint (5). So a job is promised its last
one, and the cycles look for a better one. In two cases the program's answer is known without a
solver. A job that fails the fluid test has no solution, even with leases in fractions. A job that
fits into the free slots of the cached solution has one: that solution with these leases.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq_master.policy.promise.capacity.leases import SloJob, due_s, within
from dlq_master.policy.promise.capacity.rules import VerdictGround
from dlq_master.policy.promise.slots.holes import insert
from dlq_master.policy.promise.slots.ledger import latest_slot, row
from dlq_master.policy.promise.slots.plan import SlotPlan, free_gpus
from dlq_master.policy.promise.solver.budget import ProgramBudget
from dlq_master.policy.promise.solver.printed import Solved, solved
from dlq_master.policy.promise.verdicts.admission import (
    AdmissionVerdict,
    PromiseBook,
    entered,
    held_in,
    lacking,
    shut_out,
)


def admit_by_program(
    book: PromiseBook, job: SloJob, steps: Sequence[int] | None, budget: ProgramBudget
) -> AdmissionVerdict:
    """Promise the last of `steps` (default: all) if the program has a solution for it.

    With an empty budget only the cached solution is tried.
    """
    refused, reach = shut_out(book, job, steps)
    if refused is not None:
        return refused
    own = job._replace(promised=reach[-1])
    ledger = book.ledger(latest_slot(job, reach[-1], book.grid))
    if not ledger.demand.fits(*row(own, reach[-1], book.grid)):
        return lacking(book, job, reach, ledger, VerdictGround.FLUID)
    for step in reach:
        held = insert(own, due_s(own, step, book.grid), ledger.free, book.grid)
        if held is not None:
            return held_in(book, own, held, ledger)
    made = solved((*book.jobs, own), book.grid, budget, _lost(book), objective=False)
    if made.plan is not None:
        jobs = (*book.jobs, own)
        free = free_gpus(made.plan, jobs, book.grid, ledger.horizon)
        return entered(book, own, VerdictGround.PROGRAM, made.plan, free)
    return lacking(book, job, reach, ledger, _ground(made))


def _ground(made: Solved) -> VerdictGround:
    """The ground of a refusal. Without a proof and in time, no plan had room for the pauses too."""
    if made.impossible:
        return VerdictGround.PROVEN
    return VerdictGround.LIMIT if made.timed_out else VerdictGround.PLAN


def _lost(book: PromiseBook) -> SlotPlan:
    """The slots of promises that are out of reach; they keep them until that is told."""
    lost = {}
    for job in book.jobs:
        slots = book.plan.segments.get(job.key)
        if slots and job.promised not in within(job, book.grid):
            lost[job.key] = slots
    return SlotPlan(lost)
