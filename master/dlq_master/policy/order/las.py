"""2D-LAS, discretised: levels by attained GPU-seconds, demotion exactly at the threshold.

Position inside a level is kept by the cluster (`model.order`), so that the order stage has only
the moves between levels to say.
"""

from __future__ import annotations

from dlq_master.model.plan import Demote, Promote
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode


def demotions(view: View) -> list[Demote]:
    """Jobs whose service has reached the upper bound of their level, the earliest first."""
    cluster = view.cluster
    moves = []
    for job_id in cluster.levels.crossings.due(view.now_s):
        level = cluster.jobs[job_id].level
        limit = cluster.ordering.thresholds[level]
        reason = Reason(ReasonCode.THRESHOLD_CROSSED, "attained_gpu_s", limit, limit)
        moves.append(Demote(job_id, level + 1, reason))
    return moves


def promotions(view: View) -> list[Promote]:
    """Jobs that have waited PROMOTEKNOB x their execution, or STARVELIMIT without a break."""
    cluster = view.cluster
    moves = []
    for job_id in cluster.levels.promotions.due(view.now_s):
        since_s = cluster.jobs[job_id].queued_since_s or view.now_s
        reason = Reason(ReasonCode.STARVED, "waiting_s", have=view.now_s - since_s)
        moves.append(Promote(job_id, reason))
    return moves
