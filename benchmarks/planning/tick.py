"""The scheduling core: CPU per completion, full replans, memory per queued job.

    python -m benchmarks.planning.tick [--queued 1000,10000,100000] [--policy tiresias-las]
        [--shapes N] [--json]

A completion is the end of a running job and the core's work about it. It covers the attempt's and
the job's state machines, every index, plan, check, and the start of the next job. It is shown whole
and by part: first where jobs of one GPU end and start, then for as many of each of the `KINDS`.
Where the head of the line blocks it, the next job is ahead of that head. A completion after which
nothing starts, as the head waits for more GPUs, has a row of its own.
All times are CPU time of this thread, less the cost of reading its clock. Goals of issue 21:
<= 20 us per completion for `fifo` and `tiresias-las`, <= 40 us for `dlq`. <= 15 ms for a full
replan of 10,000 GPUs; <= 1.5 KiB per queued job. At the longest queue a completion costs at most
1.5 times as much as at the shortest.

`--shapes N`: waiting jobs ask for N different sizes of memory, in turn, up to that of the largest
nodes. Nodes have four different sizes. Completions and reasons stand beside those where all ask for
the same, with a goal of at most twice as much. 0: nobody asks, and nodes have told none.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
import timeit
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from benchmarks.support.conditions import percentile
from benchmarks.support.report import Report
from dlq_common.daemon.collector import NEVER, YOUNG
from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import Terms
from dlq_master.model.nodes.node import Gpu, Node
from dlq_master.model.plan import Plan, Start
from dlq_master.model.resources import Request, Shape
from dlq_master.model.view import View
from dlq_master.policy.legal.check import check_delta
from dlq_master.policy.pipeline import plan
from dlq_master.policy.policy import Policy
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.policy.registry.presets import PRESETS
from dlq_master.policy.registry.registry import build

NODES, GPUS_PER_NODE = 1250, 8
# Shares of GPU counts, after Microsoft's Philly trace but with more wide jobs.
WIDTHS = {1: 0.60, 2: 0.14, 4: 0.12, 8: 0.10, 16: 0.02, 32: 0.02}
LEVELLED, LEVELS = "tiresias-las", "1000,5000,20000,80000"  # five levels
GOAL_US = {"fifo": 20.0, LEVELLED: 20.0, "dlq": 40.0}  # of a completion
MOST_FOR_SHAPES = 2.0  # times as much as for one shape
COMPLETIONS = 3000
STEPS = ("end", "plan", "check", "start")
# The ending jobs, and their successors, where widths are mixed.
KINDS = {
    "1 GPU": Request(gpus=1),
    "2 GPUs": Request(gpus=2),
    "4 GPUs": Request(gpus=4),
    "8 GPUs": Request(gpus=8),
    "2 nodes x 8 GPUs": Request(gpus=16, nodes=2),
}
NODE_MEMORY = [size * 2**30 for size in (512, 768, 1024, 2048)]
ASKED: list[int] = []  # sizes of memory; empty: no job asks
AHEAD = -1  # a queue that is served before the queue of the waiting jobs


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    options.add_argument("--queued", default="1000,10000,100000")
    options.add_argument("--policy", default=LEVELLED, choices=PRESETS)
    options.add_argument("--shapes", default=0, type=int)
    report = Report.begin("planning.tick", options)
    policy = policy_named(report.options.policy)
    ASKED[:] = memory_requests(report.options.shapes)
    gc.set_threshold(*YOUNG, NEVER)  # as the daemon does
    lengths = [int(word) for word in report.options.queued.split(",")]
    yardstick_s = (
        min(timeit.repeat(lambda: Shape(1, None, None), number=100_000, repeat=5)) / 100_000
    )
    report.figure("yardstick: one NamedTuple of three fields", 1e6 * yardstick_s, "us")
    clock_s = clock_reading_s()
    report.figure("one reading of the clock, taken off below", 1e6 * clock_s, "us")
    report.say(
        f"{NODES} nodes x {GPUS_PER_NODE} GPUs, {policy.name}, {policy.placement.name}; CPU time"
    )
    medians = [completions(report, policy, queued, clock_s) for queued in lengths]
    report.figure(
        f"growth of a completion from {lengths[0]} to {lengths[-1]} queued",
        medians[-1] / medians[0], "x", at_most=1.5,
    )  # fmt: skip
    for queued in lengths:
        mixed_completions(report, policy, queued, clock_s)
    reasons_s = reasons(report, policy, lengths[-1])
    if ASKED:
        against_one_shape(report, policy, lengths[-1], clock_s, medians[-1], reasons_s)
    full_start(report, policy, lengths[-1])
    boundary(report, policy, lengths[-1])
    memory(report, policy, lengths[-1])
    report.end()


def completions(report: Report, policy: Policy, queued: int, clock_s: float) -> float:
    """Median CPU seconds of a completion, with `queued` jobs waiting all the time."""
    blocks = PRESETS[policy.name].blocking
    if blocks:
        _completions(report, policy, queued, clock_s, "completion behind a head that waits", 0)
    return _completions(
        report, policy, queued, clock_s, "completion", AHEAD if blocks else 0,
        at_most=GOAL_US.get(policy.name),
    )  # fmt: skip


def _completions(
    report: Report,
    policy: Policy,
    queued: int,
    clock_s: float,
    name: str,
    priority_base: int,
    at_most: float | None = None,
) -> float:
    """The same for jobs that come behind the older ones of this base."""
    cluster = loaded(policy, queued)
    one = Request(gpus=1)
    ending = _running(cluster, one.gpus)[:COMPLETIONS]
    turns = [(key, one) for key in ending]
    timed, starts = _replaced(cluster, policy, turns, priority_base, clock_s)
    by_part = zip(*timed[1::2], strict=True)
    parts = "  ".join(
        f"{step} {1e6 * percentile(list(part), 0.5):.1f}"
        for step, part in zip(STEPS, by_part, strict=True)
    )
    whole = [sum(cost) for cost in timed[::2]]
    report.figure(
        f"{name}, {queued} queued, p50", 1e6 * percentile(whole, 0.5), "us",
        at_most=at_most, note=f"p99 {1e6 * percentile(whole, 0.99):.1f} us; p50 by part: {parts}; "
        f"{starts} starts after {len(ending)} completions",
    )  # fmt: skip
    return percentile(whole, 0.5)


def against_one_shape(
    report: Report,
    policy: Policy,
    queued: int,
    clock_s: float,
    completion_s: float,
    reasons_s: float,
) -> None:
    """Many shapes beside one, on the same nodes."""
    shapes = len(ASKED)
    ASKED[:] = NODE_MEMORY[:1]
    one_s = _completions(
        report, policy, queued, clock_s, "completion, one shape",
        AHEAD if PRESETS[policy.name].blocking else 0,
    )  # fmt: skip
    for what, many, one in (
        ("completion", completion_s, one_s),
        ("reasons", reasons_s, reasons(report, policy, queued, ", one shape")),
    ):
        report.figure(
            f"{what}, {queued} queued, {shapes} shapes against one", many / one, "x",
            at_most=MOST_FOR_SHAPES,
        )  # fmt: skip


def mixed_completions(report: Report, policy: Policy, queued: int, clock_s: float) -> None:
    """As many of every kind: each ends, and one of its kind that goes first starts in its place."""
    cluster = loaded(policy, queued)
    ending = {kind: _running(cluster, request.gpus) for kind, request in KINDS.items()}
    ending = {kind: keys for kind, keys in ending.items() if keys}  # a narrow job may go first
    each = min(COMPLETIONS // len(ending), *(len(keys) for keys in ending.values()))
    turns = [(kind, key) for kind, keys in ending.items() for key in keys[:each]]
    random.Random(2).shuffle(turns)
    replaced = [(key, KINDS[kind]) for kind, key in turns]
    timed, starts = _replaced(cluster, policy, replaced, AHEAD, clock_s)
    by_kind: dict[str, list[float]] = {kind: [] for kind in ending}
    for (kind, _), cost in list(zip(turns, timed, strict=True))[::2]:
        by_kind[kind].append(sum(cost))
    whole = [cost for costs in by_kind.values() for cost in costs]
    told = "  ".join(f"{kind}: {1e6 * percentile(of, 0.5):.1f}" for kind, of in by_kind.items())
    report.figure(
        f"completion, mixed widths, {queued} queued, p50", 1e6 * percentile(whole, 0.5), "us",
        at_most=GOAL_US.get(policy.name),
        note=f"p99 {1e6 * percentile(whole, 0.99):.1f} us; p50 by kind: {told}; "
        f"{starts} starts after {len(turns)} completions",
    )  # fmt: skip


def _running(cluster: Cluster, gpus: int) -> list[AttemptKey]:
    """Attempts of this width, in an order that says nothing."""
    keys = [key for key in cluster.attempts if cluster.jobs[key.job_id].request.gpus == gpus]
    random.Random(1).shuffle(keys)
    return keys


def _replaced(
    cluster: Cluster,
    policy: Policy,
    turns: Sequence[tuple[AttemptKey, Request]],
    priority_base: int,
    clock_s: float,
) -> tuple[list[tuple[float, ...]], int]:
    """Attempts end one after another while a job waits for exactly their GPUs: the costs, and the
    number of starts. One starts for each that ends, unless the policy lets the head of the line
    block it.

    Every other one is timed by part. A reading of the clock evicts more from the processor's caches
    than the reading itself costs, and the whole shall not pay for it.
    """
    now_s = 12.0
    next_id = max(cluster.jobs) + 1
    costs: list[tuple[float, ...]] = []
    starts = 0
    gc.collect()
    gc.freeze()  # as the daemon does once it has loaded
    for number, (key, request) in enumerate(turns):
        asked = with_memory(request, next_id)
        cluster.put_job(_queued(next_id, asked, level=0, priority_base=priority_base))
        cluster.take_touched()
        readings, started = _complete(cluster, policy, key, now_s, by_part=bool(number % 2))
        starts += started
        costs.append(tuple([until - since - clock_s for since, until in pairwise(readings)]))
        next_id += 1
        now_s += 1e-4
    gc.unfreeze()
    return costs, starts


def _complete(
    cluster: Cluster, policy: Policy, key: AttemptKey, now_s: float, *, by_part: bool
) -> tuple[list[float], int]:
    """Readings of the clock (before and after, and with `by_part` after each of the STEPS), and how
    many jobs started."""
    clock = time.thread_time
    readings = [clock()]
    drive.step_attempt(cluster, key, attempt_steps.Succeeded(), now_s)
    if by_part:
        readings.append(clock())
    view = View(cluster, now_s)
    changes = plan(view, policy)
    if by_part:
        readings.append(clock())
    check_delta(view, changes, policy)
    if by_part:
        readings.append(clock())
    drive.apply(cluster, changes, now_s, epoch=1)
    readings.append(clock())
    return readings, len(changes.changes)


def clock_reading_s() -> float:
    """Seconds that one reading adds to the measured time."""
    readings = [time.thread_time() for _ in range(10_000)]
    return percentile([b - a for a, b in pairwise(readings)], 0.5)


def reasons(report: Report, policy: Policy, queued: int, name: str = "") -> float:
    """CPU seconds for the reasons of all waiting jobs, as `Waits` looks at them."""
    cluster = loaded(policy, queued)
    view = View(cluster, 12.0)
    waiting = [job for job in cluster.jobs.values() if job.waiting]
    start = time.thread_time()
    found = ReasonSummary(view, policy)
    for job in waiting:
        found.kinds(job)
    took_s = time.thread_time() - start
    report.figure(f"reasons of all {queued} queued{name}", 1e3 * took_s, "ms")
    return took_s


def full_start(report: Report, policy: Policy, queued: int) -> None:
    """Everything starts on an empty cluster: all plans that this takes (`Plan.again`)."""
    cluster = filled(policy, queued + 3000)
    cluster.capacity.ready()
    took_s, first = _timed_plan(cluster, policy, 10.0)
    plans, starts = 1, _starts(first)
    while first.again:
        drive.apply(cluster, first, 10.0, epoch=1)
        more_s, first = _timed_plan(cluster, policy, 10.0)
        took_s += more_s
        plans += 1
        starts += _starts(first)
    report.figure(
        f"full replan, empty cluster, {queued} queued", 1e3 * took_s, "ms",
        at_most=15, note=f"{starts} starts in {plans} plans, {1e6 * took_s / starts:.1f} us each",
    )  # fmt: skip


def _starts(found: Plan) -> int:
    return sum(isinstance(change, Start) for change in found.changes)


def boundary(report: Report, policy: Policy, queued: int) -> None:
    """Every term ends: the renewed jobs, and the jobs that leave for others."""
    cluster = loaded(policy, queued)
    now_s = 290.0
    _settled(cluster, policy, now_s)
    took_s, last = _timed_plan(cluster, policy, now_s)
    kinds = Counter(type(change).__name__ for change in last.changes)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    report.figure(
        f"full replan, every term over, {queued} queued", 1e3 * took_s, "ms", at_most=15, note=told
    )


def memory(report: Report, policy: Policy, queued: int) -> None:
    """Python's own bytes for a waiting job with its place in the indexes."""
    cluster = filled(policy, 0)
    requests = [Request(gpus=width) for width in WIDTHS]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(1, queued + 1):
        job = _queued(number, requests[number % len(requests)], level=number % 5)
        cluster.put_job(job._replace(name=f"train-{number}", submit_time_s=float(number)))
        if not number % 1000:
            cluster.take_touched()
    cluster.take_touched()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    report.figure("memory per queued job", (after - before) / queued, "B", at_most=1536)


