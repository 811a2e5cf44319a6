"""A job's report about itself in its beat file, written by dlq_train or by hand."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dlq_nodeagent.jobtree.files import json_object, whole_number
from dlq_nodeagent.model.messages import StepWork

_LONGEST_S = 86_400.0  # a greater claim is not believed


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Progress in the job's own words; missing or malformed fields are None."""

    step: int | None
    total: int | None
    loss: float | None
    step_s: float | None = None
    """The longest of its latest steps."""
    last_save_s: float | None = None
    """How long its newest checkpoint took to write."""
    work: StepWork | None = None
    """The work times of its steps since its process began, if it knows its waits."""

    @property
    def stop_s(self) -> float | None:
        """How long it would take to answer a notice: a step to its end, and a save."""
        if self.last_save_s is None:
            return None
        return self.last_save_s + (self.step_s or 0.0)


def parse_beat(content: bytes | None) -> Beat | None:
    """The beat in these bytes; None without any. Garbage is an empty beat: its writer is alive."""
    if content is None or not content.strip():
        return None
    said = json_object(content)
    return Beat(
        step=whole_number(said.get("step")),
        total=whole_number(said.get("total")),
        loss=_finite(said.get("loss")),
        step_s=_duration_s(said.get("step_s")),
        last_save_s=_duration_s(said.get("last_save_s")),
        work=_work(said),
    )


def _work(said: Mapping[str, object]) -> StepWork | None:
    count = whole_number(said.get("work_steps"))
    logs, squares = _finite(said.get("work_log_sum")), _finite(said.get("work_log_square_sum"))
    if not count or logs is None or squares is None:
        return None
    return StepWork(step_count=count, log_sum=logs, log_square_sum=squares)


def _duration_s(value: object) -> float | None:
    number = _finite(value)
    return number if number is not None and 0.0 <= number <= _LONGEST_S else None


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
