"""Queues as configured, with the numbers of their published jobs."""

from typing import NamedTuple

from dlq_master.control.config import MasterConfig
from dlq_master.control.people.queue_tally import QueuePart, QueueTally

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
    config: MasterConfig, policy: str, thresholds: tuple[float, ...], tally: QueueTally
) -> tuple[QueueFacts, ...]:
    """All queues in the order in which they are served."""
    jobs, gpus, cores = tally.jobs, tally.gpus, tally.cores
    priorities = {queue.name: queue.priority for queue in config.queues}
    return tuple(
        QueueFacts(
            name=name,
            priority=priorities[name],
            policy=policy,
            is_default=name == config.jobs.default_queue,
            levels=tuple(
                LevelFacts(
                    threshold,
                    jobs[name, QueuePart.WAITING, level],
                    jobs[name, QueuePart.RUNNING, level],
                )
                for level, threshold in enumerate((*thresholds, None))
            ),
            running_gpus=gpus[name, QueuePart.RUNNING],
            waiting_gpus=gpus[name, QueuePart.WAITING],
            held=tally.held(name),
            running_cores=cores[name, QueuePart.RUNNING],
            waiting_cores=cores[name, QueuePart.WAITING],
        )
        for name in in_order(config)
    )
