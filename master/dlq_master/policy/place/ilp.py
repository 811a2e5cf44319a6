"""`place=ilp`: Tiresias' Appendix D chooses among the GPUs that are free now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, lowest
from dlq_master.model.resources import Shape
from dlq_master.policy.place import consolidate
from dlq_master.policy.place.placement import Placement

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of a job whose model nobody has measured: the mean of the ten models of the paper's Table 6.
MODEL_BYTES = 259.75e6


class PlacementChoice(NamedTuple):
    """Where the job goes, and how that was found, for people."""

    parts: Parts
    told: str


class Balance:
    """The network load of every node as one plan sees it, its own starts included.

    A job has as many parameter servers as workers (the paper's default), one of them with its
    largest tensor if its skew is known. The places of the servers of running jobs are unknown. They
    are taken to be spread like the workers. So a node with w of W carries 2 w M (1 - w / W).
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._traffic: dict[str, float] = {}
        for key, attempt in cluster.attempts.items():
            slots = attempt.lease.allocation.slots
            widths = [(slot.node_id, slot.mask.bit_count()) for slot in slots]
            self._carry(cluster.jobs[key.job_id], widths)

    def choose(self, job: Job, pool: Pool, shape: Shape, fallback: Parts) -> PlacementChoice:
        """The optimum, or the fallback with the reason why it is none; counted as placed."""
        choice = self._choose(job, pool, shape, fallback)
        names = self._cluster.capacity.node_ids
        self._carry(job, [(names[node], mask.bit_count()) for node, mask in choice.parts])
        return choice

    def _choose(self, job: Job, pool: Pool, shape: Shape, fallback: Parts) -> PlacementChoice:
        if len(fallback) == 1:
            return PlacementChoice(fallback, "")  # no network at all: nothing is better
        from dlq_master.policy.place.balance import BalanceProgram, solve

        allowed = pool.allowed(shape)
        nodes = [node for node, mask in enumerate(allowed.masks) if mask]
        names = self._cluster.capacity.node_ids
        program = BalanceProgram(
            free=[allowed.masks[node].bit_count() for node in nodes],
            traffic=[self._traffic.get(names[node], 0.0) for node in nodes],
            servers=_servers(job.profile, shape.gpus),
            workers=shape.gpus,
            each=None if shape.nodes is None else shape.gpus // shape.nodes,
            beside=True,
        )
        found = solve(program)
        if found is None:
            return PlacementChoice(
                fallback,
                "on the fewest nodes: its placement program was too large, or not solved in time",
            )
        widths = [(n, w) for n, w in zip(nodes, found.workers, strict=True) if w]
        parts = tuple(Part(node, lowest(allowed.masks[node], width)) for node, width in widths)
        return PlacementChoice(
            parts, f"the busiest node sends {found.busiest / 1e9:.2f} GB an iteration"
        )

    def _carry(self, job: Job, widths: Sequence[tuple[str, int]]) -> None:
        if len(widths) > 1:
            workers, model = sum(width for _, width in widths), _model_bytes(job.profile)
            for node, width in widths:
                added = 2.0 * width * model * (1.0 - width / workers)
                self._traffic[node] = self._traffic.get(node, 0.0) + added


def _model_bytes(profile: TrafficProfile | None) -> float:
    known = None if profile is None else profile.model_bytes
    return MODEL_BYTES if known is None else known


def _servers(profile: TrafficProfile | None, count: int) -> list[float]:
    model, skew = _model_bytes(profile), None if profile is None else profile.skew
    if count == 1 or skew is None or skew <= 1 / count:
        return [model / count] * count
    return [skew * model] + [(1.0 - skew) * model / (count - 1)] * (count - 1)


ILP = Placement("ilp", consolidate.fewest_now, balances=True)
