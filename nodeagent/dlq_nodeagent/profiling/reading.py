"""Reads a rank's records, by a short program with the rights of its user (dlq_profiler.telling).

A job owns its rings: that program may read anything, run out of its time or memory, or die. The
agent reads no ring itself, believes no figure that is not one, and waits no longer than this.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_profiler.capabilities import why_unwatched_process
from dlq_profiler.results import JobProfile, ProcessProfile, TrafficReason

_NO_NUMPY_CODE = 3  # dlq_profiler.telling.NO_NUMPY; importing it here would run it with `-m` twice
_MOST_OUTPUT_BYTES = 4 << 20
_TIMEOUT_S = 120.0
_MOST_PROCESSES = 256

log = get_logger("nodeagent.profiling")


class RingReading(NamedTuple):
    """The content of the rings. `failure`: the reason why they could not be read; then the rest
    says nothing. `limits`: the obstacles to recording a part.
    """

    job: JobProfile | None = None
    processes: tuple[ProcessProfile, ...] = ()
    failure: TrafficReason | None = None
    limits: tuple[TrafficReason, ...] = ()


@dataclass(frozen=True, slots=True)
class RingReader:
    """Runs the program; `python` and `timeout_s` are knobs for tests."""

    python: str = sys.executable
    timeout_s: float = _TIMEOUT_S
    _programs: set[subprocess.Popen[bytes]] = field(default_factory=set, compare=False, repr=False)

    def stop(self) -> None:
        """End the programs that run. Their readings fail."""
        for program in tuple(self._programs):
            program.kill()

    def read(self, rings: Path, rights: UserRights, *, drop: bool) -> RingReading:
        """Read a directory of rings. `drop`: this process is root, and takes the user's rights.

        Never raises over its content.
        """
        ids = (rights.uid, rights.gid, *rights.groups) if drop else ()
        words = [self.python, "-I", "-B", "-m", "dlq_profiler.telling", str(rings), *map(str, ids)]
        try:
            code, output = self._run(words)
        except OSError as error:
            log.warning("rings_not_read", rings=str(rings), why=error.strerror)
            return RingReading(failure=TrafficReason.FAILED)
        if code == 0:
            return reading_of(output)
        log.warning("rings_not_read", rings=str(rings), code=code)
        return RingReading(
            failure=TrafficReason.NO_NUMPY if code == _NO_NUMPY_CODE else TrafficReason.FAILED
        )

    def _run(self, words: Sequence[str]) -> tuple[int, bytes]:
        """Its exit code, -9 when it took too long or wrote too much, and its output."""
        # One thread, with any build of numpy: the host's cores are the jobs'.
        environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}
        with subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
        ) as program:
            assert program.stdout is not None
            watch = threading.Timer(self.timeout_s, program.kill)
            watch.start()
            self._programs.add(program)
            try:
                output = program.stdout.read(_MOST_OUTPUT_BYTES)
                if program.stdout.read(1):
                    program.kill()
                return program.wait(), output
            finally:
                self._programs.discard(program)
                watch.cancel()


def reading_of(output: bytes) -> RingReading:
    """The program's output, each figure checked: the program has read bytes written by a job."""
    try:
        told: Any = json.loads(output)
        processes = tuple(ProcessProfile.of(facts) for facts in told["processes"])
        if told["refused"] and not processes:
            return RingReading(failure=TrafficReason.FAILED)
        limits = (TrafficReason.TOO_MANY,) if told["turned_away"] else ()
        return RingReading(_plausible(JobProfile.of(told["job"])), processes, limits=limits)
    except (KeyError, TypeError, ValueError, RecursionError):
        return RingReading(failure=TrafficReason.FAILED)


def _plausible(job: JobProfile) -> JobProfile:
    for interval in (job.largest_tensor_bytes, job.skew):
        if interval is not None and interval.lower > interval.upper:
            raise ValueError("an interval ends before it begins")
    if job.skew is not None and job.skew.upper > 1.0:
        raise ValueError("a tensor larger than its model")
    return job


def limits_of_process(pid: int, proc: Path = Path("/proc")) -> tuple[TrafficReason, ...]:
    """The reasons why a running process, or its descendants, cannot be seen: io_uring, static, ...

    Processes that are gone meanwhile, or another user's, are left out.
    """
    found: list[TrafficReason] = []
    for each in _with_children(pid, proc):
        with suppress(OSError):
            found += why_unwatched_process(each, proc)
    return tuple(dict.fromkeys(found))


def _with_children(pid: int, proc: Path) -> Iterator[int]:
    waiting, known = [pid], {pid}
    while waiting and len(known) <= _MOST_PROCESSES:
        each = waiting.pop(0)
        yield each
        with suppress(OSError, ValueError):
            for task in (proc / str(each) / "task").iterdir():
                children = {int(word) for word in (task / "children").read_text().split()}
                waiting += sorted(children - known)
                known |= children
