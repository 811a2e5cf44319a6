"""Clears the directory of a job that is over: leftovers would fill the node's disk for days.

The directory is for beats and small files (runtimes/process/layout.py), and stays with the log of
its rank. Larger files in it are deleted. A restarted agent repeats an end that it had not finished,
this included. The master and a silent line have no part in it.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from dlq_nodeagent.jobtree.files import DIRECTORY, opened

_DEEPEST = 64
_KEPT_BELOW_BYTES = 64 * 1024
_MOST = 100_000  # names in one sweep; further names are set aside with the directory later


def sweep(job_dir: Path, *, keep_below_bytes: int = _KEPT_BELOW_BYTES) -> bool:
    """Delete all but small plain files at its top (0: all); False: a part is left.

    It works by descriptors, so that a concurrent rename cannot lead it through a link. A directory
    of another owner than `job_dir` stays. Its user may have moved it here from a shared place, and
    root would delete files that the user must not delete.
    """
    try:
        top = os.open(job_dir, DIRECTORY)
    except OSError:
        return not job_dir.is_dir()
    budget = [_MOST]
    try:
        whole = True
        for name, info in _entries(top, budget):
            if stat.S_ISREG(info.st_mode) and info.st_blocks * 512 < keep_below_bytes:
                continue
            whole &= _remove(top, name, info, budget, _DEEPEST)
        return whole and budget[0] > 0
    finally:
        os.close(top)


def _remove(at: int, name: str, info: os.stat_result, budget: list[int], deeper: int) -> bool:
    try:
        if not stat.S_ISDIR(info.st_mode):
            os.unlink(name, dir_fd=at)
            return True
        if deeper == 0:
            return False
        with opened(name, at=at) as inner:
            if os.fstat(inner).st_uid != os.fstat(at).st_uid:
                return False
            for inside, what in _entries(inner, budget):
                if not _remove(inner, inside, what, budget, deeper - 1):
                    return False
        os.rmdir(name, dir_fd=at)
    except OSError:
        return False
    return True


def _entries(at: int, budget: list[int]) -> list[tuple[str, os.stat_result]]:
    found = []
    with os.scandir(at) as entries:
        for entry in entries:
            if budget[0] == 0:
                break
            budget[0] -= 1
            with suppress(OSError):
                found.append((entry.name, os.stat(entry.name, dir_fd=at, follow_symlinks=False)))
    return found
