"""All checks, in the order in which they run. Their limits together are `WHOLE_S` at most."""

from benchmarks.gpu.check import Check
from benchmarks.gpu.checks import facts, giving, recording, suspending, training

WHOLE_S = 480

CHECKS: tuple[Check, ...] = (
    *facts.CHECKS,
    *giving.CHECKS,
    *training.CHECKS,
    *recording.CHECKS,
    *suspending.CHECKS,
)
