"""How long jobs run of which nobody knows it: history says so, or trials, which have to be made
first.
"""

from __future__ import annotations

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.trials import likeness
from dlq_master.model.plan import Estimate, Profile
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.profiling import nodes_of, trials_of
from dlq_master.policy.trial.history import on_nodes, trusted

_TRIALS = 2  # of a job that is tried on fewer GPUs than it asks for
_SHORTEST_S = 1.0  # a trial can end in the instant in which it begins, and a pace needs a duration


def estimates(view: View) -> list[Profile | Estimate]:
    """Jobs to be profiled, and jobs with enough known, in the order of arrival."""
    cluster = view.cluster
    found: list[Profile | Estimate] = []
    for job_id in sorted(cluster.profiling.unknown):
        job = cluster.jobs[job_id]
        told = _from_trials(cluster, job) or from_history(cluster, job)
        if told is not None:
            found.append(told)
        elif trials := trials_of(cluster, job):
            found.append(Profile(job_id, trials, Reason(ReasonCode.NOT_PROFILED)))
    return found


def foretold(view: View) -> list[Estimate]:
    """Jobs with enough known by the runs of others, in the order of families; costs O(jobs that
    wait and have such a family).
    """
    profiling = view.cluster.profiling
    found: list[Estimate] = []
    for key in [key for key in profiling.of_family if key in profiling.runs]:
        for job_id in profiling.of_family[key]:
            told = from_history(view.cluster, view.cluster.jobs[job_id])
            if told is not None:
                found.append(told)
    return found


def from_history(cluster: Cluster, job: Job) -> Estimate | None:
    """By the runs of earlier jobs of its family, if they ran alike on GPUs of every type that it
    may get. A measurement on one type says nothing of another. The slowest of these types counts.
    """
    if not job.family:
        return None
    runs = cluster.profiling.runs.get(likeness(job))
    if runs is None:
        return None
    told = [trusted(runs.get(gpu_type, ())) for gpu_type in _types(cluster, job)]
    known = [each for each in told if each is not None]
    if not known or len(known) < len(told):
        return None
    slowest = max(known, key=lambda each: each.run_s)
    sure = all(each.confidence is Confidence.HIGH for each in known)
    confidence = Confidence.HIGH if sure else Confidence.MEDIUM
    count = sum(len(runs[gpu_type]) for gpu_type in _types(cluster, job))
    reason = Reason(ReasonCode.RAN_ALIKE, detail=f"{count} jobs of {job.family}")
    return Estimate(job.job_id, slowest.run_s, reason, Basis(Source.HISTORY, confidence))


def _types(cluster: Cluster, job: Job) -> list[str]:
    if job.gpu_type_promised:
        return [job.gpu_type_promised]
    cluster.capacity.ready()
    return sorted(job.request.gpu_types or cluster.capacity.total)


def _from_trials(cluster: Cluster, job: Job) -> Estimate | None:
    if len(job.measured_s) < _TRIALS:
        return None
    one_s, two_s = (max(measured_s, _SHORTEST_S) for measured_s in job.measured_s[:_TRIALS])
    nodes = max(1, nodes_of(cluster, job))
    detail = f"{nodes} nodes, by trials on one and on two"
    reason = Reason(ReasonCode.MEASURED, "nodes", nodes, detail=detail)
    basis = Basis(Source.PROFILED, Confidence.MEDIUM)  # of other sizes than its own
    return Estimate(job.job_id, on_nodes(one_s, two_s, nodes), reason, basis)
