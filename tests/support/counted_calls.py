"""Counts calls of functions, where a test is about how many there are and not about time."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counted_calls(*, of_c: bool = False) -> Iterator[Counter[str]]:
    """The calls of this thread meanwhile: `FILE:FUNCTION` of Python, the file below its package of
    the master where it has one. `of_c`: those of C too, by their names. The collector waits: its
    callbacks, such as those of hypothesis, would be counted where it happens to run.
    """
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, what: object) -> None:
        if event == "call":
            code = frame.f_code
            calls[f"{code.co_filename.rpartition('dlq_master/')[2]}:{code.co_name}"] += 1
        elif of_c and event == "c_call":
            calls[getattr(what, "__name__", "")] += 1

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
