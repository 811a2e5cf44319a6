"""The attempts of a job one after the other, for a reader that follows its output.

A lost line and a restarted master are waited for, as `watch_jobs` does it.
"""

from __future__ import annotations

from collections.abc import Callable

from dlq.v1 import job_pb2
from dlq_cli.jobs.held import is_poison
from dlq_cli.words import has_ended, shown_state
from dlq_client.line.connection import Connection
from dlq_client.watch import OnLost, watch_jobs

# Until it is past these, an attempt has no output that could be asked for.
UNSTARTED = frozenset({"assigned", "preparing", "starting"})


def next_attempt(
    connection: Connection,
    job_id: str,
    *,
    after: int,
    look: Callable[[job_pb2.Job], None],
    on_lost: OnLost,
) -> int:
    """The last attempt beyond `after` once it has started; 0 when none will come by itself. `look`
    is called with each value of the job until then.
    """
    for job in watch_jobs(connection, [job_id], on_lost=on_lost):
        ended = has_ended(job)
        if job.attempt_count > after and (ended or _has_begun(job)):
            return job.attempt_count
        look(job)
        if ended or is_poison(job):
            return 0
    raise AssertionError("a watch without an end has ended")


def _has_begun(job: job_pb2.Job) -> bool:
    """Whether its last attempt has started processes, as far as that is known."""
    return shown_state(job) not in UNSTARTED
