"""Reports on ended jobs: waiting times, kept deadlines, costs of stops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from dlq.v1 import job_pb2
from dlq_cli.facts.common import Facts
from dlq_cli.lists.past import gpu_hours
from dlq_common.text.wire import from_duration, from_timestamp

WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # the most GPUs of a group
_TOTAL = "all"


def waits(jobs: Iterable[job_pb2.Job]) -> list[Facts]:
    """Waiting times by number of GPUs: from the submission to the first start, and all time without
    running.
    """
    groups: dict[str, list[job_pb2.Job]] = defaultdict(list)
    for job in jobs:
        groups[_width(job.resources.gpu_count)].append(job)
        groups[_TOTAL].append(job)
    order = [*map(_width, (*WIDTHS, WIDTHS[-1] + 1)), _TOTAL]
    return [_wait_row(width, groups[width]) for width in order if groups[width]]


def promises(jobs: Iterable[job_pb2.Job]) -> list[Facts]:
    """Counts of jobs with deadlines, grouped by promise and by the reason against a better one. A
    job is in time by its promised deadline, or else by its last deadline. A promise that was given
    up is an unguaranteed job with that ground.
    """
    groups: dict[tuple[str, str], list[job_pb2.Job]] = defaultdict(list)
    for job in jobs:
        if job.HasField("promise"):
            promised = job.promise.state == "guaranteed"
            groups[job.promise.state, "" if promised else job.promise.ground].append(job)
    return [_promise_row(*key, found) for key, found in sorted(groups.items())]


def preemptions(jobs: Iterable[job_pb2.Job]) -> list[Facts]:
    """Stops of jobs by user, stops for other jobs by the order of the policy, and work that had to
    be done again. The user with the greatest loss comes first.
    """
    groups: dict[str, list[job_pb2.Job]] = defaultdict(list)
    for job in jobs:
        groups[job.user].append(job)
    rows = [_stop_row(user, found) for user, found in groups.items()]
    rows.sort(key=lambda row: (-row["lost_gpu_hours"], row["user"]))
    everybody = [job for found in groups.values() for job in found]
    return [*rows, _stop_row(_TOTAL, everybody)] if len(rows) > 1 else rows


# --- helpers, in order of use ---------------------------------------------------------------------


def _width(gpus: int) -> str:
    below = 0
    for most in WIDTHS:
        if gpus <= most:
            return str(most) if most - below == 1 else f"{below + 1}-{most}"
        below = most
    return f">{below}"


def _wait_row(width: str, jobs: Sequence[job_pb2.Job]) -> Facts:
    started = [job for job in jobs if job.HasField("start_time")]
    first = _sorted(started, lambda job: _span(job, "start_time"))
    idle = _sorted(started, lambda job: _span(job, "end_time") - from_duration(job.run_duration))
    return {
        "gpus": width,
        "jobs": len(jobs),
        "never_started": len(jobs) - len(started),
        "start_p50_s": _part(first, 0.5),
        "start_p90_s": _part(first, 0.9),
        "start_max_s": _part(first, 1.0),
        "not_running_p50_s": _part(idle, 0.5),
        "not_running_p90_s": _part(idle, 0.9),
    }


def _sorted(jobs: Iterable[job_pb2.Job], measure: Callable[[job_pb2.Job], float]) -> list[float]:
    return sorted(max(0.0, measure(job)) for job in jobs)


def _span(job: job_pb2.Job, field: str) -> float:
    return from_timestamp(getattr(job, field)) - from_timestamp(job.submit_time)


def _part(values: Sequence[float], part: float) -> float | None:
    """The smallest value that this share of them does not exceed."""
    if not values:
        return None
    return round(values[max(0, -int(-part * len(values) // 1) - 1)], 1)


_JUDGED = frozenset({"guaranteed", "unguaranteed"})


def _promise_row(state: str, ground: str, jobs: Sequence[job_pb2.Job]) -> Facts:
    done = [job for job in jobs if job.state == job_pb2.JOB_STATE_COMPLETED]
    in_time = sum(_in_time(job) for job in done)
    return {
        "state": state,
        "ground": ground or None,
        "jobs": len(jobs),
        "in_time": in_time,
        "late": len(done) - in_time,
        "not_completed": len(jobs) - len(done),
        # Unjudged jobs have neither a promise nor a refusal.
        "kept_percent": round(100.0 * in_time / len(jobs), 1) if state in _JUDGED else None,
    }


def _in_time(job: job_pb2.Job) -> bool:
    promise = job.promise
    index = promise.guaranteed_index if promise.HasField("guaranteed_index") else -1
    return from_timestamp(job.end_time) <= from_timestamp(promise.deadlines[index].due_time)


def _stop_row(user: str, jobs: Sequence[job_pb2.Job]) -> Facts:
    return {
        "user": user,
        "jobs": len(jobs),
        "preempted_jobs": sum(job.preemption_count > 0 for job in jobs),
        "preemptions": sum(job.preemption_count for job in jobs),
        "for_others": sum(job.displaced_count for job in jobs),
        "gpu_hours": gpu_hours(sum(job.gpu_seconds for job in jobs)),
        "lost_gpu_hours": gpu_hours(sum(job.lost_gpu_seconds for job in jobs)),
    }
