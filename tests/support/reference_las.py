"""The released Tiresias simulator's `dlas-gpu` and `dlas-gpu-N`, from its rules: a clean-room
replay.

At every instant everybody is planned anew. Whole seconds; shares no code with the core.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Row = tuple[int, int, int]  # submit, GPUs, duration


@dataclass(eq=False)
class Ran:
    """One job; `executed` and `pending` count since its last promotion, `pending` once it has
    executed.
    """

    number: int
    submit: int
    gpus: int
    duration: int
    level: int = 0
    done: int = 0
    executed: int = 0
    pending: int = 0
    running: bool = False
    finish: int = -1
    preemptions: int = 0


@dataclass(frozen=True)
class Rules:
    """`knob`: PROMOTEKNOB, 0 for none. `late`: its slip, that takes seconds from GPU-seconds."""

    gpus: int
    limits: tuple[int, ...]
    knob: int = 0
    late: bool = True


def replay(rows: list[Row], rules: Rules) -> list[Ran]:
    """Every job, ended."""
    jobs = [Ran(number, *row) for number, row in enumerate(sorted(rows, key=lambda r: r[0]))]
    arriving, now, timer = list(jobs), 0, -1
    queues: list[list[Ran]] = [[] for _ in range(len(rules.limits) + 1)]
    while arriving or any(queues):
        there = [job for queue in queues for job in queue]
        ends = [now + job.duration - job.done for job in there if job.running]
        then = min([*ends, *(job.submit for job in arriving[:1]), *[timer] * (timer >= 0)])
        _pass(there, then - now)
        now = then
        for job in (job for job in there if job.running and job.done == job.duration):
            job.finish, job.running = now, False
            queues[job.level].remove(job)
        while arriving and arriving[0].submit == now:
            queues[0].append(arriving.pop(0))
        _move(queues, rules)
        _serve(queues, rules.gpus)
        timer = min(_timers(now, queues, rules), default=-1)
    return jobs


def _pass(jobs: list[Ran], seconds: int) -> None:
    for job in jobs:
        if job.running:
            job.done += seconds
            job.executed += seconds
        elif job.executed:
            job.pending += seconds


def _move(queues: list[list[Ran]], rules: Rules) -> None:
    """Down by one level, or up to the tail of the first: everybody in the order of arrival."""
    for job in sorted((job for queue in queues for job in queue), key=lambda job: job.number):
        level = job.level
        if job.running:
            if level < len(rules.limits) and job.executed * job.gpus >= rules.limits[level]:
                job.level += 1
        elif _may_starve(job, rules) and job.pending >= job.executed * rules.knob:
            job.level = job.executed = job.pending = 0
        if job.level != level:
            queues[level].remove(job)
            queues[job.level].append(job)


def _may_starve(job: Ran, rules: Rules) -> bool:
    return bool(rules.knob and job.level and job.executed)


def _serve(queues: list[list[Ran]], left: int) -> None:
    for queue in queues:
        for job in queue:
            fits = job.gpus <= left
            left -= job.gpus if fits else 0
            job.preemptions += job.running and not fits
            job.running = fits
        queue.sort(key=lambda job: not job.running)


def _timers(now: int, queues: list[list[Ran]], rules: Rules) -> Iterator[int]:
    """When somebody will move if nothing else happens before; what is past is not looked at."""
    for job in (job for queue in queues for job in queue):
        if job.running and job.level < len(rules.limits):
            limit = rules.limits[job.level]
            left = limit - job.executed * (1 if rules.late else job.gpus)
            due = now + (left // job.gpus if rules.late else -(-left // job.gpus))
        elif not job.running and _may_starve(job, rules):
            due = now + job.executed * rules.knob - job.pending
        else:
            continue
        if due > now:
            yield due
