"""Streams that survive lost lines: events by cursor, output by offset; each item once, in order.

The calling thread may be ended by Ctrl-C at any time; closing the connection ends the streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import grpc

from dlq.v1 import event_pb2, job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_client.jobs import Jobs
from dlq_client.line.connection import STREAM_DEADLINE_S, Connection, apart
from dlq_client.line.errors import from_rpc_error, is_deadline, is_lost
from dlq_common.errors import CursorExpired, DlqError, NotFound, TryAgain, Unavailable

# How long a watcher waits for a master or a node that is away before it ends with an error.
OUTAGE_S = 300.0

# Called once for each outage, with its cause; without it people would wonder at the silence.
OnLost = Callable[[DlqError], None]


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of output that follow the piece before; `missing_bytes` of them were not kept."""

    attempt: int
    offset: int  # of the first byte of data
    data: bytes
    missing_bytes: int = 0


def watch_events(
    connection: Connection,
    *,
    job_ids: Sequence[str] = (),
    chosen: event_pb2.EventFilter | None = None,
    cursor: int = -1,
    until_s: float | None = None,
    outage_s: float = OUTAGE_S,
    on_lost: OnLost | None = None,
) -> Iterator[wire.WatchEventsResponse]:
    """Events after `cursor`, until the clock's boottime is `until_s` (None: endlessly). Where only
    some are `chosen`, a message without one says that a job which was named has ended by another.

    A lost stream is resumed from the last cursor seen. Raises a DlqError when the master refuses
    (CursorExpired: read the state anew) or stays away for longer than `outage_s`.
    """
    stub = Jobs(connection).stub
    line = _Line(connection, outage_s, on_lost)
    while (time_s := _time_left_s(connection, until_s)) > 0:
        request = wire.WatchEventsRequest(
            job_ids=job_ids, cursor=cursor, filter=chosen, gathered=True
        )
        try:
            for message in _each(apart(partial(stub.WatchEvents, request, timeout=time_s))):
                line.works()
                # A replay may begin before the last seen event: no event comes twice.
                fresh = message.cursor > cursor or message.event.sequence > cursor
                cursor = max(cursor, message.cursor, message.event.sequence)
                if fresh and (message.HasField("event") or message.HasField("job")):
                    yield message
            line.ended()
        except grpc.RpcError as error:
            line.lost(error)


def _each(messages: Iterable[wire.WatchEventsResponse]) -> Iterator[wire.WatchEventsResponse]:
    """The messages, and those that came within them."""
    for message in messages:
        yield message
        yield from message.more


def watch_jobs(
    connection: Connection,
    job_ids: Sequence[str],
    *,
    until_s: float | None = None,
    on_lost: OnLost | None = None,
) -> Iterator[job_pb2.Job]:
    """Every value that some jobs take, the present ones first; ends as `watch_events` does.

    NotFound when the master does not show one of them to the caller. When the journal has been cut
    behind a long outage, the present values are read anew.
    """
    jobs = Jobs(connection)
    while True:
        listed = jobs.list(job_ids=job_ids)
        shown = {job.job_id for job in listed.jobs}
        for job_id in job_ids:
            if job_id not in shown:
                raise NotFound(f"there is no job {job_id}", kind="job", id=job_id)
        yield from listed.jobs
        try:
            for message in watch_events(
                connection, job_ids=job_ids, cursor=listed.cursor, until_s=until_s, on_lost=on_lost
            ):
                if message.HasField("job"):
                    yield message.job
        except CursorExpired:
            continue
        return


def read_log(
    connection: Connection,
    job_id: str,
    *,
    attempt: int = 0,
    node_rank: int = 0,
    offset: int = 0,
    follow: bool = False,
    outage_s: float = OUTAGE_S,
    on_lost: OnLost | None = None,
) -> Iterator[LogPiece]:
    """The output of one rank from `offset` (negative: bytes before the end) to its end.

    With `follow` until the attempt has ended. A lost stream is resumed at the next byte, on the
    same attempt. Raises a DlqError when the master refuses or the node stays away too long.
    """
    stub = Jobs(connection).stub
    line = _Line(connection, outage_s, on_lost)
    request = wire.ReadLogsRequest(
        job_id=job_id, attempt=attempt, node_rank=node_rank, offset=offset, follow=follow
    )
    # The next byte to read; None until an answer says where "the last N bytes" begin.
    expected = offset if offset >= 0 else None
    while True:
        try:
            for message in apart(partial(stub.ReadLogs, request, timeout=STREAM_DEADLINE_S)):
                line.works()
                request.attempt = message.attempt or request.attempt
                if message.data:
                    piece = _unseen(message, expected)
                    request.offset = expected = piece.offset + len(piece.data)
                    if piece.data:
                        yield piece
                if message.end:
                    return
            line.ended()
        except grpc.RpcError as error:
            line.lost(error)


def _time_left_s(connection: Connection, until_s: float | None) -> float:
    if until_s is None:
        return STREAM_DEADLINE_S
    return min(STREAM_DEADLINE_S, until_s - connection.clock.boottime_s())


def _unseen(message: wire.ReadLogsResponse, expected: int | None) -> LogPiece:
    """The unseen part of a message, and the number of bytes lost before it."""
    if expected is None:
        return LogPiece(message.attempt, message.offset, message.data)
    seen = max(0, expected - message.offset)
    missing = max(0, message.offset - expected)
    return LogPiece(message.attempt, max(message.offset, expected), message.data[seen:], missing)


class _Line:
    """The health of one stream over its reconnects."""

    def __init__(self, connection: Connection, outage_s: float, on_lost: OnLost | None) -> None:
        self._address = connection.identity.address
        self._patience = connection.patience(outage_s)
        self._on_lost = on_lost
        self._told = False

    def works(self) -> None:
        """A message arrived."""
        self._patience.restored()
        self._told = False

    def ended(self) -> None:
        """The other side closed the stream without an end: it is going down, or shed us."""
        if not self._patience.wait():
            raise Unavailable(f"the master at {self._address} keeps closing the stream")

    def lost(self, error: grpc.RpcError) -> None:
        """Wait before the next try, or raise the error.

        Too many streams at once (TryAgain) are an outage like others: one of them will end.
        """
        failure = from_rpc_error(error, self._address)
        if not is_lost(error) and not isinstance(failure, TryAgain):
            raise failure from None
        if is_deadline(error):
            # Its planned end; a line that is really dead ends by keepalive long before.
            self._patience.restored()
            self._patience.wait()
            return
        if not self._told and self._on_lost:
            self._told = True
            self._on_lost(failure)
        if not self._patience.wait():
            raise failure from None
