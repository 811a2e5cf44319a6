"""HiGHS as scipy 1.17 brings it now and then prints a line of its own, told to be quiet or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_stdout() -> Iterator[None]:
    """What native code writes to the standard output is dropped: ours is a document."""
    sys.stdout.flush()
    ours = os.dup(1)
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)
