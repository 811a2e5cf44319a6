"""How often torchrun has started its workers again, by the directories that it makes for their
logs.

Read from a place that belongs to the job: nothing is followed, only directories of its user are
listed, and never many.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from dlq_nodeagent.runtimes.process.layout import JOB

LOGS = "torchrun"  # in the job's own directory; below it RUN/attempt_N
_START = re.compile(r"attempt_(\d{1,4})", re.ASCII)
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST = 64


def highest_start(at: int, *, uid: int) -> int:
    """The highest N of all, with the attempt's directory open as `at`; 0: none."""
    found = 0
    with suppress(OSError), _inside(at, JOB) as job, _inside(job, LOGS) as logs:
        for run in _names(logs, uid):
            with suppress(OSError), _inside(logs, run) as starts:
                numbers = (_START.fullmatch(name) for name in _names(starts, uid))
                found = max([found, *(int(each[1]) for each in numbers if each)])
    return found


@contextmanager
def _inside(directory: int, name: str) -> Iterator[int]:
    descriptor = os.open(name, _FLAGS, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _names(directory: int, uid: int) -> list[str]:
    if os.fstat(directory).st_uid != uid:
        return []
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _MOST)]
