"""The attempts of a job one after another, for a reader that follows its output.

It waits for a lost line and a restarted master, as `watch_jobs` does.
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
    """The last attempt beyond `after` once it has started; 0: none will come by itself.

    `look` is called with each value of the job until then.
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
    """Whether its last attempt is known to have started processes."""
    return shown_state(job) not in UNSTARTED
