"""Expected costs of jobs that say what being late costs. They are told once, at the first look, and
once more when a machine is first chosen for the job. It is kept with the job, beside what it then
costs (model/usage/cost.py).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dlq_master.control.loop.turn import Turn
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Foretold, Job, Lateness
from dlq_master.model.plan import Provision
from dlq_master.policy.stop_costs import expected_end_s

if TYPE_CHECKING:
    from dlq_master.policy.rent.market import Bidder, Market
    from dlq_master.policy.rent.stage import RentDecision

_HOUR_S = 3600.0


def foretell(turn: Turn, decided: RentDecision) -> None:
    """Tell it of those who wait, before anything of this is done."""
    market = decided.market
    told = decided.plan.changes or decided.grants or turn.state.machines.unforetold
    if market is None or not told:
        return
    jobs, waiting = turn.state.cluster.jobs, {JobId(one.job): one for one in market.bidders}
    for job_id in sorted(waiting.keys() & turn.state.machines.unforetold):
        _keep_own(turn, jobs[job_id], waiting[job_id].own_end_s)
    here = {at.request_id: at for at in market.present}
    for put in decided.grants:
        at = here[put.request_id]
        begin_s = max(market.now_s, at.ready_s)
        _chosen(turn, market, waiting[JobId(put.job)], at.offer, begin_s, put.gpus)
    place = {offer.type.name: n for n, offer in enumerate(market.offers)}
    for change in decided.plan.changes:
        if isinstance(change, Provision):
            offer = place[change.pool]
            begin_s = market.now_s + market.offers[offer].type.boot_s
            for job, gpus in zip(change.jobs, change.gpus, strict=True):
                _chosen(turn, market, waiting[JobId(job)], offer, begin_s, gpus)


def of_those_that_run(turn: Turn) -> None:
    """Jobs that started on the own nodes before any look are told here; waiting jobs with the next
    look.
    """
    for job_id in sorted(turn.state.machines.unforetold):
        job = turn.state.cluster.jobs.get(job_id)
        if job is None or job.ended:
            turn.state.machines.unforetold.discard(job_id)
        elif (attempt := turn.state.cluster.live_attempt(job)) is not None:
            _keep_own(turn, job, expected_end_s(job, attempt, turn.now_s))


# --- helpers, in order of use ---------------------------------------------------------------------


def _late(lateness: Lateness | None, end_s: float) -> float:
    """The cost of being done then; inf: never."""
    return 0.0 if lateness is None else lateness.weight * max(0.0, end_s - lateness.due_s)


def _keep_own(turn: Turn, job: Job, end_s: float) -> None:
    late = _late(job.lateness, end_s)
    _keep(turn, job, Foretold(turn.now_s, None if late == inf else late))


def _keep(turn: Turn, job: Job, told: Foretold) -> None:
    turn.state.machines.unforetold.discard(job.job_id)
    turn.state.cluster.put_job(job._replace(foretold=told))


def _chosen(turn: Turn, market: Market, one: Bidder, offer: int, begin_s: float, gpus: int) -> None:
    """A machine of this offer is chosen for it; nothing if one had been before."""
    job = turn.state.cluster.jobs[JobId(one.job)]
    told = job.foretold or Foretold(turn.now_s)
    if told.pool:
        return
    kind, lasts_s = market.offers[offer].type, float(one.left_s[offer, gpus - 1])
    running = lasts_s / _HOUR_S * kind.price_per_hour * gpus / kind.gpus
    late = _late(job.lateness, begin_s + lasts_s)
    _keep(turn, job, Foretold(turn.now_s, told.own_late, kind.name, running, late))
