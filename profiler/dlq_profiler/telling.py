"""One host's part of a job's profile, as a program of its own: its input is under the job's
control.

    python -I -m dlq_profiler.telling DIRECTORY [UID GID [GROUP ...]]

Prints one JSON object, `{"job": ..., "processes": [...], "refused": N, "turned_away": N}`. `job`
has the facts of a JobProfile over the processes of this host, and `processes` those of each
ProcessProfile. `refused` counts useless files, and `turned_away` processes that were refused one.
Exits with 1 without any result, with 3 where numpy is missing. With ids, it reads with these rights
and no other. A job may leave any files: this program can open none but its user's own and write
none. It uses no more time and memory than is set here.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dlq_profiler.records.control import read_control

NO_NUMPY = 3
_CPU_S = 60  # a million records take less than one
_MEMORY_BYTES = 2 << 30  # of addresses; a job records 512 MiB at most, and mostly a tenth of it


def main(words: Sequence[str]) -> int:
    try:
        import numpy.ma  # noqa: F401  np.unique would import it by and by, with the user's rights

        from dlq_profiler.directory import read_directory
    except ModuleNotFoundError:
        return NO_NUMPY
    from dlq_profiler.job import job_of
    from dlq_profiler.process import profiles_of

    directory, *ids = words
    _confine([int(number) for number in ids])
    contents = read_directory(Path(directory))
    processes = profiles_of(contents.recordings, contents.tensors)
    told = {
        "job": job_of(processes).facts(),
        "processes": [process.facts() for process in processes],
        "refused": len(contents.refused),
        "turned_away": _turned_away(Path(directory)),
    }
    sys.stdout.write(json.dumps(told, separators=(",", ":")))
    sys.stdout.flush()
    return 0


def _turned_away(directory: Path) -> int:
    try:
        control = read_control(directory)
    except (OSError, ValueError):
        return 0
    return max(0, control.files_opened - control.file_limit) if control.file_limit else 0


def _confine(ids: Sequence[int]) -> None:
    """Everything is imported by now: the user may not be able to read where it lies."""
    os.nice(10)  # after the jobs of this host
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # before its agent and any job
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ids:
        uid, gid, *groups = ids
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
