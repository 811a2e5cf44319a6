"""`/metrics/slurm`: the metrics of Slurm 25.11 and of exporters for Slurm, by their names.

So dashboards of a site that came from Slurm work on the first day. The numbers are those of
`/metrics`, so the page costs as little. Names without a counterpart are left out.
docs/reference/slurm-metrics.md lists figures with another meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from dlq_master.control.loop.meter import Meter
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.attempt import PROFILING, AttemptState
from dlq_master.model.jobs.job import JobState
from dlq_master.rpc.metrics.exposition import MetricFamily, by, gauge
from dlq_master.rpc.metrics.page import shown_jobs

_PENDING, _RUNNING, _SUSPENDED, _CONFIGURING, _COMPLETING = STATES = (
    "pending",
    "running",
    "suspended",
    "configuring",
    "completing",
)
# The words of dlq, and of Slurm. A silent job is taken to run.
_STATES: Final[Mapping[str, str]] = {
    JobState.PENDING.value: _PENDING,
    JobState.QUEUED.value: _PENDING,
    JobState.HELD.value: _PENDING,
    AttemptState.ASSIGNED.value: _CONFIGURING,
    AttemptState.PREPARING.value: _CONFIGURING,
    AttemptState.STARTING.value: _CONFIGURING,
    AttemptState.RUNNING.value: _RUNNING,
    AttemptState.UNKNOWN.value: _RUNNING,
    PROFILING: _RUNNING,
    AttemptState.SUSPENDED.value: _SUSPENDED,
    AttemptState.PAUSING.value: _COMPLETING,
}
# The words of node_tally.py, and the ends of names: those of exporters and those of Slurm.
_NODES: Final = (
    ("idle", ("idle",)),
    ("alloc", ("allocated",)),
    ("mix", ("mixed",)),
    ("mixed", ("mixed",)),
    ("drain", ("drained", "draining")),
    ("down", ("down",)),
    ("maint", ("maintenance",)),
    ("resv", ("reserved",)),
    ("noresp", ("unknown",)),
)
_MICRO: Final = 1e6  # Slurm tells times of its scheduler in microseconds
_ENDED: Final = ("job_completed", "job_failed", "job_timed_out")


def slurm_families(read: Published, meter: Meter) -> Iterator[MetricFamily]:
    """Jobs, partitions, nodes, GPUs and the scheduler."""
    yield from _jobs(read)
    sums = read.node_sums()
    uses = {key[1]: count for key, count in sums.items() if key[0] == "use"}
    yield gauge("slurm_nodes", "Nodes.", sum(uses.values()))
    for end, words in _NODES:
        count = sum(uses.get(word, 0) for word in words)
        yield gauge(f"slurm_nodes_{end}", f"Nodes: {' or '.join(words)}.", count)
    gpus: Counter[str] = Counter()
    for key, count in sums.items():
        if key[0] == "gpu":
            gpus[key[2]] += count
    yield from _gpus(gpus)
    yield from _scheduler(meter)


def _jobs(read: Published) -> Iterator[MetricFamily]:
    found: Counter[str] = Counter()
    queues: dict[str, Counter[str]] = {state: Counter() for state in STATES}
    held = 0.0
    for labels, count in shown_jobs(read).items():
        told = dict(labels)
        state = _STATES.get(told["state"], _PENDING)
        found[state] += int(count)
        queues[state][told["queue"]] += int(count)
        held += count if told["state"] == JobState.HELD.value else 0
    yield gauge("slurm_jobs", "Jobs that have not ended.", found.total())
    yield gauge("slurm_jobs_hold", "Jobs on hold.", held)
    for state in STATES:
        yield gauge(f"slurm_queue_{state}", f"Jobs: {state}.", found[state])
        yield gauge(f"slurm_jobs_{state}", f"Jobs: {state}.", found[state])
        words = f"Jobs of a queue: {state}."
        name = f"slurm_partition_jobs_{state}"
        yield by(name, "gauge", words, "partition", queues[state])


def _gpus(gpus: Counter[str]) -> Iterator[MetricFamily]:
    held, total = gpus["held"], gpus.total()
    yield gauge("slurm_jobs_gpus_alloc", "GPUs that jobs hold.", held)
    yield gauge("slurm_gpus_alloc", "GPUs that jobs hold.", held)
    yield gauge("slurm_gpus_idle", "Free GPUs.", gpus["free"])
    yield gauge("slurm_gpus_other", "GPUs that take no work.", gpus["withheld"])
    yield gauge("slurm_gpus_total", "GPUs of nodes that are not down.", total)
    share = held / total if total else 0.0
    yield gauge("slurm_gpus_utilization", "The part of the GPUs that jobs hold.", share)


def _scheduler(meter: Meter) -> Iterator[MetricFamily]:
    plans, events = meter.plans.of(), meter.events
    count = sum(plans.counts)
    mean = plans.total / count * _MICRO if count else 0.0
    yield gauge("slurm_scheduler_mean_cycle", "The mean time of a plan, in microseconds.", mean)
    yield gauge("slurm_sched_mean_cycle", "The mean time of a plan, in microseconds.", mean)
    yield gauge("slurm_schedule_cycle_cnt", "Plans since the start.", count)
    words = "The time of all plans since the start, in microseconds."
    yield gauge("slurm_schedule_cycle_tot", words, plans.total * _MICRO)
    ended = sum(events[kind] for kind in _ENDED)
    for name, number in (
        ("submitted", events["job_submitted"]),
        ("started", events["job_ran"]),
        ("completed", ended),
        ("canceled", events["job_cancelled"]),
    ):
        yield gauge(f"slurm_sdiag_jobs_{name}", f"Jobs {name} since the start.", number)
