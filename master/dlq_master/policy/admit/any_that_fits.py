"""Everybody may enter whose request the registered nodes could hold, were they all free."""

from __future__ import annotations

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.plan import Admit, Reject
from dlq_master.model.resources import Shape
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.admit.submission import late
from dlq_master.policy.place.all_types import all_types
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.trial.rules import TrialRules
from dlq_master.policy.unmet import unmet


def admissions(
    view: View, placement: Placement, profiles: TrialRules | None = None
) -> list[Admit | Reject]:
    """A verdict for every PENDING job that has one, in order.

    A job is refused at the instant it comes, or not at all. One that came before its nodes had
    registered has been promised a place, and waits for the nodes still to come. So does one with a
    cost of being late, for machines that may be rented. Under `profiles` one whose user has sent
    too much to be profiled stays as it is, until its turn comes.
    """
    cluster = view.cluster
    cluster.capacity.ready()
    if not cluster.pending or not cluster.capacity.total:
        return []
    verdicts: list[Admit | Reject] = []
    waits = {} if profiles is None else late(view, profiles)
    for job_id in sorted(cluster.pending):
        job = cluster.jobs[job_id]
        reason = never(cluster, placement, cluster.shape(job))
        if reason is None and job_id in waits:
            continue
        if reason is None:
            verdicts.append(Admit(job_id, Reason(ReasonCode.ADMISSIBLE)))
        elif job.submit_time_s >= view.now_s and job.lateness is None:
            verdicts.append(Reject(job_id, reason))
    return verdicts


def never(cluster: Cluster, placement: Placement, shape: Shape) -> Reason | None:
    """Why no set of the registered nodes could ever hold the shape; None if one could."""
    cluster.capacity.ready()
    shape = shape._replace(avoid=())  # what it avoids just now says nothing about ever
    totals = cluster.capacity.total
    pools = [pool for _, pool in shape.of_types(totals)]
    if not pools:
        known = ", ".join(totals) or "none"
        asked = " or ".join(shape.gpu_types or ())
        kind = f"{asked} " if asked else ""
        return Reason(
            ReasonCode.GPU_TYPE,
            "gpu_type",
            shape.gpus,
            0,
            (),
            f"no node has {kind}GPUs (there are: {known})",
            asked,
        )
    if shape.mixed and len(pools) > 1:
        pools.append(all_types(pools))
    if any(placement.find(pool, shape) for pool in pools):
        return None
    choices = unmet(
        cluster.nodes.values(),
        shape,
        lambda other: any(placement.find(pool, other) for pool in pools),
        ever=True,
    )
    if choices:
        return choices[0]
    most = max(pool.total for pool in pools)
    over = f" over {shape.nodes} nodes" if shape.nodes is not None else ""
    told = f"no set of the registered nodes has {shape.gpus} GPUs{over}"
    if shape.mixed:
        told = f"{told}; of all types together there are {most}"
    return Reason(
        ReasonCode.NO_SUCH_SHAPE,
        "gpus",
        shape.gpus,
        None if shape.mixed else most,
        (),
        told,
    )
