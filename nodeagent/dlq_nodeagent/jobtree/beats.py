"""What a job says about itself in its beat file (written by dlq_train, or by hand)."""

import math
from dataclasses import dataclass

from dlq_nodeagent.jobtree.files import json_object, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Progress as the job tells it; what it did not say, or said badly, is None."""

    step: int | None
    total: int | None
    loss: float | None


def parse_beat(content: bytes | None) -> Beat | None:
    """The beat in these bytes; None when there is nothing. Garbage is a beat that says nothing:
    whoever writes it is alive.
    """
    if content is None or not content.strip():
        return None
    said = json_object(content)
    return Beat(
        step=whole_number(said.get("step")),
        total=whole_number(said.get("total")),
        loss=_finite(said.get("loss")),
    )


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
