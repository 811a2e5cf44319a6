"""Memory that only the start of a daemon needed, given back once it serves.

Pages of programs and libraries that were read at the start stay mapped for ever, though most of
them are never run again. The kernel keeps them in its cache, and maps again what is run. Nothing
else changes: no page that was written is let go of. A restarted daemon does the same anew.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

SETTLED_S: Final = 5.0
"""The start is over by then, with the first heartbeats."""
_MAPS: Final = Path("/proc/self/maps")
# Code of a file: readable, executable, and never written.
_CODE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-xp \S+ \S+ [1-9]\d* +/")


def give_back() -> None:
    """Unmap pages of code until they are run again, and return free memory to the kernel. Does
    nothing where the C library has no such calls.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.malloc_trim(ctypes.c_size_t(0))
        for begin, size in code_ranges(_MAPS.read_text()):
            address = ctypes.c_void_p(begin)
            libc.madvise(address, ctypes.c_size_t(size), ctypes.c_int(mmap.MADV_DONTNEED))


def code_ranges(maps: str) -> Iterator[tuple[int, int]]:
    """Address and size of each mapping of code, from the lines of /proc/PID/maps."""
    for line in maps.splitlines():
        found = _CODE.match(line)
        if found is not None:
            begin, end = (int(number, 16) for number in found.groups())
            yield begin, end - begin
