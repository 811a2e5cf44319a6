"""A program of renting, asked of the planning process, and its schedule.

The question has the situation as plain values. The answer has one `Provision` for each machine, as
any plan has. So its values are checked as those of a plan are (`planner.plans`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlq_master.model.late import np
from dlq_master.model.plan import Plan, Provision
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.planner.snapshot import dumps, loads
from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.situation import Grant, PricedJob, Schedule, Situation
from dlq_master.policy.registry.renting import build_live

RENT = "rent"  # the stage of the question
_SEED = 0


def write_problem(method: str, settings: Mapping[str, str], situation: Situation) -> bytes:
    """The question: which machines for whom? Nothing runs on new machines yet."""
    jobs = tuple((*job[:3], job.whole_s.tolist(), job.left) for job in situation.jobs)
    types = tuple(map(tuple, situation.catalogue.types))
    times = situation.now_s, situation.interval_s, situation.resume_s
    return dumps((method, dict(settings), jobs, types, situation.nodes, times))


def solved(problem: bytes) -> Plan:
    """In the other process: the machines of the method's schedule."""
    method, settings, *values = loads(problem)
    situation = _situation(*values)
    made = build_live(method, settings)(situation, np.random.default_rng(_SEED))
    there: dict[int, list[tuple[int, int]]] = {}
    for job, grant in sorted(made.grants.items()):
        there.setdefault(grant.node, []).append((job, grant.gpus))
    types = situation.catalogue.types
    return Plan(
        tuple([_machine(types[made.types[node]].name, guests) for node, guests in there.items()])
    )


def read_schedule(plan: Plan, catalogue: Catalogue) -> Schedule:
    """The schedule again. Machines of no known type, and overfull ones, are left out."""
    place = {kind.name: n for n, kind in enumerate(catalogue.types)}
    types: dict[int, int] = {}
    grants: dict[int, Grant] = {}
    for node, machine in enumerate(plan.changes):
        if not isinstance(machine, Provision) or machine.pool not in place:
            continue
        at = place[machine.pool]
        if min(machine.gpus, default=0) >= 1 and sum(machine.gpus) <= catalogue.types[at].gpus:
            types[node] = at
            shares = zip(machine.jobs, machine.gpus, strict=False)
            grants |= {job: Grant(node, gpus) for job, gpus in shares}
    return Schedule(types, grants)


# --- helpers, in order of use ---------------------------------------------------------------------


def _situation(jobs: Any, types: Any, nodes: int, times: tuple[float, float, float]) -> Situation:
    now_s, interval_s, resume_s = times
    return Situation(
        now_s,
        tuple(
            PricedJob(key, due_s, weight, np.array(whole_s), left)
            for key, due_s, weight, whole_s, left in jobs
        ),
        Catalogue(tuple(NodeType(*kind) for kind in types), now_s),
        nodes,
        interval_s=interval_s,
        resume_s=resume_s,
    )


def _machine(pool: str, guests: list[tuple[int, int]]) -> Provision:
    jobs, gpus = zip(*guests, strict=True)
    return Provision(pool, jobs, gpus, 0.0, 0.0, Reason(ReasonCode.RENTED, detail=pool))
