"""What is valid and will hardly do what was meant: told when a job is submitted or checked."""

from __future__ import annotations

from collections.abc import Iterator

from dlq_cli.spec.validate import Spec

# The master warns nobody in an attempt's first seconds (control/limits.py).
STARTUP_S = 20


def doubts(spec: Spec) -> Iterator[str]:
    """A sentence for each, with where it was said."""
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
