"""The floors of ticks and full plans: the same work as bare loops of Python, without any decision.

    python -m benchmarks.planning.floors [--queued 100000] [--json]

Nothing that plans in Python can take less. Each loop runs over the jobs of `planning.tick`, so it
meets the same cold caches:

- a completion: copies of the values that change (the ended attempt and job, the started job), and
  the new lease, attempt and start. No index, no order, no check, no place to find;
- starts on an empty cluster: the values of each start, with the GPUs already found;
- terms that end: each attempt, lease and job is read, and a renewal is made of it;
- the order of running jobs: each job's key at this instant as a position, and one sort.

A full plan of `dlq` at a boundary needs the last two, so one loop does both as well. The
figures are CPU times, the best of five, or the median of many for a completion.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable

from benchmarks.planning.tick import clock_reading_s, loaded, policy_named
from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report
from dlq_common.daemon.collector import NEVER, YOUNG
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, Fence, JobId, NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.job_changes import changed
from dlq_master.model.lease import Lease, LeaseKind
from dlq_master.model.plan import Renew, Start
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.values import changer, maker
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.order.expected_left import bound_gpu_s

COMPLETIONS = 3000
_FITS, _OVER = Reason(ReasonCode.FITS), Reason(ReasonCode.TERM_OVER)
_BE = LeaseKind.BE
_COMPLETED, _SUCCEEDED = JobState.COMPLETED, AttemptState.SUCCEEDED
_slot, _allocation, _lease = maker(Slot), maker(Allocation), maker(Lease)
_start, _renew, _key, _fence = maker(Start), maker(Renew), maker(AttemptKey), maker(Fence)
_attempt = changer(Attempt)


def main() -> None:
    """Measure each floor."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--queued", default=100_000, type=int)
    report = Report.begin("planning.floors", options)
    gc.set_threshold(*YOUNG, NEVER)  # as the daemon does
    cluster = loaded(policy_named("dlq"), report.options.queued)
    gc.collect()
    gc.freeze()
    report.say(f"{len(cluster.attempts)} attempts run, {report.options.queued} jobs wait")
    report.figure("a completion, values alone, p50", 1e6 * completion_s(cluster), "us")
    each = len(cluster.attempts)
    found = placed(cluster)
    for name, loop in (
        (f"values of {each} starts", lambda: starts(found)),
        (f"values of {each} renewals", lambda: renewals(cluster)),
        (f"order of {each} running jobs", lambda: order(cluster, 290.0)),
        (f"order and renewals of {each} in one loop", lambda: ordered_renewals(cluster, 290.0)),
    ):
        report.figure(name, 1e3 * best_s(loop), "ms")
    report.end()


def best_s(loop: Callable[[], object]) -> float:
    """CPU seconds, the best of five."""
    best = float("inf")
    for _ in range(5):
        begun_s = time.thread_time()
        loop()
        best = min(best, time.thread_time() - begun_s)
    return best


def completion_s(cluster: Cluster) -> float:
    """The median over jobs that are met in an order that says nothing."""
    keys = [*cluster.attempts]
    random.Random(1).shuffle(keys)
    waiting = [job for job in cluster.jobs.values() if job.waiting]
    random.Random(2).shuffle(waiting)
    clock_s, costs = clock_reading_s(), []
    for key, job in zip(keys[:COMPLETIONS], waiting, strict=False):
        begun_s = time.thread_time()
        replaced(cluster, key, job)
        costs.append(time.thread_time() - begun_s - clock_s)
    return percentile(costs, 0.5)


def replaced(cluster: Cluster, key: AttemptKey, next_job: Job) -> tuple[object, ...]:
    """One attempt and its job end, and the next job starts on its GPUs."""
    held, job = cluster.attempts[key], cluster.jobs[key.job_id]
    ended = _attempt(held, {"state": _SUCCEEDED, "ended_time_s": 12.0})
    done = changed(job, {"state": _COMPLETED, "live_attempt": None, "end_time_s": 12.0})
    kind, allocation, _, end_s, hold_s = held.lease
    number = next_job.attempts + 1
    start = _start((next_job.job_id, allocation, kind, end_s, _FITS, False))
    lease = _lease((kind, allocation, _fence((1, number)), end_s, hold_s))
    runs = changed(next_job, {"live_attempt": number, "attempts": number, "queued_since_s": None})
    attempt = _attempt(held, {"key": _key((next_job.job_id, number)), "lease": lease})
    return ended, done, start, runs, attempt


def placed(cluster: Cluster) -> list[tuple[JobId, NodeId, int]]:
    """Starts as a placement finds them. One node each is enough for a floor."""
    held = [(key.job_id, it.lease.allocation.slots[0]) for key, it in cluster.attempts.items()]
    return [(job_id, slot.node_id, slot.mask) for job_id, slot in held]


def starts(found: list[tuple[JobId, NodeId, int]]) -> list[Start]:
    """Their values."""
    return [
        _start((job_id, _allocation(((_slot((node_id, mask)),),)), _BE, 300.0, _FITS, False))
        for job_id, node_id, mask in found
    ]


def renewals(cluster: Cluster) -> list[Renew]:
    """One for each attempt, by the band of its job."""
    attempts, jobs, found, band = cluster.attempts, cluster.jobs, [], None
    for key in cluster.attempts:
        end_s = attempts[key].lease.term_end_s
        if jobs[key[0]].band is not band:
            band = jobs[key[0]].band
        found.append(_renew((key, end_s, _OVER, None)))
    return found


def order(cluster: Cluster, now_s: float) -> list[tuple[float, float, int, JobId]]:
    """All running jobs by their attained service, in the steps of `dlq`, then by their widths."""
    attempts, jobs, found = cluster.attempts, cluster.jobs, []
    for key, attempt in attempts.items():
        job = jobs[key[0]]
        started_s = attempt.started_time_s or now_s
        request = job.request
        attained = job.attained_gpu_s + (now_s - started_s) * request.gpus
        found.append((bound_gpu_s(attained), float(request.gpus), job.sequence, key[0]))
    found.sort()
    return found


def ordered_renewals(cluster: Cluster, now_s: float) -> list[tuple[float, float, int, Renew]]:
    """Both in one loop, so that each value is read once."""
    jobs, found = cluster.jobs, []
    for key, attempt in cluster.attempts.items():
        job = jobs[key[0]]
        started_s = attempt.started_time_s or now_s
        gpus = job.request.gpus
        attained = job.attained_gpu_s + (now_s - started_s) * gpus
        renewal = _renew((key, attempt.lease.term_end_s, _OVER, None))
        found.append((bound_gpu_s(attained), float(gpus), job.sequence, renewal))
    found.sort()
    return found


if __name__ == "__main__":
    main()
