"""Waiting for what other processes do, without guessing how long they take."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(look: Callable[[], T], *, what: str, timeout_s: float = 30.0) -> T:
    """Look until the answer is true and return it; AssertionError naming `what` if it never is."""
    end_s = time.monotonic() + timeout_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end_s:
            raise AssertionError(f"never happened within {timeout_s} s: {what}")
        time.sleep(0.005)
