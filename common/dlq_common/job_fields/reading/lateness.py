"""The weight of lateness, as people write it: `due = "8h"`, `weight = 5.0`; pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from dlq_common.job_fields.reading.deadlines import Due, read_deadline
from dlq_common.job_fields.reading.words import worded
from dlq_common.text.names import shown


class LatenessSpec(NamedTuple):
    """The due date, and the cost of each late hour."""

    due: Due
    weight_per_hour: float


def read_due(raw: object) -> Due:
    """A time from the submission on, or an instant."""
    return read_deadline(raw)[0].due


def read_weight(raw: object) -> float:
    """The cost of one late hour, in the currency of the pools' prices."""
    text = worded(raw).strip()
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise ValueError(f"{shown(text)} is not the cost of an hour: write a number above 0")
    return weight
