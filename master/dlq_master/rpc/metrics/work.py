"""The fates of jobs since the start of the master, and its answers to calls, at `/metrics`.

Counters begin at 0 with every start. Prometheus takes that for a reset, and its rates stay right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlq_master.control.read_model.published import Published
from dlq_master.rpc.calls.call_times import CallTimes
from dlq_master.rpc.metrics.exposition import Labels, MetricFamily, by, family, gauge, histogram

if TYPE_CHECKING:
    from dlq_master.hooks.desk import HookDesk


def flow_families(read: Published, *, exemplars: bool = False) -> Iterator[MetricFamily]:
    """Waits, runs, promises, forecasts, saves and losses. `exemplars`: jobs may be named."""
    flow = read.flow
    words = "Waits for GPUs from the submission to the first start; holds do not count."
    yield histogram("dlq_job_wait_seconds", words, flow.waits, exemplars=exemplars)
    words = "Run times of jobs that have ended, over all their attempts."
    yield histogram("dlq_job_run_seconds", words, flow.runs)
    words = "How long before its promised deadline a job has completed."
    yield histogram("dlq_promise_slack_seconds", words, flow.slack)
    words = "Promises that were not kept: late, broken, overrun or dropped."
    yield by("dlq_promises_missed_total", "counter", words, "cause", flow.missed)
    words = "How far the first forecast of a start was off, by the end of its range."
    yield histogram("dlq_forecast_error_seconds", words, flow.forecast_errors)
    within = read.forecast_within()
    if within is not None:
        words = "The part of the newest starts that came in their forecast range."
        yield gauge("dlq_forecast_covered_ratio", words, within)
    words = "Jobs that had to leave their GPUs for another one, by the rule that decided."
    yield by("dlq_preemptions_total", "counter", words, "rule", flow.displaced)
    words = "GPU-seconds of work that has to be done again, by the end that lost it."
    yield by("dlq_lost_gpu_seconds_total", "counter", words, "cause", flow.lost_gpu_s)
    yield histogram("dlq_save_seconds", "Saves of checkpoints, as jobs told them.", flow.saves)
    words = "From given GPUs until a job goes on there."
    yield histogram("dlq_resume_seconds", words, flow.resumes)
    words = "The part of its grace that an attempt took to leave."
    yield histogram("dlq_grace_used_ratio", words, flow.grace)
    words = "From the request for a lent server until it went back."
    yield histogram("dlq_reclaim_seconds", words, flow.reclaims)


def call_families(times: CallTimes) -> Iterator[MetricFamily]:
    """Calls of people, programs and agents at the API."""
    words = "Calls with one answer, by method and by the status of their end."
    yield histogram("dlq_rpc_seconds", words, times.calls)
    words = "Open streams: of agents, followers of events and readers of logs."
    yield by("dlq_stream_clients", "gauge", words, "method", times.streams)


def hook_families(desk: HookDesk | None) -> Iterator[MetricFamily]:
    """Calls of the operator's hooks; no sample without hooks."""
    calls: dict[Labels, float] = {}
    seconds: dict[Labels, float] = {}
    if desk is not None:
        for (hook, outcome), count in desk.calls.items():
            calls[("hook", hook), ("outcome", outcome)] = count
        seconds = {(("hook", hook),): spent_s for hook, spent_s in desk.seconds.items()}
    words = "Calls of hooks of the operator, by their outcome: ok, refused or failed."
    yield family("dlq_hook_calls_total", "counter", words, calls)
    words = "Time of these calls, without their waiting."
    yield family("dlq_hook_seconds_total", "counter", words, seconds)
