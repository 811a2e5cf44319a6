"""The changes of a schedule, as verbs with reasons: nodes first, so that jobs find them."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dlq_master.policy.priced.situation import Schedule, Situation


class PricedVerb(StrEnum):
    """The change of a node or a job."""

    RELEASE = "release"
    PROVISION = "provision"
    LAPSE = "lapse"
    START = "start"
    RESIZE = "resize"
    MOVE = "move"


class PricedCause(StrEnum):
    """Why."""

    IN_TIME = "in_time"  # it makes its due date like this
    LATE = "late"  # nothing that it can have makes its due date
    OUTBID = "outbid"  # its GPUs are worth more elsewhere
    NEEDED = "needed"  # jobs are to run on the node
    UNUSED = "unused"  # no job is to run on it, or another type is cheaper for its jobs


class PricedChange(NamedTuple):
    """`key` of a job (None: of a node alone), the node, its type's place in the catalogue and the
    GPUs. `seconds`: how long before its due date the job ends if nothing changes any more;
    negative: late."""

    verb: PricedVerb
    node: int
    type: int
    cause: PricedCause
    key: int | None = None
    gpus: int = 0
    seconds: float = 0.0


def changes(situation: Situation, made: Schedule) -> list[PricedChange]:
    """From the running jobs to the decision; an unchanged job has no change."""
    running = situation.running
    found: list[PricedChange] = []
    for node in sorted({*running.types, *made.types}):
        was, now = running.types.get(node), made.types.get(node)
        if was != now and was is not None:
            found.append(PricedChange(PricedVerb.RELEASE, node, was, PricedCause.UNUSED))
    found += [
        PricedChange(PricedVerb.PROVISION, node, made.types[node], PricedCause.NEEDED)
        for node in sorted(made.types)
        if made.types[node] != running.types.get(node)
    ]
    return found + _of_jobs(situation, made)


def _of_jobs(situation: Situation, made: Schedule) -> list[PricedChange]:
    running, catalogue = situation.running, situation.catalogue
    kinds = [catalogue.kinds.index(rented.kind) for rented in catalogue.types]
    lapses, others = [], []
    for number, job in enumerate(situation.jobs):
        had, grant = running.grants.get(job.key), made.grants.get(job.key)
        if grant is None:
            if had is not None:
                was = running.types[had.node]
                lapses.append(
                    PricedChange(
                        PricedVerb.LAPSE, had.node, was, PricedCause.OUTBID, job.key, had.gpus
                    )
                )
            continue
        n = made.types[grant.node]
        kept = had is not None and had.node == grant.node and running.types.get(had.node) == n
        if kept and had == grant:
            continue
        verb = PricedVerb.START if had is None else PricedVerb.RESIZE if kept else PricedVerb.MOVE
        ahead_s = float(situation.due[number] - situation.time[number, kinds[n], grant.gpus - 1])
        cause = PricedCause.IN_TIME if ahead_s >= 0 else PricedCause.LATE
        others.append(PricedChange(verb, grant.node, n, cause, job.key, grant.gpus, ahead_s))
    return lapses + others
