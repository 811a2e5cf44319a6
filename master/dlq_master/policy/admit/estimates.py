"""How long jobs run of which nobody knows it: history says so, or trials, which have to be made
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.trials import likeness
from dlq_master.model.plan import Estimate, Profile
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.profiling import nodes_of, trials_of

FEWEST = 5  # completed runs before they count
SPREAD = 1.2  # at most, of the 90th percentile over the median
SURE = 10, 1.1  # runs, and their spread, that are as good as can be


class Trusted(NamedTuple):
    """How long the next of them runs."""

    run_s: float
    confidence: Confidence


def trusted(runs_s: Sequence[float]) -> Trusted | None:
    """By the median of these run times; None: they say too little."""
    if len(runs_s) < FEWEST:
        return None
    ordered = sorted(runs_s)
    median_s = _percentile(ordered, 0.5)
    spread = _percentile(ordered, 0.9) / median_s
    if spread > SPREAD:
        return None
    least, most = SURE
    sure = len(runs_s) >= least and spread <= most
    return Trusted(median_s, Confidence.HIGH if sure else Confidence.MEDIUM)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest that at least this share stays within."""
    return ordered[ceil(share * len(ordered) - 1e-9) - 1]


def on_nodes(one_s: float, two_s: float, nodes: int) -> float:
    """t_n = t_1 + log2(n) (t_2 - t_1): seconds on `nodes` nodes of what takes so long on one and on
    two.

    Computing takes the same time on every node, exchanging what was computed a step for each
    doubling. ValueError if there are no nodes, or a time is not positive.
    """
    if nodes < 1 or one_s <= 0.0 or two_s <= 0.0:
        raise ValueError(f"no pace: {one_s:g} s on one node, {two_s:g} s on two, {nodes} nodes")
    return max(one_s, one_s + log2(nodes) * (two_s - one_s))


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
