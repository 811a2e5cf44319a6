"""Queues as configured, counted over the published jobs."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from dlq_master.control.config import MasterConfig
from dlq_master.model.jobs.job import Job, JobState

MOST_NICE = 100


class LevelFacts(NamedTuple):
    """One level of a queue; `threshold_gpu_s` None: the last one, nobody leaves it."""

    threshold_gpu_s: float | None
    waiting: int
    running: int


class QueueFacts(NamedTuple):
    """One queue, with its present contents."""

    name: str
    priority: int
    policy: str
    is_default: bool
    levels: tuple[LevelFacts, ...]
    running_gpus: int
    waiting_gpus: int
    held: int
    running_cores: int = 0  # of jobs without GPUs
    waiting_cores: int = 0


def in_order(config: MasterConfig) -> list[str]:
    """Names of the queues, the first to be served first; equal priorities in the file's order."""
    return [queue.name for queue in sorted(config.queues, key=lambda queue: -queue.priority)]


def priority_base(place: int, nice: int) -> int:
    """One number for the place of a queue and a nice between -MOST_NICE and MOST_NICE in it."""
    return place * (2 * MOST_NICE + 1) + nice


def job_priority(config: MasterConfig, queue: str, nice: int = 0) -> int:
    """The place of a queue among the queues, and of the job's nice in it: lower goes first."""
    return priority_base(in_order(config).index(queue), nice)


def count(
    config: MasterConfig, policy: str, thresholds: tuple[float, ...], jobs: Iterable[Job]
) -> tuple[QueueFacts, ...]:
    """All queues in the order in which they are served."""
    waiting: Counter[tuple[str, int]] = Counter()
    running: Counter[tuple[str, int]] = Counter()
    waiting_gpus: Counter[str] = Counter()
    running_gpus: Counter[str] = Counter()
    waiting_cores: Counter[str] = Counter()
    running_cores: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for job in jobs:
        if job.live_attempt is not None:
            running[job.queue, job.level] += 1
            running_gpus[job.queue] += job.request.real_gpus
            running_cores[job.queue] += job.request.cores
        elif job.waiting:
            waiting[job.queue, job.level] += 1
            waiting_gpus[job.queue] += job.request.real_gpus
            waiting_cores[job.queue] += job.request.cores
        elif job.state is JobState.HELD:
            held[job.queue] += 1
    priorities = {queue.name: queue.priority for queue in config.queues}
    return tuple(
        QueueFacts(
            name=name,
            priority=priorities[name],
            policy=policy,
            is_default=name == config.jobs.default_queue,
            levels=tuple(
                LevelFacts(threshold, waiting[name, level], running[name, level])
                for level, threshold in enumerate((*thresholds, None))
            ),
            running_gpus=running_gpus[name],
            waiting_gpus=waiting_gpus[name],
            held=held[name],
            running_cores=running_cores[name],
            waiting_cores=waiting_cores[name],
        )
        for name in in_order(config)
    )
