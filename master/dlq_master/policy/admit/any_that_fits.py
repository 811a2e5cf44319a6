"""Everybody may enter whose request the registered nodes could hold, were they all free."""

from __future__ import annotations

from collections.abc import Callable, Collection

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.nodes.node import Node
from dlq_master.model.plan import Admit, Reject
from dlq_master.model.resources import CORES_ONLY, Shape, only_gpus
from dlq_master.model.traits import each_alone, has_all, runtime_of, too_small, words_of
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.admit.cores import never_cores
from dlq_master.policy.admit.submission import late
from dlq_master.policy.place.allocation.mixed import all_types
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.trial.rules import TrialRules


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
        if not (job.request.without_gpus or cluster.capacity.gpu_types):
            continue  # only nodes without GPUs have come yet
        reason = never(cluster, placement, cluster.asked(job))
        if reason is None and job_id in waits:
            continue
        if reason is None:
            verdicts.append(Admit(job_id, Reason(ReasonCode.ADMISSIBLE)))
        elif job.submit_time_s >= view.now_s and job.lateness is None:
            verdicts.append(Reject(job_id, reason))
    return verdicts


def never(cluster: Cluster, placement: Placement, shape: Shape) -> Reason | None:
    """Why no set of the registered nodes could ever hold the shape; None if one could."""
    capacity = cluster.capacity
    capacity.ready()
    if (placement.find, shape) in capacity.held:
        return None
    reason = _never(cluster, placement, shape._replace(avoid=()))  # it avoids those just for now
    if reason is None:
        capacity.note_held((placement.find, shape))
    return reason


def _never(cluster: Cluster, placement: Placement, shape: Shape) -> Reason | None:
    totals = cluster.capacity.total
    pools = [pool for _, pool in shape.of_types(totals)]
    if shape.gpu_types == CORES_ONLY:
        return never_cores(cluster.nodes.values(), pools, placement, shape)
    if not pools:
        known = ", ".join(only_gpus(totals)) or "none"
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


def unmet(
    nodes: Collection[Node], shape: Shape, fits: Callable[[Shape], bool], *, ever: bool = False
) -> list[Reason]:
    """The typed reasons, for a shape that does not fit; empty when it is not for what it asks of
    its nodes. `ever`: never, rather than just now; then all that it asks for is one reason."""
    if shape.traits is None:
        return []
    runtime = runtime_of(shape.traits)
    if runtime != shape.traits and fits(shape._replace(traits=runtime)):
        return [_constraint(nodes, shape, it, ever=ever) for it in _texts(shape, fits, ever=ever)]
    if runtime is not None and fits(shape._replace(traits=None)):
        able = _able(nodes, runtime)
        detail = _containers(able, len(nodes), ever=ever)
        return [Reason(ReasonCode.RUNTIME, "nodes", shape.nodes, able, detail=detail)]
    return []


def _texts(shape: Shape, fits: Callable[[Shape], bool], *, ever: bool) -> list[str]:
    """Each of its traits that alone keeps it out; all of them together if none does."""
    traits = shape.traits or ""
    alone = [] if ever else [it for it in each_alone(traits) if not fits(shape._replace(traits=it))]
    return alone or [traits]


def _constraint(nodes: Collection[Node], shape: Shape, traits: str, *, ever: bool) -> Reason:
    able = _able(nodes, traits)
    words = words_of(traits)
    most = too_small(nodes, traits)
    told = f"the largest has {most}" if most else _counted(able, len(nodes), ever=ever)
    detail = f"{words}; {told}"
    return Reason(ReasonCode.CONSTRAINT, "nodes", shape.nodes, able, (), detail, words)


def _able(nodes: Collection[Node], traits: str) -> int:
    return sum(has_all(node, traits) for node in nodes)


def _counted(able: int, nodes: int, *, ever: bool) -> str:
    if not able:
        return f"that is true of none of the {nodes} nodes (see `dlq nodes -l`)"
    if not ever:
        return f"that is true of {able} of the {nodes} nodes; GPUs are free on others"
    return (
        f"the {able} nodes of which that is true could never hold it"
        if able > 1
        else "the one of which that is true could never hold it"
    )


def _containers(able: int, nodes: int, *, ever: bool) -> str:
    if not ever:
        return f"of {nodes} nodes {able} run containers; GPUs are free on others"
    if not able:
        return 'no node runs containers (runtime = "podman" in an agent\'s configuration)'
    count = "1 node runs" if able == 1 else f"{able} nodes run"
    return f"the {count} containers and could never hold it"
