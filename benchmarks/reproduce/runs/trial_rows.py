"""Trials before promises: waits, deadlines and promises of one replay."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.papers import profiling


def trials(policy: str, settings: Sequence[str], seed: int, jobs: int) -> dict[str, float]:
    """Trials before promises: waits, deadlines and promises."""
    found, outcomes = profiling.replayed(policy, seed, jobs, settings)
    let_in_s = [
        float(one.trial_start_s - one.trial_sent_s)
        for one in outcomes
        if one.trial_start_s is not None and one.trial_sent_s is not None
    ]
    return {
        "mean_s": found.avg_profiler_pending_s or 0.0,
        "longest_s": found.max_profiler_pending_s or 0.0,
        "let_in_s": max(let_in_s, default=0.0),
        "wdmr": found.wdmr or 0.0,
        "missed": found.promises_missed or 0,
        "promised": found.guaranteed or 0,
    }
