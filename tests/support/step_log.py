"""What `train_ddp.py --step-log` has written, and on how many GPUs an elastic job runs."""

from pathlib import Path

from dlq.v1 import job_pb2


def runs_on(job: job_pb2.Job, gpus: int) -> bool:
    """Whether it runs on so many, and is not on its way to others."""
    running = job.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING
    elastic = job.elastic
    return running and (elastic.current_gpu_count, elastic.next_gpu_count) == (gpus, 0)


def steps(log: Path) -> list[int]:
    """The steps done, in order."""
    return [step for step, _ in _lines(log)]


def worlds(log: Path) -> list[int]:
    """Numbers of processes in the order in which they came."""
    found: list[int] = []
    for _, world in _lines(log):
        if found[-1:] != [world]:
            found.append(world)
    return found


def _lines(log: Path) -> list[tuple[int, int]]:
    if not log.exists():
        return []
    found = [line.split() for line in log.read_text().splitlines()]
    return [(int(step), int(world)) for step, world in found]
