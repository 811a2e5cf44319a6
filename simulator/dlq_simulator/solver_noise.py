"""HiGHS as scipy 1.17 brings it now and then prints a line of its own, told to be quiet or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def off_stdout() -> Iterator[None]:
    """What native code writes to the standard output goes to the standard error: ours is a document."""
    sys.stdout.flush()
    ours = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)
