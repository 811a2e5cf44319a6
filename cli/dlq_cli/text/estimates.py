"""How long a job is taken to run, as text for people."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.output.render import clean_line
from dlq_common.text.units import format_duration
from dlq_common.text.wire import from_duration


def estimate_text(estimate: job_pb2.RunEstimate) -> str:
    """`02:10:00 (profiled, high confidence): by its own steps, 1.23 s each`, or why it is not
    known.
    """
    detail = clean_line(estimate.detail)
    if estimate.HasField("step_duration"):
        detail += f", {from_duration(estimate.step_duration):.3g} s a step"
    if not estimate.HasField("run_duration"):
        return f"unknown: {detail}"
    sure = f", {estimate.confidence} confidence" if estimate.confidence else ""
    source = f" ({estimate.source}{sure})" if estimate.source else ""
    return f"{format_duration(from_duration(estimate.run_duration))}{source}: {detail}"
