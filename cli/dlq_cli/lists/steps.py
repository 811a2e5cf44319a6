"""The steps that `srun` has run inside a job: a table for people, and JSON."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.facts.common import described
from dlq_cli.output.render import Cell, OutputLook, clean_line, number, table, when
from dlq_cli.words import enum_words
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import approximate_size, format_duration
from dlq_common.text.wire import from_duration, from_timestamp

MOST_SHOWN = 20
_STATES = enum_words(job_pb2.StepState.DESCRIPTOR)
_COLUMNS = (
    Cell("STEP"),
    Cell("NAME"),
    Cell("STATE", state=True),
    Cell("EXIT", right=True),
    Cell("TASKS", right=True),
    Cell("NODES"),
    Cell("STARTED"),
    Cell("RAN", right=True),
    Cell("CPU", right=True),
    Cell("MEMORY", right=True),
)


def steps_text(listed: Sequence[wire.AttemptSteps], look: OutputLook) -> str:
    """A table of the newest steps of the last attempt that has any, and what its script used;
    nothing when there is none.
    """
    last = listed[-1] if listed else wire.AttemptSteps()
    script = _script(last)
    if not last.steps:
        return script
    shown = last.steps[-MOST_SHOWN:]
    earlier = len(last.steps) - len(shown) + last.dropped_count
    head = f"steps of attempt {last.attempt}"
    if earlier:
        failed = last.dropped_failed_count + sum(map(_failed, last.steps[: -len(shown)]))
        head += f" ({number(earlier)} earlier ones are not shown, {number(failed)} of them failed)"
    return f"{head}:\n" + table(_COLUMNS, (_row(last, step, look) for step in shown), look) + script


def _script(last: wire.AttemptSteps) -> str:
    if not last.HasField("script_peak_memory_bytes"):
        return ""
    memory = approximate_size(last.script_peak_memory_bytes)
    cpu = format_duration(from_duration(last.script_cpu_duration))
    return f"batch script of attempt {last.attempt}: {memory} in one process, {cpu} of CPU\n"


step_facts = described(
    job_pb2.JobStep,
    """
    number name state exit_code start_time end_time node_count task_count node_ids peak_memory_bytes
    cpu_s
    """,
)
# All that is known of the steps of one attempt.
steps_facts = described(
    wire.AttemptSteps,
    """
    attempt tell_time dropped_count dropped_failed_count script_peak_memory_bytes script_cpu_s steps
    """,
    steps=step_facts,
)


def _failed(step: job_pb2.JobStep) -> bool:
    return step.state == job_pb2.STEP_STATE_FAILED


def _row(listed: wire.AttemptSteps, step: job_pb2.JobStep, look: OutputLook) -> list[str]:
    running = step.state == job_pb2.STEP_STATE_RUNNING
    start_s = from_timestamp(step.start_time)
    end_s = from_timestamp(listed.tell_time if running else step.end_time)
    return [
        str(step.number),
        clean_line(step.name),
        _STATES.get(step.state) or "unknown",
        "" if running else str(step.exit_code),
        str(step.task_count),
        clean_line(compress_hostlist(step.node_ids)) or str(step.node_count),
        when(start_s, look),
        format_duration(max(0.0, end_s - start_s)),
        format_duration(from_duration(step.cpu_duration)),
        approximate_size(step.peak_memory_bytes) if step.peak_memory_bytes else "",
    ]
