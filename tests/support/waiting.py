"""Waiting for what other processes do, without guessing how long they take."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(look: Callable[[], T], *, what: str, timeout_s: float = 60.0) -> T:
    """Look until the answer is true and return it; AssertionError naming `what` if it never is."""
    now_s = time.monotonic()
    end_s = now_s + timeout_s
    while True:
        began_s = now_s
        seen = look()
        if seen:
            return seen
        now_s = time.monotonic()
        if now_s > end_s:
            raise AssertionError(f"never happened within {timeout_s} s: {what}")
        # Who is waited for needs the processor, and a look may cost it something too.
        time.sleep(min(0.05, max(0.005, 4 * (now_s - began_s))))
        now_s = time.monotonic()


def wait_while_it_moves(
    look: Callable[[], T], progress: Callable[[], object], *, what: str, still_s: float
) -> T:
    """The same, for as long as `progress()` changes: AssertionError once it has not for
    `still_s`.
    """
    last, moved_s = progress(), time.monotonic()
    next_s = moved_s + still_s / 30  # it may cost more than a look
    while not (seen := look()):
        now_s = time.monotonic()
        if now_s >= next_s:
            next_s = now_s + still_s / 30
            if (now := progress()) != last:
                last, moved_s = now, now_s
            elif now_s - moved_s > still_s:
                raise AssertionError(f"nothing has moved for {still_s} s: {what}")
        time.sleep(0.05)
    return seen