def loaded(policy: Policy, queued: int) -> Cluster:
    """A full cluster of running jobs, and `queued` waiting jobs."""
    cluster = filled(policy, queued + 3000)
    drive.apply(cluster, _settled(cluster, policy, 10.0), 10.0, epoch=1)
    for key in list(cluster.attempts):
        drive.step_attempt(cluster, key, attempt_steps.Running(), 11.0)
    for job_id in sorted(cluster.jobs, reverse=True):
        if cluster.waiting.count <= queued:
            break
        if cluster.jobs[job_id].waiting:
            drive.step_job(cluster, job_id, job_steps.Cancelled(), 11.0)
    # At any length of the queue, a 1-GPU job waits in level 0 for the GPU that falls free.
    first = max(cluster.jobs) + 1
    for number in range(first, first + 10):
        cluster.put_job(_queued(number, Request(gpus=1), level=0))
    cluster.take_touched()
    # Where the head of the line blocked the others, its successors may start at once.
    _started(cluster, policy, 11.0)
    return cluster


def _started(cluster: Cluster, policy: Policy, now_s: float) -> None:
    """Start jobs until no plan starts another."""
    while (found := _settled(cluster, policy, now_s)).changes:
        drive.apply(cluster, found, now_s, epoch=1)
        for key, attempt in list(cluster.attempts.items()):
            if attempt.state is not AttemptState.RUNNING:
                drive.step_attempt(cluster, key, attempt_steps.Running(), now_s)


