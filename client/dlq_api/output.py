"""The output of a job, line by line, to the end of the job or an error.

A lost line, a restarted master and a restarted agent are waited for, and the next byte is asked
for. A new attempt's output follows the last one's.
"""

from __future__ import annotations

import codecs
import warnings
from collections.abc import Callable, Iterator

from dlq.v1 import job_pb2, job_service_pb2
from dlq_api.watching import closed_line
from dlq_cli.jobs.attempts import next_attempt
from dlq_cli.jobs.streams import stream_of
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.watch import LogPiece, read_log
from dlq_common.errors import DlqError, IllegalTransition, NotFound

Say = Callable[[str], None]


class OutputMissing(UserWarning):
    """Some bytes of the output were not kept by the node."""


def lines_of(
    connection: Connection,
    job_id: str,
    say: Say,
    *,
    follow: bool,
    rank: int | str,
    attempt: int,
) -> Iterator[str]:
    """The lines without their ends. `attempt` 0: the last one, or with `follow` each in turn.

    Raises a DlqError when the master refuses, or stays away too long. IllegalTransition: the job
    has not started, and `follow` was not asked for.
    """
    if attempt or not follow:
        yield from _one(connection, job_id, attempt, rank, say, follow=follow)
        return
    seen = 0
    while seen := next_attempt(
        connection, job_id, after=seen, look=lambda job: None, on_lost=_still_trying(say)
    ):
        try:
            yield from _one(connection, job_id, seen, rank, say, follow=True)
        except NotFound:
            continue  # an attempt that has never started a process has no output


def _one(
    connection: Connection, job_id: str, attempt: int, rank: int | str, say: Say, *, follow: bool
) -> Iterator[str]:
    answer = Jobs(connection).get(job_id)
    known = _attempt(answer, attempt)
    stream = stream_of(str(rank), answer.spec, known)
    pieces = read_log(
        connection,
        job_id,
        attempt=known.attempt,
        node_rank=stream.node_rank,
        follow=follow,
        on_lost=_still_trying(say),
    )
    prefix = f"[{stream.task}] " if stream.task else ""
    for line in _split(_while_open(pieces)):
        if line.startswith(prefix):
            yield line.removeprefix(prefix)


def _while_open(pieces: Iterator[LogPiece]) -> Iterator[LogPiece]:
    try:
        yield from pieces
    except ValueError:  # a call on a closed channel
        raise closed_line() from None


def _attempt(answer: job_service_pb2.GetJobResponse, number: int) -> job_pb2.Attempt:
    """The attempt of this number; 0: the last one."""
    if not answer.attempts:
        job_id = answer.job.job_id
        raise IllegalTransition(
            f"job {job_id} has not started yet; it has no output", hint="follow=True waits for it"
        )
    if not number:
        return answer.attempts[-1]
    for each in answer.attempts:
        if each.attempt == number:
            return each
    raise NotFound(f"job {answer.job.job_id} has no attempt {number}", kind="attempt", id=number)


def _split(pieces: Iterator[LogPiece]) -> Iterator[str]:
    """Whole lines, and a last one without an end. Bytes that are no UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for piece in pieces:
        if piece.missing_bytes:
            warnings.warn(
                f"{piece.missing_bytes} bytes of the output were not kept", OutputMissing, 3
            )
        *whole, rest = (rest + decoder.decode(piece.data)).split("\n")
        yield from whole
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


def _still_trying(say: Say) -> Callable[[DlqError], None]:
    return lambda error: say(f"{error.what}; still trying")
