"""Sizes of elastic jobs and estimates of run times, as text for people."""

from __future__ import annotations

from dlq.v1 import job_pb2
from dlq_cli.output.render import clean_line
from dlq_common.text.sizes import format_sizes
from dlq_common.text.units import format_duration
from dlq_common.text.wire import from_duration


def elastic_text(elastic: job_pb2.Elasticity) -> str:
    """`on 4 GPUs now, 2:8 will do, base 2; resized 3 times`, for `dlq show`."""
    sizes = elastic.gpu_counts
    words = [f"{format_sizes(sizes)} GPUs will do, base {sizes[0]}"]
    if elastic.current_gpu_count:
        words.insert(0, f"on {elastic.current_gpu_count} now")
    if elastic.next_gpu_count:
        words.insert(1, f"goes on with {elastic.next_gpu_count}")
    times = elastic.resize_count
    if times:
        words.append("resized once" if times == 1 else f"resized {times} times")
    return ", ".join(words)


def speeds_text(elastic: job_pb2.Elasticity) -> str:
    """`steps/s: 1.9 on 2 (1.00 x), 6.1 on 8 (3.21 x)`: the measured speeds; empty: none yet."""
    words = []
    for each in elastic.speeds:
        text = f"{each.steps_per_second:.3g} on {each.gpu_count}"
        if each.relative_speed:
            text += f" ({each.relative_speed:.2f} x)"
        words.append(text)
    return "steps/s: " + ", ".join(words) if words else ""


def gpus_now(job: job_pb2.Job) -> int:
    """The GPUs of a job in a list: the held ones while it holds any, else the requested ones."""
    resized = job.elastic.current_gpu_count if job.HasField("elastic") else 0
    return resized or job.held_gpu_count or job.resources.gpu_count


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