def filled(policy: Policy, queued: int) -> Cluster:
    """An idle cluster and a queue."""
    cluster = Cluster(policy.ordering, Terms())
    gpus = tuple(Gpu(index=index, gpu_type="H100-80GB") for index in range(GPUS_PER_NODE))
    for number in range(NODES):
        memory = NODE_MEMORY[number % len(NODE_MEMORY)] if ASKED else 0
        cluster.put_node(Node(NodeId(f"gpu{number:04d}"), gpus, memory_bytes=memory))
    draw = random.Random(0)
    requests: Sequence[Request] = [Request(gpus=width) for width in WIDTHS]
    for number, request in enumerate(
        draw.choices(requests, tuple(WIDTHS.values()), k=queued), start=1
    ):
        asked = with_memory(request, number)
        cluster.put_job(_queued(number, asked, level=draw.randrange(5)))
    return cluster


def memory_requests(shapes: int) -> list[int]:
    """So many different sizes, spread evenly."""
    return [NODE_MEMORY[-1] * place // shapes for place in range(1, shapes + 1)]


def with_memory(request: Request, number: int) -> Request:
    """The same, with one of the sizes that jobs ask for. Neighbours ask for sizes far apart."""
    if not ASKED:
        return request
    return replace(request, memory_bytes_per_node=ASKED[number * 7919 % len(ASKED)])


def policy_named(name: str) -> Policy:
    """With five levels if it has any; without deadlines or several sizes, `dlq` must cost no
    more.
    """
    return build(name, {"thresholds": LEVELS} if name == LEVELLED else {})


def _queued(number: int, request: Request, level: int, priority_base: int = 0) -> Job:
    job = Job(JobId(number), "ada", "train", request, 0.0, level=level, priority_base=priority_base)
    return job_steps.step(job, job_steps.Admitted(), at_s=0.0)


def _settled(cluster: Cluster, policy: Policy, now_s: float) -> Plan:
    """The plan once all moves are made that come before it."""
    while (moves := plan(View(cluster, now_s), policy)).again:
        drive.apply(cluster, moves, now_s, epoch=1)
    return moves


def _timed_plan(cluster: Cluster, policy: Policy, now_s: float) -> tuple[float, Plan]:
    """The best of five, since a plan changes nothing."""
    gc.collect()
    gc.freeze()
    best = float("inf")
    found = Plan()
    for _ in range(5):
        start = time.thread_time()
        found = plan(View(cluster, now_s), policy)
        best = min(best, time.thread_time() - start)
    gc.unfreeze()
    return best, found


if __name__ == "__main__":
    main()
