"""The columns of a trace: the conversion of each one's text, and its permitted values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

# int() and float() also take "1_000", " 7 ", "nan" and other scripts' digits; a trace may not.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Every integer up to here is exact as a double, so sums of seconds stay exact.
_LIMIT = 2**53

SoftSteps = tuple[tuple[float, float], ...]
Value = int | float | str | bool | SoftSteps
Parser = Callable[[str], Value]


class BadValue(ValueError):
    """A cell outside the contract of its column; the text names the expected value.

    `column`: our name for the column, where it is not known from where the value was read.
    """

    def __init__(self, text: str, column: str | None = None) -> None:
        super().__init__(text)
        self.column = column


def number(text: str) -> int | float:
    """A finite number; whole numbers come back as int so that whole-second traces stay exact."""
    if not _NUMBER.fullmatch(text) or len(text) > 40:
        raise BadValue("expected a number")
    value = float(text)
    if not math.isfinite(value) or abs(value) > _LIMIT:
        raise BadValue("expected a number of at most 2^53")
    return int(value) if value.is_integer() else value


def seconds(text: str) -> int | float:
    """A time or a duration: 0 or more seconds."""
    value = number(text)
    if value < 0:
        raise BadValue("expected 0 or more")
    return value


def positive(text: str) -> int | float:
    value = number(text)
    if value <= 0:
        raise BadValue("expected more than 0")
    return value


def fraction(text: str) -> int | float:
    value = number(text)
    if not 0 <= value <= 1:
        raise BadValue("expected a number from 0 to 1")
    return value


def whole(text: str) -> int:
    value = number(text)
    if not isinstance(value, int) or value < 0:
        raise BadValue("expected a whole number, 0 or more")
    return value


def count(text: str) -> int:
    value = number(text)
    if not isinstance(value, int) or value < 1:
        raise BadValue("expected a whole number, 1 or more")
    return value


def yes_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise BadValue("expected yes or no")
    return text == "yes"


def word(text: str) -> str:
    """A name: anything but control characters, which would break the rows that are written of
    it.
    """
    if _CONTROL.search(text):
        raise BadValue("expected text without line ends, NUL or other control characters")
    return text


def gpu_types(text: str) -> str:
    """`V100`, or `V100|A100`: any one of these."""
    named = word(text).split("|")
    if not all(named) or len(set(named)) < len(named):
        raise BadValue("expected a GPU type, or several as V100|A100, each once")
    return text


def kind(text: str) -> str:
    if text not in ("be", "strict", "soft"):
        raise BadValue("expected be, strict or soft")
    return text


def zero_one(text: str) -> bool:
    if text not in ("0", "1"):
        raise BadValue("expected 0 or 1")
    return text == "1"


def soft_steps(text: str) -> SoftSteps:
    """`delay_s:reward;...`: the reward for finishing at most `delay_s` after the submit."""
    steps: list[tuple[float, float]] = []
    for part in text.rstrip(";").split(";"):
        delay, colon, reward = part.partition(":")
        if not colon:
            raise BadValue("expected delay_s:reward;delay_s:reward;...")
        step = (positive(delay), number(reward))
        if not 1 <= step[1] <= 100:
            raise BadValue("expected rewards from 1 to 100")
        if steps and (step[0] <= steps[-1][0] or step[1] > steps[-1][1]):
            raise BadValue("expected rising delays with rewards that never rise")
        steps.append(step)
    return tuple(steps)


REQUIRED: Mapping[str, Parser] = MappingProxyType(
    {"job_id": word, "submit_time_s": seconds, "num_gpus": count, "duration_s": seconds}
)
OPTIONAL: Mapping[str, Parser] = MappingProxyType(
    {
        "user": word,
        "vc": word,
        "model": word,
        "kind": kind,
        "deadline_s": positive,
        "soft_steps": soft_steps,
        "gpus_per_worker": count,
        "min_workers": count,
        "max_workers": count,
        "ps": whole,
        "iterations": whole,
        "gpu_type": gpu_types,
        "any_gpu": yes_no,
        "mem_gb": seconds,
        "halves_batch": yes_no,
        "mixed": yes_no,
        "checkpoint": yes_no,
        "weight": positive,
        "due_s": positive,
        "skew": fraction,
        "rho": positive,
        "status": word,
    }
)
