"""Queues as configured, with the numbers of their published jobs."""

from typing import NamedTuple

from dlq_common.errors import QuotaExceeded
from dlq_common.text.units import format_duration
from dlq_master.control.config import InteractiveConfig, MasterConfig
from dlq_master.control.loop.turn import Turn
from dlq_master.control.people.counts import gpus_of
from dlq_master.control.people.queue_tally import QueuePart, QueueTally

MOST_NICE = 100


class ClassWish(NamedTuple):
    """The wish of a submission, or a change, for the queue of interactive jobs."""

    width: int  # the GPUs of one job
    more: int  # GPUs in all, beyond those that its user has there
    time_s: float | None = None  # the time limit; None: as long as is usual


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
    interactive: InteractiveConfig | None = None  # the limits of the queue of interactive jobs


def in_order(config: MasterConfig) -> list[str]:
    """Names of the queues, the first to be served first: that of interactive jobs, and then by
    priority; equal priorities in the file's order.
    """
    first = config.interactive.queue
    queues = sorted(config.queues, key=lambda queue: (queue.name != first, -queue.priority))
    return [queue.name for queue in queues]


def priority_base(place: int, nice: int) -> int:
    """One number for the place of a queue and a nice between -MOST_NICE and MOST_NICE in it."""
    return place * (2 * MOST_NICE + 1) + nice


def job_priority(config: MasterConfig, queue: str, nice: int = 0) -> int:
    """The place of a queue among the queues, and of the job's nice in it: lower goes first."""
    return priority_base(in_order(config).index(queue), nice)


def wall_limit_s(config: MasterConfig, queue: str, asked_s: float | None) -> float | None:
    """The time limit of a job in this queue that asks for this one; None: none."""
    if asked_s is None and queue == config.interactive.queue:
        return float(config.interactive.time_limit)
    return asked_s


def check_class(turn: Turn, queue: str, user: str, wish: ClassWish) -> None:
    """Raises QuotaExceeded if a job, or so many, may not be in the queue of interactive jobs."""
    limits = turn.state.config.interactive
    if not queue or queue != limits.queue:
        return
    if wish.time_s is not None and wish.time_s > limits.max_time:
        what = f"a job of queue {queue} may run {format_duration(limits.max_time)} at most"
        raise QuotaExceeded(what, hint="a shorter -t, or another -p", queue=queue)
    if limits.gpus_per_job is not None and wish.width > limits.gpus_per_job:
        what = f"a job of queue {queue} may have {limits.gpus_per_job} GPUs at most"
        raise QuotaExceeded(
            what,
            hint="fewer GPUs, or another -p",
            queue=queue,
            asked=wish.width,
            limit=limits.gpus_per_job,
        )
    used = turn.state.jobs.counts.gpus[user] + turn.entered[gpus_of(user)]
    if limits.gpus_per_user is not None and used + wish.more > limits.gpus_per_user:
        raise QuotaExceeded(
            f"{user} may have {limits.gpus_per_user} GPUs in queue {queue}: jobs there have "
            f"{used}, and this asks for {wish.more} more",
            hint=f"end one of them (dlq status -p {queue}), or use another -p",
            queue=queue,
            limit=limits.gpus_per_user,
            used=used,
            asked=wish.more,
        )


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
            interactive=config.interactive if name == config.interactive.queue else None,
        )
        for name in in_order(config)
    )
