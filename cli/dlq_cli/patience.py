"""The time that a command waits for its request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dlq_common.errors import InvalidRequest
from dlq_common.text.units import parse_duration

_LOOK_EVERY_S = 0.5
T = TypeVar("T")


def duration_s(flag: str, text: str | None) -> int | None:
    """The seconds of a flag's duration, None when it was not given; InvalidRequest names the
    flag.
    """
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidRequest(f"{flag}: {error}") from None


def look_until(
    done: Callable[[T], bool], look: Callable[[T], T], first: T, patience_s: float | None
) -> T:
    """The first answer that is `done`, or the last one when the patience (seconds) is over. Without
    patience: `first`.
    """
    seen, end_s = first, time.monotonic() + (patience_s or 0.0)
    while not done(seen) and time.monotonic() < end_s:
        time.sleep(_LOOK_EVERY_S)
        seen = look(seen)
    return seen
