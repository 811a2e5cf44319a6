"""Deadlines as people write them: `8h`, `2026-12-01T08:00`, `8h:100,+10%:80,+50%:20`; pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, tzinfo
from typing import NamedTuple

from dlq_common.job_fields.reading.words import read_integer, read_text, worded
from dlq_common.text.instants import parse_instant
from dlq_common.text.names import shown
from dlq_common.text.units import parse_duration

FULL, LEAST = 100.0, 1.0
ON_MISS = ("continue", "cancel")
MOST_STEPS = 999_999_999
_FORMS = "write 8h (from now on), 18:00 or 2026-12-01T08:00"
_SOFT = "write 8h:100,+10%:80,+50%:20, each a deadline and the reward of an end by then (1 to 100)"
_LATER = re.compile(r"(.*?)\+\s*([0-9]+(?:\.[0-9]+)?)\s*%", re.ASCII)
_DAYS = re.compile(r"[0-9]{1,4}-[0-9]{1,2}(?::[0-9]{2}){1,2}", re.ASCII)
_NOW = re.compile(r"now\s*\+.*", re.IGNORECASE)


class Due(NamedTuple):
    """A time after the submission, or the instant that `text` names."""

    after_s: float | None = None
    text: str = ""


class DeadlineText(NamedTuple):
    """One deadline, and the reward of an end by then."""

    due: Due
    reward: float


Deadlines = tuple[DeadlineText, ...]


def read_deadline(raw: object) -> Deadlines:
    """A strict one: `8h` from the submission on, or an instant."""
    return (DeadlineText(_due(raw), FULL),)


def read_soft(raw: object) -> Deadlines:
    """Several, with the reward of an end by each: `8h:100,+10%:80`; or a list of such words."""
    parts = raw if isinstance(raw, list) else read_text(raw).split(",")
    found: list[DeadlineText] = []
    for part in parts:
        when, colon, worth = worded(part).strip().rpartition(":")
        if not colon:
            raise ValueError(f"{shown(str(part))} has no reward: {_SOFT}")
        due = _later(when.strip(), found[0].due if found else None)
        found.append(DeadlineText(due, _reward(worth, found)))
    if not found:
        raise ValueError(f"it is empty: {_SOFT}")
    return tuple(found)


def read_steps(raw: object) -> int:
    """Training steps in all."""
    count = read_integer(raw, MOST_STEPS)
    if count < 1:
        raise ValueError("a training has at least 1 step")
    return count


def is_past(asked: Deadlines, now_s: float, zone: tzinfo) -> bool:
    """Whether one of them names an instant that has passed, by the caller's clock; an unreadable
    one does not count.
    """
    instants = [step.due.text for step in asked if step.due.after_s is None]
    with suppress(ValueError):
        return any(parse_instant(text, now_s=now_s, zone=zone) <= now_s for text in instants)
    return False


def deadlines_text(asked: Sequence[DeadlineText]) -> str:
    """The deadlines as they were asked for, with the rewards of a soft one."""
    words = []
    for due, reward in asked:
        when = due.text if due.after_s is None else f"{_short(due.after_s)} from its submission"
        words.append(when if asked[0].reward == FULL and len(asked) == 1 else f"{when}: {reward:g}")
    return ", ".join(words)


# --- helpers, in order of use ---------------------------------------------------------------------


def _due(raw: object) -> Due:
    if isinstance(raw, datetime | time):
        return Due(text=raw.isoformat())
    text = worded(raw).strip()
    if ":" not in text or _DAYS.fullmatch(text):
        try:
            return _after(float(parse_duration(text)))
        except ValueError:
            pass
    try:
        at_s = parse_instant(text, now_s=0.0, zone=UTC)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a deadline: {_FORMS}") from None
    return _after(at_s) if _NOW.fullmatch(text) else Due(text=text)


def _after(seconds: float) -> Due:
    if seconds <= 0.0:
        raise ValueError("a deadline of 0 has passed already")
    return Due(after_s=seconds)


def _later(text: str, first: Due | None) -> Due:
    """One later deadline. Also `+10%`, `T+10%` and `8h+10%`: longer by this share than the first
    deadline, or than the named one.
    """
    found = _LATER.fullmatch(text)
    if not found:
        return _due(text)
    base = first if found[1].strip() in ("", "T") else _due(found[1])
    if base is None:
        raise ValueError(f"{shown(text)} comes first: of what? {_SOFT}")
    if base.after_s is None:
        raise ValueError(
            f"{shown(text)}: a share of the time until a date is not known: write dates"
        )
    return Due(after_s=base.after_s * (1.0 + float(found[2]) / 100.0))


def _reward(text: str, before: Sequence[DeadlineText]) -> float:
    try:
        reward = float(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a reward: {_SOFT}") from None
    if not LEAST <= reward <= FULL:
        raise ValueError(f"it earns {reward:g}: want {LEAST:g} to {FULL:g}")
    if before and reward > before[-1].reward:
        raise ValueError(f"a later end earns more ({reward:g} than {before[-1].reward:g})")
    return reward


def _short(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{hours:g} h" if hours >= 1 else f"{seconds / 60.0:g} min"


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
