"""`dlq move`: a job that waits at one cluster of the list to another one.

It ends at its cluster before another one gets it. So it never waits at two, and it loses its place
in line. A job that has run stays: its checkpoints lie where it ran.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import job_pb2, job_service_pb2
from dlq_broker.handover import HandOver, MovingJob, NextAct, digest_of
from dlq_broker.offers import ClusterOffer, OfferAnswer
from dlq_cli.app import App
from dlq_cli.clusters.going import (
    ManyWishes,
    begin,
    carry,
    new_number,
    offers_of,
    ranked_by,
    tell_offers,
    tell_open,
)
from dlq_cli.clusters.listed import Clusters
from dlq_cli.lists.select import one_job, own_spec
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition, InvalidRequest
from dlq_common.text.wire import from_duration, from_timestamp, to_timestamp

_WAITS = frozenset({"queued", "pending"})


def move_job(
    app: App, clusters: Clusters, at: str, name: str, wishes: ManyWishes, *, anyway: bool
) -> HandOver | None:
    """Move the job with this name at the cluster `at`. None: it stays, since no offer is better.

    `anyway`: also where its own cluster has the best offer. Raises as `going.submit_to`.
    """
    jobs = Jobs(clusters.app(at).connection())
    job_id = one_job(jobs, name).job_id
    there = own_spec(jobs, job_id, jobs.caller)
    _check(there)
    spec = _spec_of(there).SerializeToString(deterministic=True)
    asked = [one.name for one in clusters.named(wishes.to) if one.name != at]
    if not asked:
        raise InvalidRequest(f"--to names no other cluster than {at}")
    tell_open(app, clusters)
    answers = _answers(app, clusters, at, job_id, asked, spec, wishes)
    ranking = ranked_by(answers, wishes.rule)
    better = _better(ranking.order, at, anyway=anyway)
    tell_offers(app, answers, ranking, better[:1], wishes)
    if not better:
        app.say(f"job {at}:{job_id} stays: no other cluster has a better offer")
    if not better or wishes.test_only:
        return None
    order = (*(offer.cluster for offer in better), at)
    hand = HandOver(
        number=new_number(app),
        made_s=app.clock.now_s(),
        name=there.job.name,
        digest=digest_of(spec),
        spec=spec,
        order=order,
        sites=tuple(clusters.door(cluster).site for cluster in order),
        answers=tuple(answers),
        reasons=tuple(ranking.reasons.items()),
        act=NextAct.TAKE,
        moving=MovingJob(at, clusters.door(at).site, job_id, there.job.version),
    )
    begin(app, clusters, hand)
    return carry(app, clusters, hand, wishes, f"job {at}:{job_id} is {{}} now")


# --- helpers, in order of use ---------------------------------------------------------------------


def _check(there: job_service_pb2.GetJobResponse) -> None:
    """Only a job that waits, has never run, and stands alone."""
    job, state = there.job, shown_state(there.job)
    if state not in _WAITS or job.attempt_count:
        has = "has run already" if job.attempt_count else f"is {state}"
        raise IllegalTransition(
            f"job {job.job_id} {has}: only a job that waits, and has never run, moves",
            id=job.job_id, state=state,
        )  # fmt: skip
    if job.HasField("array_task") or there.spec.HasField("dependency"):
        what = "is of an array or a group" if job.HasField("array_task") else "waits for other jobs"
        raise InvalidRequest(f"job {job.job_id} {what}, and these are of one cluster")


def _spec_of(there: job_service_pb2.GetJobResponse) -> job_pb2.JobSpec:
    """Its spec for another cluster. Times since the submission become instants."""
    spec = job_pb2.JobSpec()
    spec.CopyFrom(there.spec)
    spec.ClearField("hook_notes")
    for step, known in zip(spec.deadlines, there.job.promise.deadlines, strict=False):
        step.due_time.CopyFrom(known.due_time)
    if spec.HasField("lateness") and spec.lateness.HasField("due_duration"):
        due_s = from_timestamp(there.job.submit_time) + from_duration(spec.lateness.due_duration)
        spec.lateness.due_time.CopyFrom(to_timestamp(due_s))
    return spec


def _answers(
    app: App,
    clusters: Clusters,
    at: str,
    job_id: str,
    asked: Sequence[str],
    spec: bytes,
    wishes: ManyWishes,
) -> list[OfferAnswer]:
    """Its own cluster is asked about the job as it waits there, the others about a new one."""
    doors = [clusters.door(at), *(clusters.door(name) for name in asked)]
    return offers_of(app, clusters, doors, spec, wishes.within_s, waiting={at: job_id})


def _better(order: Sequence[ClusterOffer], at: str, *, anyway: bool) -> list[ClusterOffer]:
    """The offers before that of its own cluster, or all others."""
    names = [offer.cluster for offer in order]
    if anyway or at not in names:
        return [offer for offer in order if offer.cluster != at]
    return list(order[: names.index(at)])
