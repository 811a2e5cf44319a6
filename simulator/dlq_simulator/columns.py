"""The columns of a trace: the conversion of each one's text, and its permitted values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

# int() and float() also take "1_000", " 7 ", "nan" and other scripts' digits; a trace may not.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Every integer up to here is exact as a double, so sums of seconds stay exact.
_LIMIT = 2**53

SoftSteps = tuple[tuple[float, float], ...]
Value = int | float | str | bool | SoftSteps
Parser = Callable[[str], Value]
Chosen = TypeVar("Chosen", str, bool)


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


def _number_that(
    fits: Callable[[int | float], bool], expected: str
) -> Callable[[str], int | float]:
    def read(text: str) -> int | float:
        value = number(text)
        if not fits(value):
            raise BadValue(f"expected {expected}")
        return value

    return read


def _whole_from(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = number(text)
        if not isinstance(value, int) or value < least:
            raise BadValue(f"expected a whole number, {least} or more")
        return value

    return read


def _one_of(words: Mapping[str, Chosen], expected: str) -> Callable[[str], Chosen]:
    def read(text: str) -> Chosen:
        if text not in words:
            raise BadValue(f"expected {expected}")
        return words[text]

    return read


seconds = _number_that(lambda value: value >= 0, "0 or more")  # a time or a duration
positive = _number_that(lambda value: value > 0, "more than 0")
fraction = _number_that(lambda value: 0 <= value <= 1, "a number from 0 to 1")
whole, count = _whole_from(0), _whole_from(1)
yes_no = _one_of({"yes": True, "no": False}, "yes or no")
zero_one = _one_of({"1": True, "0": False}, "0 or 1")
kind = _one_of({word: word for word in ("be", "strict", "soft")}, "be, strict or soft")


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
        "tuned": yes_no,
        "batch_size": count,
        "checkpoint": yes_no,
        "weight": positive,
        "due_s": positive,
        "skew": fraction,
        "rho": positive,
        "status": word,
    }
)
