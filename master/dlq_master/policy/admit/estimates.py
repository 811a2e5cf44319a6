"""How long jobs run of which nobody knows it: history says so, or trials, which have to be made
first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import log2

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.likeness import likeness
from dlq_master.model.plan import Estimate, Profile
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.admit.family_runs import FamilyTime, foretell, least_sure
from dlq_master.policy.partition.profiling import nodes_of, trials_of


def on_nodes(one_s: float, two_s: float, nodes: int) -> float:
    """t_n = t_1 + log2(n) (t_2 - t_1): seconds on `nodes` nodes of what takes so long on one and on
    two.

    Computing takes the same time on every node, exchanging what was computed a step for each
    doubling. ValueError if there are no nodes, or a time is not positive.
    """
    if nodes < 1 or one_s <= 0.0 or two_s <= 0.0:
        raise ValueError(f"no pace: {one_s:g} s on one node, {two_s:g} s on two, {nodes} nodes")
    return max(one_s, one_s + log2(nodes) * (two_s - one_s))


FAR = 4.0  # a deadline of so many estimates says that its job may be of another kind
_NAMED = 2  # GPU types, of which the grounds are said
_TRIALS = 2  # of a job that is tried on fewer GPUs than it asks for
_SHORTEST_S = 1.0  # a trial can end in the instant in which it begins, and a pace needs a duration


def estimates(view: View) -> list[Profile | Estimate]:
    """Jobs to be profiled, and jobs with enough known, in the order of arrival."""
    cluster = view.cluster
    found: list[Profile | Estimate] = []
    for job_id in sorted(cluster.profiling.unknown):
        job = cluster.jobs[job_id]
        told = _from_trials(cluster, job) or from_history(cluster, job)
        if told is not None and _is_news(cluster, told):
            found.append(told)
        elif trials := trials_of(cluster, job):
            found.append(Profile(job_id, trials, Reason(ReasonCode.NOT_PROFILED)))
    return found


def foretold(view: View) -> list[Estimate]:
    """Jobs with enough known by the runs of others, in the order of families. Jobs of a family are
    looked at again once another run is learned, another of them waits, or there are other GPUs.
    """
    cluster, profiling = view.cluster, view.cluster.profiling
    types = tuple(cluster.capacity.gpu_types)
    found: list[Estimate] = []
    for key in profiling.to_foretell(types):
        news = list(_among_alike(cluster, profiling.of_family[key]))
        found += news
        if not news:
            profiling.settle(key, types)
    return found


def _among_alike(cluster: Cluster, alike: Collection[JobId]) -> Iterator[Estimate]:
    """The news by history for jobs that are alike. They are worked out once for all that may get
    the same GPU types, since each of thousands is looked at.
    """
    by_types: dict[tuple[str, str | None, tuple[str, ...]], Estimate | None] = {}
    for job_id in alike:
        job = cluster.jobs[job_id]
        types = (job.gpu_type_promised, job.request.gpu_type, job.request.or_gpu_types)
        if types not in by_types:
            by_types[types] = from_history(cluster, job)
        told = by_types[types]
        if told is None:
            continue
        guess = told.basis.guess or _is_far(job, told, len(alike))
        if job.duration_estimate_s is None or not guess:
            sure = Confidence.LOW if guess else told.basis.confidence
            yield told._replace(job_id=job_id, basis=told.basis._replace(confidence=sure))


def _is_far(job: Job, told: Estimate, waiting: int) -> bool:
    """Whether it is a guess: others like it wait, and its deadline is far beyond this run time.

    Jobs without an estimate stand in the order of their deadlines. So of many that are alike those
    with close deadlines run first. Once they have ended, they say little of a job with a far one.
    It stays a guess when the others have gone.
    """
    alone = waiting == 1 and not job.basis.guess
    return not alone and bool(job.steps) and job.steps[0].deadline_s > FAR * told.estimate_s


def _is_news(cluster: Cluster, told: Estimate) -> bool:
    """A guess is made once: its job is measured all the same."""
    job = cluster.jobs[told.job_id]
    return job.duration_estimate_s is None or not told.basis.guess


def from_history(cluster: Cluster, job: Job) -> Estimate | None:
    """By the runs of earlier jobs of its family, on GPUs of every type that it may get. The slowest
    of these types counts, and the least sure.
    """
    if not job.family:
        return None
    told: list[FamilyTime] = []
    for gpu_type in _types(cluster, job):
        known = foretell(cluster.profiling, likeness(job), gpu_type, cluster.speeds)
        if known is None:
            return None
        told.append(known)
    if not told:
        return None
    confidence = least_sure(known.confidence for known in told)
    grounds = "; ".join(known.rests_on for known in told[:_NAMED])
    grounds += f"; {len(told) - _NAMED} more types" if len(told) > _NAMED else ""
    reason = Reason(ReasonCode.RAN_ALIKE, detail=f"{grounds}, of {job.family}")
    basis = Basis(Source.HISTORY, confidence, rests_on=grounds)
    whole_s = [
        known.run_s * cluster.pace(job, gpu_type)
        for known, gpu_type in zip(told, _types(cluster, job), strict=True)
    ]
    return Estimate(job.job_id, max(whole_s), reason, basis)


def is_sure(cluster: Cluster, job: Job) -> bool:
    """Whether earlier jobs tell its run time well enough, so that it need not be measured."""
    told = from_history(cluster, job)
    return told is not None and not told.basis.guess


def _types(cluster: Cluster, job: Job) -> list[str]:
    if job.gpu_type_promised:
        return [job.gpu_type_promised]
    return sorted(job.request.gpu_types or cluster.capacity.gpu_types)


def _from_trials(cluster: Cluster, job: Job) -> Estimate | None:
    if len(job.measured_s) < _TRIALS:
        return None
    one_s, two_s = (max(measured_s, _SHORTEST_S) for measured_s in job.measured_s[:_TRIALS])
    nodes = max(1, nodes_of(cluster, job))
    detail = f"{nodes} nodes, by trials on one and on two"
    reason = Reason(ReasonCode.MEASURED, "nodes", nodes, detail=detail)
    basis = Basis(Source.PROFILED, Confidence.MEDIUM)  # of other sizes than its own
    return Estimate(job.job_id, on_nodes(one_s, two_s, nodes), reason, basis)
