"""The best-effort order of `dlq`: the job with the least expected rest first.

One order for everything that may be known of a job, so that estimates may come, and be missing, job
by job:

- with an estimate: its rest as left_s x sqrt(GPUs), of an elastic job on its base. That is the
  geometric mean of remaining time (SRTF) and remaining service (SRSF, Tiresias' two dimensions).
  Either alone
  is up to a tenth worse on some workload;
- with a deadline and no estimate: a job with a deadline D is expected to need at most that long. Of
a run time
  that may be anything up to D, half of what is left of D is expected;
- before its trial is over (`profile_s`), without a deadline: as one that ends with its trial, the
cheapest trial in GPU-seconds first;
- with neither: its attained service, in steps of a factor of 4, the fewest GPUs first. Of
  heavy-tailed run times as much again is to be expected (2D-LAS, discretised). A running job stands
  by its service less the price of its stop. So one that cannot save keeps the step it started in.
  Where the completed jobs of this cluster needed about as much as each other, their mean rest is
  expected instead (`order.alike`). The price of a stop comes off that rest.
"""

from __future__ import annotations

from math import floor, sqrt

from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import Had, Key, KeyRule, Learned, Moving, MovingRule
from dlq_master.policy.order.alike import AlikeServices, alike

FIRST_GPU_S = 3200.0  # Tiresias' first threshold
FACTOR = 4.0


def expected_left(profile_s: float | None, aging: float = 0.0) -> KeyRule:
    """`profile_s`: estimates come once a job has run so long; None: they do not come.

    `aging`: a waiting job rises by so much each second (order.by_key.aged). Where only attained
    service counts, it rises in strides of the first step. Otherwise no job of one step would stand
    beside the others of it any more.
    """
    stride_s = FIRST_GPU_S / aging if aging else 0.0

    def by(known: AlikeServices | None) -> Key:
        def key(job: Job, had: Had) -> tuple[float, ...]:
            request = job.request
            base = request.weighed(request.base)
            if (
                job.duration_estimate_s is not None
                or job.steps
                or (profile_s is not None and had.executed_s < profile_s)
            ):  # of most jobs nothing is known, and an order asks for thousands of keys
                left = _left(job, had, profile_s, base)
                if left is not None:
                    return left + aging * had.unaged_s, base
            if known is None:
                left = bound_gpu_s(had.attained_gpu_s - had.kept_s * base)
            else:
                left = _unknown_gpu_s(known, had.attained_gpu_s, had.kept_s * base)
            if stride_s:
                left += floor(had.unaged_s / stride_s) * FIRST_GPU_S
            return left, base

        return key

    by_levels = by(None)

    def made(learned: Learned) -> Key:
        known = alike(learned.services_gpu_s)
        return by_levels if known is None else by(known)

    return made


def moving(profile_s: float | None) -> MovingRule:
    """How keys of this order move with the services of completed jobs: only those of jobs of which
    nothing is known. Of jobs that never ran, all expect the same rest.
    """

    def how(job: Job, had: Had) -> Moving:
        if expected_s(job, had, profile_s) is not None:
            return Moving.NOT
        return Moving.ALONE if had.attained_gpu_s else Moving.TOGETHER

    return how


def _unknown_gpu_s(known: AlikeServices, attained_gpu_s: float, kept_gpu_s: float) -> float:
    """By its service alone. The price of its stop comes off the expected rest. Without one, that
    price comes off the service of its level.
    """
    left = known.left_gpu_s(attained_gpu_s)
    return bound_gpu_s(attained_gpu_s - kept_gpu_s) if left is None else max(0.0, left - kept_gpu_s)


def _left(job: Job, had: Had, profile_s: float | None, base: float) -> float | None:
    """Where something is known of it; `base`: the weight of its fewest GPUs."""
    seconds = expected_s(job, had, profile_s)
    if seconds is None:
        return None
    if _is_tried(job, had, profile_s):
        return seconds * base
    return seconds * (sqrt(base) / job.speed_on(job.request.base))


def expected_s(job: Job, had: Had, profile_s: float | None) -> float | None:
    """Seconds that it is expected to run on the GPUs that it asked for; None: nobody knows.

    Without an estimate, half of what is left of its deadline is expected. Without a deadline, a job
    in its trial is expected to end with it.
    """
    executed_s, total_s = had.executed_s, job.duration_estimate_s
    if _is_tried(job, had, profile_s):
        assert profile_s is not None
        total_s = profile_s
    if total_s is not None:
        return max(0.0, total_s - executed_s - had.kept_s)
    if _is_bounded(job, had):
        return max(0.0, job.steps[0].deadline_s - executed_s - had.kept_s) / 2.0
    return None


def _is_tried(job: Job, had: Had, profile_s: float | None) -> bool:
    may_be = profile_s is not None and had.executed_s < profile_s
    return may_be and job.duration_estimate_s is None and not _is_bounded(job, had)


def _is_bounded(job: Job, had: Had) -> bool:
    """Whether its deadline still says how long it runs at most."""
    return bool(job.steps) and had.executed_s < job.steps[0].deadline_s


def bound_gpu_s(attained_gpu_s: float) -> float:
    """The upper bound of the level that so much service lies in."""
    bound = FIRST_GPU_S
    while bound <= attained_gpu_s:
        bound *= FACTOR
    return bound
