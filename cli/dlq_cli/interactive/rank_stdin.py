"""The stdin of a job's rank 0: its source, and the way to the rank's `dlq-stdin`."""

from __future__ import annotations

import os
import select
import stat
import sys

from dlq_cli.words import has_ended, shown_state
from dlq_client.inside.counted import PIECE_BYTES
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.watch import watch_jobs
from dlq_common.errors import Unavailable

# Run by `dlq exec`'s way in; the agent has set the variables (nodeagent launch/stdin.py).
ATTACH = ["/bin/sh", "-c", 'exec "$DLQ_STDIN" attach "${DLQ_BEAT_FILE%/*}/stdin"']
# The same for a writer, with its token as $1 and "again" as $2 once it has written. A file of the
# attempt names the writer; the end of its process lets another one in.
OTHER_WRITES, TAKEN_OVER = 90, 91
_WRITE = f"""\
owner="${{DLQ_BEAT_FILE%/*}}/stdin.writer"
if read -r pid token 2>/dev/null <"$owner" && [ "$token" != "$1" ]; then
  [ "$2" != again ] || exit {TAKEN_OVER}
  ! kill -0 "$pid" 2>/dev/null || exit {OTHER_WRITES}
fi
echo "$$ $1" >"$owner.$$" && mv "$owner.$$" "$owner" || exit 1
exec "$DLQ_STDIN" attach "${{DLQ_BEAT_FILE%/*}}/stdin"
"""
RUNNING = frozenset({"running", "profiling", "pausing"})


def piped_stdin() -> int | None:
    """The descriptor of our stdin if it is a pipe, a socket, a file or a device; None: a terminal,
    /dev/null, or closed.
    """
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor)
    except (OSError, ValueError, AttributeError):
        return None
    if os.isatty(descriptor):
        return None
    null = stat.S_ISCHR(mode.st_mode) and mode.st_rdev == os.stat(os.devnull).st_rdev
    return None if null else descriptor


def first_piece(descriptor: int) -> bytes | None:
    """The bytes that can be read at once; empty: it has ended already. None: nothing yet."""
    try:
        ready, _, _ = select.select([descriptor], [], [], 0)
        return os.read(descriptor, PIECE_BYTES) if ready else None
    except (OSError, ValueError):
        return b""


def writing(token: str, *, again: bool) -> list[str]:
    """The command that brings one writer's bytes to the rank, and refuses a second writer."""
    return ["/bin/sh", "-c", _WRITE, "dlq-stdin", token, "again" if again else ""]


def running_attempt(connection: Connection, job_id: str, *, after: int = 0) -> int:
    """Wait for a running attempt beyond `after`; 0: the job has ended."""
    for job in watch_jobs(connection, [job_id]):
        if has_ended(job):
            return 0
        if shown_state(job) in RUNNING and job.attempt_count > after:
            return job.attempt_count
    raise AssertionError("a watch without an end has ended")


def still_runs(jobs: Jobs, job_id: str, attempt: int) -> bool:
    """Whether this attempt may still take its stdin; True if the master is silent."""
    try:
        job = jobs.get(job_id).job
    except Unavailable:
        return True
    return job.attempt_count == attempt and shown_state(job) in RUNNING
