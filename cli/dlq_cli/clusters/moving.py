"""`dlq move`: moves a job at one cluster of the list to another one.

The job ends at its cluster before another one gets it. So it never waits at two, but it loses its
place in line. A job that has run moves with its checkpoint, if both clusters reach the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dlq.v1 import job_pb2, job_service_pb2
from dlq_broker.choosing import RULES, ChoiceRule, is_better
from dlq_broker.handover import BeforeMove, HandOver, MovingJob, NextAct, digest_of
from dlq_broker.offers import ClusterOffer, NoOffer, OfferAnswer
from dlq_broker.over_wire import from_checkpoint, leave_out_passed
from dlq_broker.staging_door import is_staging
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
from dlq_cli.words import ENDED, HOLD_KINDS, shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition, InvalidRequest
from dlq_common.job_fields.reading.ordering import read_dependency
from dlq_common.text.wire import from_duration, from_timestamp, to_timestamp

WAITS = ("queued", "pending")
DEPEND = ("pending", "held")  # of jobs that wait for others


class MovableJob(NamedTuple):
    """A job that may move from the cluster `at` to the clusters of `asked`."""

    at: str
    job: job_pb2.Job
    runs: bool
    saved: bool  # it runs, or has a checkpoint, maybe of another cluster: all must reach that
    asked: tuple[str, ...]
    spec: bytes
    asks: bytes  # the spec in questions: one that runs is asked for as if it had saved


def move_job(
    app: App, clusters: Clusters, at: str, name: str, wishes: ManyWishes, *, anyway: bool
) -> HandOver | None:
    """Move the job with this name at the cluster `at`. None: it stays, since no offer is better.

    `anyway`: also if its own cluster has the best offer. Raises as `going.submit_to`.
    """
    jobs = Jobs(clusters.app(at).connection())
    waited_for = jobs_waited_for(jobs.list(user=jobs.caller, states=DEPEND).jobs)
    job = movable(clusters, at, name, wishes.to, waited_for)
    tell_open(app, clusters)
    answers = answers_for(app, clusters, job, wishes.within_s)
    ranking = ranked_by(app, answers, wishes.rule)
    check_way_back(job, next(answer for answer in answers if answer.cluster == at))
    better = _better(ranking.order, at, RULES[wishes.rule], anyway=anyway)
    tell_offers(app, answers, ranking, better[:1], wishes)
    if not better:
        app.say(f"job {at}:{job.job.job_id} stays: no other cluster has a better offer")
    if not better or wishes.test_only:
        return None
    hand = begin_move(app, clusters, job, better, answers, ranking.reasons.items())
    return carry(app, clusters, hand, wishes, f"job {at}:{job.job.job_id} is {{}} now")


def jobs_waited_for(jobs: Iterable[job_pb2.Job]) -> Mapping[str, str]:
    """Ids of jobs for which others among these wait: for each, one that waits."""
    return {name: one.job_id for one in jobs for name in _named(one.dependency)}


def _named(dependency: str) -> Iterable[str]:
    """The jobs that it names.

    If only a newer master knows the relation, each number may be one. It is better that a job stays
    than that its move counts as its end.
    """
    if not dependency:
        return ()
    try:
        return [term.job for term in read_dependency(dependency).terms if term.job]
    except ValueError:
        return re.findall(r"\d+", dependency)


def movable(
    clusters: Clusters, at: str, name: str, to: str, waited_for: Mapping[str, str]
) -> MovableJob:
    """The job, and the clusters that may get it. Raises why it cannot move.

    A job that depends on it (`jobs_waited_for`) would take the move for its end.
    """
    jobs = Jobs(clusters.app(at).connection())
    job_id = one_job(jobs, name).job_id
    there = own_spec(jobs, job_id, jobs.caller)
    _check(there)
    if job_id in waited_for:
        waits = waited_for[job_id]
        raise InvalidRequest(f"job {waits} waits for job {job_id}, which stays therefore")
    asked = tuple(one.name for one in clusters.named(to) if one.name != at)
    if not asked:
        raise InvalidRequest(f"--to names no other cluster than {at}")
    spec = _spec_of(clusters, at, there).SerializeToString(deterministic=True)
    runs, checkpoint = there.job.HasField("attempt_state"), there.spec.checkpoint
    # Without a checkpoint it begins anew anywhere.
    saved = runs or bool(there.job.checkpoint.path or checkpoint.resume_from)
    if saved:
        asked = _with_its_checkpoints(clusters, at, there, asked)
        spec += from_checkpoint(there, f"{at}-{job_id}")
    asks = spec + _as_if_saved(there) if runs else spec
    return MovableJob(at, there.job, runs, saved, asked, spec, asks)


def answers_for(
    app: App, clusters: Clusters, job: MovableJob, within_s: float, *, own: bool = True
) -> list[OfferAnswer]:
    """Offers: of its own cluster for the job as it is there, of the others for a new job.

    `own` False: its own cluster is not asked.
    """
    doors = [clusters.door(name) for name in ((job.at,) if own else ()) + job.asked]
    waiting = {job.at: job.job.job_id}
    return offers_of(app, clusters, doors, job.asks, within_s, waiting=waiting)


def check_way_back(job: MovableJob, own: OfferAnswer) -> None:
    """Check that its own cluster would take a job that has run back with its checkpoint.

    That is needed if all others refuse it. IllegalTransition: it is not certain. `own`: its
    cluster's answer.
    """
    if job.saved and isinstance(own, NoOffer):
        what = f"job {job.at}:{job.job.job_id} stays, as {job.at} could not take it back: {own.why}"
        raise IllegalTransition(what, id=job.job.job_id)


def begin_move(
    app: App,
    clusters: Clusters,
    job: MovableJob,
    better: Sequence[ClusterOffer],
    answers: Sequence[OfferAnswer],
    reasons: Iterable[tuple[str, str]],
) -> HandOver:
    """Record the hand-over: to one of the better offers, else to its own cluster again."""
    order = (*(offer.cluster for offer in better), job.at)
    before = BeforeMove.RUNS if job.runs else BeforeMove.WAITS
    site = clusters.door(job.at).site
    hand = HandOver(
        number=new_number(app),
        made_s=app.clock.now_s(),
        name=job.job.name,
        digest=digest_of(job.spec),
        spec=job.spec,
        order=order,
        sites=tuple(clusters.door(cluster).site for cluster in order),
        answers=tuple(answers),
        reasons=tuple(reasons),
        act=NextAct.PAUSE if job.runs else NextAct.TAKE,
        moving=MovingJob(job.at, site, job.job.job_id, job.job.version, before),
    )
    begin(app, clusters, hand)
    return hand


# --- helpers, in order of use ---------------------------------------------------------------------


def _check(there: job_service_pb2.GetJobResponse) -> None:
    """IllegalTransition: the job neither waits nor can go on from a checkpoint, or does not stand
    alone.
    """
    job, state = there.job, shown_state(there.job)
    paused = HOLD_KINDS.get(job.hold_kind) == "paused"
    held = state == "held" and not paused
    if state in ENDED or held:
        raise IllegalTransition(
            f"job {job.job_id} is {state}: only a job that waits, runs or is paused moves",
            id=job.job_id, state=state,
        )  # fmt: skip
    if state == "suspended":
        raise IllegalTransition(
            f"job {job.job_id} is suspended, and would lose all since its last checkpoint",
            id=job.job_id, state=state, hint=f"first dlq resume {job.job_id}",
        )  # fmt: skip
    if job.HasField("array_task") or there.spec.HasField("dependency"):
        what = "is of an array or a group" if job.HasField("array_task") else "waits for other jobs"
        raise InvalidRequest(f"job {job.job_id} {what}, and these are of one cluster")
    if there.spec.HasField("interactive"):
        raise InvalidRequest(f"job {job.job_id} is tied to its client")
    if is_staging(there.spec):
        raise InvalidRequest(f"job {job.job_id} stages data at its cluster")


def _with_its_checkpoints(
    clusters: Clusters, at: str, there: job_service_pb2.GetJobResponse, asked: Sequence[str]
) -> tuple[str, ...]:
    """The clusters that reach the checkpoints of a job that has run, here or at an earlier cluster.

    IllegalTransition: none does.
    """
    job, saves = there.job, there.spec.checkpoint
    failed = f"job {job.job_id} has run already"
    if not saves.directory:
        raise IllegalTransition(
            f"{failed}, and its checkpoints are where its cluster keeps them",
            id=job.job_id, hint="a job with --checkpoint-dir can move",
        )  # fmt: skip
    own = clusters.all[at]
    places = [place for place in (saves.directory, saves.resume_from) if place]
    found = tuple(
        name for name in asked if all(clusters.all[name].shares(place, own) for place in places)
    )
    if not found:
        raise IllegalTransition(
            f"{failed}, and no other cluster of --to reaches {saves.directory}",
            id=job.job_id, hint=f"{clusters.path} says it for both: storage = [...]",
        )  # fmt: skip
    return found


def _spec_of(clusters: Clusters, at: str, there: job_service_pb2.GetJobResponse) -> job_pb2.JobSpec:
    """Its spec for another cluster.

    Times since the submission become instants, without those that have passed. Directories of
    declared data become its content again: each cluster has the data elsewhere.
    """
    spec = job_pb2.JobSpec()
    spec.CopyFrom(there.spec)
    spec.ClearField("hook_notes")
    for one in clusters.data.data.values():
        if one.variable in spec.environment and spec.environment[one.variable] == one.at.get(at):
            spec.environment[one.variable] = f"sha256:{one.digest}"
    for step, known in zip(spec.deadlines, there.job.promise.deadlines, strict=False):
        step.due_time.CopyFrom(known.due_time)
    if spec.HasField("lateness") and spec.lateness.HasField("due_duration"):
        due_s = from_timestamp(there.job.submit_time) + from_duration(spec.lateness.due_duration)
        spec.lateness.due_time.CopyFrom(to_timestamp(due_s))
    leave_out_passed(spec, clusters.app(at).clock.now_s())
    return spec


def _as_if_saved(there: job_service_pb2.GetJobResponse) -> bytes:
    """The spec as if it had a checkpoint: a cluster that cannot begin from one then
    makes no offer.
    """
    more = job_pb2.JobSpec()
    if not there.spec.checkpoint.marker:
        more.checkpoint.resume_from = there.spec.checkpoint.directory
    return more.SerializeToString()


def _better(
    order: Sequence[ClusterOffer], at: str, rule: ChoiceRule, *, anyway: bool
) -> list[ClusterOffer]:
    """The offers that are better than that of its own cluster, or all others.

    Chance moves no job: it is fair among the others, but the job would lose its own place in line
    for nothing.
    """
    own = [offer for offer in order if offer.cluster == at]
    others = [offer for offer in order if offer.cluster != at]
    if anyway or not own:
        return others
    return [offer for offer in others if is_better(offer, own[0], rule)]
