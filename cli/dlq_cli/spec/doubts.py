"""What is valid and will hardly do what was meant: told when a job is submitted or checked."""

from __future__ import annotations

from collections.abc import Iterator

from dlq_cli.spec.validate import Spec

# The master warns nobody in an attempt's first seconds (control/jobs/limits.py).
STARTUP_S = 20


def doubts(spec: Spec) -> Iterator[str]:
    """A sentence for each, with where it was said."""
    yield from _deadline_doubts(spec)
    yield from _warning_doubts(spec)


def _deadline_doubts(spec: Spec) -> Iterator[str]:
    origin = spec.origins.get("deadline") or spec.origins.get("soft_deadline", "the deadline")
    if spec.deadlines and spec.run_estimate_s is None and spec.step_count is None:
        yield (
            f"{origin}: nothing can be promised before it is known how long the job runs: say it "
            "with --work, "
            "or it is judged once its own run has told (dlq_train), where the policy measures jobs"
        )
    limit_s, work_s = spec.time_limit_s, spec.run_estimate_s
    if spec.deadlines and limit_s is not None and work_s is not None and work_s > limit_s:
        origin = spec.origins.get("time_limit", "the time limit")
        yield f"{origin}: the job is ended after {limit_s:g} s, and its work takes {work_s:g} s"
    if spec.step_count is not None and spec.run_estimate_s is None:
        origin = spec.origins.get("steps", "steps")
        yield (
            f"{origin}: the run time is reckoned from the steps that the job tells (dlq_train), a "
            "minute after "
            "its start; if it tells none, never. With --work it is known at once"
        )


def _warning_doubts(spec: Spec) -> Iterator[str]:
    if spec.warning_s is None:
        return
    origin = spec.origins.get("preempt.signal", "the signal")
    if spec.time_limit_s is None:
        yield (
            f"{origin}: without a time limit nothing is warned of: the {spec.warning_s} s are the "
            "grace of a pause"
        )
    elif spec.time_limit_s <= STARTUP_S:
        yield (
            f"{origin}: a limit of {spec.time_limit_s:g} s ends before anybody is warned (after "
            f"{STARTUP_S} s)"
        )
    elif spec.time_limit_s <= spec.warning_s + STARTUP_S:
        yield (
            f"{origin}: a limit of {spec.time_limit_s:g} s leaves no {spec.warning_s} s to warn "
            f"ahead: the signal comes {STARTUP_S} s after the start"
        )
