"""Files for the exporter of DCGM that say which job has which GPU (`[gpus] job_mapping`).

The directory has one file for each GPU with a job. Its name is the GPU's index, its content the
job's number. The files follow the ranks: each change makes the directory anew, so nothing depends
on the calls before. An agent that starts removes files of ranks that ended while it was away. On a
silent line the ranks go on, and so do their files; a rank that its shim ends loses them with its
end. Files of jobs that run stay while no agent runs.

A thread of its own writes, so that a dead file system costs the agent nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger

log = get_logger("nodeagent.job_mapping")
AGAIN_S: Final = 30.0  # after a failure
_OTHERS_WRITE: Final = 0o022
_NEW: Final = ".new"  # behind the name of a file that is being written


class JobMapping:
    """Keeps a directory as the ranks are."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        """The directory is made when it is needed: a tmpfs forgets it at a boot."""
        self._directory = directory
        self._clock = clock
        self._shown: Mapping[int, str] | None = None  # None: nobody has looked at the directory yet
        self._writing: Future[str] | None = None
        self._wanted: Mapping[int, str] = {}
        self._again_s = 0.0
        self._fault = ""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="job-mapping")

    def show(self, jobs: Mapping[int, str]) -> None:
        """GPU -> job, all of them. Returns at once; a call during a write is followed by another
        one.
        """
        self._take()
        if self._writing is not None or jobs == self._shown:
            return
        if self._clock.boottime_s() < self._again_s:
            return
        self._wanted = dict(jobs)
        self._writing = self._thread.submit(written, self._directory, self._wanted)

    def settle(self) -> None:
        """Wait for the write that is under way."""
        if self._writing is not None:
            self._writing.result()
            self._take()

    def close(self) -> None:
        """Write no more; wait for nothing."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _take(self) -> None:
        """The result of a write that is over."""
        if self._writing is None or not self._writing.done():
            return
        fault, self._writing = self._writing.result(), None
        if not fault:
            self._shown = self._wanted
        else:
            self._again_s = self._clock.boottime_s() + AGAIN_S
            self._shown = None
        if fault and fault != self._fault:
            log.warning("job_mapping_failed", directory=str(self._directory), error=fault)
        self._fault = fault


def written(directory: Path, jobs: Mapping[int, str]) -> str:
    """Make the directory so that it says this; returns why it cannot, or nothing."""
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True)
            directory.chmod(0o755)
        found = directory.stat()
        if found.st_mode & _OTHERS_WRITE or found.st_uid not in (0, os.geteuid()):
            return "other users may write there"
        for name in os.listdir(directory):
            if _is_ours(name) and (not name.isdecimal() or int(name) not in jobs):
                (directory / name).unlink(missing_ok=True)
        for gpu, job_id in jobs.items():
            _write(directory / str(gpu), f"{job_id}\n")
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror}"
    return ""


def _is_ours(name: str) -> bool:
    """A file of a GPU, or one that a killed agent had begun."""
    return name.removeprefix(".").removesuffix(_NEW).isdecimal() and name.isascii()


def _write(path: Path, text: str) -> None:
    """A reader sees the old content or the new one. Nothing has to survive a loss of power: no job
    does.
    """
    new = path.with_name(f".{path.name}{_NEW}")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o644), "w") as file:
        os.fchmod(file.fileno(), 0o644)  # whatever the umask: the exporter is another user
        file.write(text)
    new.rename(path)
