"""The steps that nodes tell of, checked before they are kept."""

from __future__ import annotations

from typing import Final

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_duration
from dlq_master.control.read_model.published import Published
from dlq_master.model.attempts.told_steps import StepFacts, TakenSteps
from dlq_master.model.ids import AttemptKey
from dlq_master.rpc.specs.intake import job_id_of

MOST_STEPS: Final = 1_000
_MOST_NAME: Final = 256
_MOST_NODES: Final = 1_024
_LONGEST_S: Final = 10 * 366 * 86_400.0


def steps_key(message: wire.StepsReport) -> AttemptKey:
    """The attempt that a report is about. InvalidRequest for no attempt, or a rank below 0."""
    if message.node_rank < 0:
        raise InvalidRequest("ranks are counted from 0", field="steps_report.node_rank")
    return AttemptKey(job_id_of(message.job_id, "steps_report.job_id"), message.fence.attempt)


def is_known(read: Published, key: AttemptKey, epoch: int) -> bool:
    """Whether a report with this fence is of an attempt that there is, or was."""
    attempt = read.attempt(key)
    if attempt is None:
        attempt = next((each for each in read.attempts(key.job_id) if each.key == key), None)
    return attempt is not None and attempt.epoch == epoch


def steps_of(message: wire.StepsReport, now_s: float) -> TakenSteps:
    """The list in a report. InvalidRequest for what no agent would have sent."""
    if len(message.steps) > MOST_STEPS:
        raise _unlikely(f"more than {MOST_STEPS} steps")
    dropped, failed = message.dropped_count, message.dropped_failed_count
    if not 0 <= failed <= dropped:
        raise _unlikely("its numbers of dropped steps")
    steps = tuple(_facts(each) for each in message.steps)
    numbers = [step.number for step in steps]
    if numbers != sorted(set(numbers)):
        raise _unlikely("numbers that do not rise")
    return TakenSteps(steps_key(message), now_s, steps, dropped, failed)


def _facts(message: wire.ToldStep) -> StepFacts:
    texts = (message.name, *message.node_ids)
    if len(message.node_ids) > _MOST_NODES or not all(map(_is_plain, texts)):
        raise _unlikely("a name that is too long, or not plain")
    figures = (message.number, message.node_count, message.task_count, message.peak_memory_bytes)
    if min(figures) < 0 or not 0 <= message.exit_code <= 255:
        raise _unlikely("a number that cannot be")
    return StepFacts(
        number=message.number,
        name=message.name,
        node_count=message.node_count,
        task_count=message.task_count,
        age_s=_span_s(message.age_duration),
        run_s=None if message.running else _span_s(message.run_duration),
        exit_code=message.exit_code,
        peak_memory_bytes=message.peak_memory_bytes,
        cpu_s=_span_s(message.cpu_duration),
        node_ids=tuple(message.node_ids),
    )


def _is_plain(text: str) -> bool:
    return len(text) <= _MOST_NAME and text.isascii() and (not text or text.isprintable())


def _span_s(duration: object) -> float:
    return min(max(0.0, from_duration(duration)), _LONGEST_S)  # type: ignore[arg-type] # a field


def _unlikely(what: str) -> InvalidRequest:
    return InvalidRequest(f"steps that cannot be: {what}", field="steps_report")
