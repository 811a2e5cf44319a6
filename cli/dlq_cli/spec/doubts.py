"""Doubts about valid specs that will hardly do as meant; submit and check print them."""

from __future__ import annotations

from collections.abc import Iterator

from dlq_cli.spec.validate import Spec
from dlq_common.job_fields.table.order import RUN_ESTIMATE, STEPS, TIME_LIMIT

# The master sends no warning in an attempt's first seconds (control/jobs/limits.py).
STARTUP_S = 20


def doubts(spec: Spec) -> Iterator[str]:
    """A sentence for each, with where it was said."""
    yield from _deadline_doubts(spec)
    yield from _warning_doubts(spec)


def _deadline_doubts(spec: Spec) -> Iterator[str]:
    limit_s, work_s = spec.of(TIME_LIMIT), spec.of(RUN_ESTIMATE)
    steps = spec.of(STEPS)
    origin = spec.origins.get("deadline") or spec.origins.get("soft_deadline", "the deadline")
    if spec.deadlines and work_s is None and steps is None:
        yield (
            f"{origin}: the run time is unknown, so nothing can be promised yet. Name it with "
            f"--work, or dlq_train reports it during the run, where the policy measures jobs"
        )
    if spec.deadlines and limit_s is not None and work_s is not None and work_s > limit_s:
        origin = spec.origins.get("time_limit", "the time limit")
        yield f"{origin}: the job is ended after {limit_s:g} s, and its work takes {work_s:g} s"
    if steps is not None and work_s is None:
        origin = spec.origins.get("steps", "steps")
        yield (
            f"{origin}: the run time is reckoned from the steps that the job tells (dlq_train), a "
            "minute after its start; if it tells none, never. With --work it is known at once"
        )


def _warning_doubts(spec: Spec) -> Iterator[str]:
    if spec.warning_s is None:
        return
    origin, limit_s = spec.origins.get("preempt.signal", "the signal"), spec.of(TIME_LIMIT)
    if limit_s is None:
        yield (
            f"{origin}: without a time limit nothing is warned of: the {spec.warning_s} s are the "
            "grace of a pause"
        )
    elif limit_s <= STARTUP_S:
        yield (
            f"{origin}: a limit of {limit_s:g} s ends before anybody is warned (after "
            f"{STARTUP_S} s)"
        )
    elif limit_s <= spec.warning_s + STARTUP_S:
        yield (
            f"{origin}: a limit of {limit_s:g} s leaves no {spec.warning_s} s to warn "
            f"ahead: the signal comes {STARTUP_S} s after the start"
        )
