"""The line to the master: rules, events, estimates and last lines of output.

The daemon has a certificate in the role `notifier`, which may read these and nothing else. It gets
the first one from the login broker of the master's host, and renews it over the line itself.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from dlq.v1 import event_pb2, job_service_pb2
from dlq.v1 import notify_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq.v1.notify_service_pb2_grpc import NotifyServiceStub
from dlq_client.line.connection import STREAM_DEADLINE_S, Connection
from dlq_client.line.errors import from_rpc_error
from dlq_client.line.identity import Identity
from dlq_client.login import renew, renewal_wanted
from dlq_client.service import ServiceHome
from dlq_common.clock import Clock
from dlq_common.errors import CursorExpired, DlqError, TryAgain, Unauthenticated, Unavailable
from dlq_common.notices import NOTICES, RULE_KINDS
from dlq_notify.rules import RuleBook, rule_of
from dlq_notify.wording import clean

PEOPLE_KINDS = ("user_deleted", "user_set")
KINDS = (
    *sorted({kind for one in NOTICES.values() for kind in one.kinds}),
    *RULE_KINDS,
    *PEOPLE_KINDS,
    "rank_exited",
)
RULES_CHANGE = frozenset({*RULE_KINDS, *PEOPLE_KINDS})
PATIENCE_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
MOST_STARTS = 20_000  # that one look compares
OUTPUT_BYTES, OUTPUT_LINES = 8 * 1024, 20
OUTPUT_DEADLINE_S = 10.0
ASK_EVERY_S = 60.0  # whether the CA changes
NAME = "dlq-notify"
_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")


class RulesRead(NamedTuple):
    """The rules, and the newest event of the journal by then."""

    book: RuleBook
    cursor: int


class EventBatch(NamedTuple):
    """Events of the journal, the oldest first, and the position behind them."""

    told: Sequence[job_service_pb2.WatchEventsResponse]
    cursor: int

    @property
    def changes_rules(self) -> bool:
        return any(one.event.kind in RULES_CHANGE for one in self.told)


class NotifierLine:
    """The master, asked as the notifier. Each call raises a DlqError when that fails."""

    def __init__(self, home: Path, socket: Path, clock: Clock) -> None:
        self._home, self._clock = ServiceHome(home, socket, NAME), clock
        self._ask_s = clock.boottime_s() + ASK_EVERY_S
        self._connection = self._connected(self._home.identity(clock.now_s()))

    @property
    def cluster(self) -> str:
        return self._connection.identity.cluster

    def rules(self) -> RulesRead:
        """All rules as they are now."""
        now_s = self._clock.boottime_s()
        stub = NotifyServiceStub(self._connection.channel)
        answer = self._connection.call(stub.ListNotifyRules, wire.ListNotifyRulesRequest())
        return RulesRead(RuleBook(map(rule_of, answer.rules), now_s), answer.cursor)

    def starts(self) -> list[wire.StartEstimate]:
        """The estimates of waiting jobs whose users want to know of moves."""
        stub = NotifyServiceStub(self._connection.channel)
        found: list[wire.StartEstimate] = []
        request = wire.ListStartEstimatesRequest()
        while len(found) < MOST_STARTS:
            answer = self._connection.call(stub.ListStartEstimates, request)
            found += answer.jobs
            request.page_token = answer.next_page_token
            if not request.page_token:
                break
        return found

    def events(self, cursor: int) -> Iterator[EventBatch]:
        """Batches behind a position, without end; an empty one is a sign of life."""
        stub: Any = JobServiceStub(self._connection.channel)
        request = job_service_pb2.WatchEventsRequest(
            cursor=cursor, gathered=True, filter=event_pb2.EventFilter(kinds=KINDS)
        )
        try:
            for message in stub.WatchEvents(request, timeout=STREAM_DEADLINE_S):
                told = [one for one in (message, *message.more) if one.HasField("event")]
                yield EventBatch(told, max(one.cursor for one in (message, *message.more)))
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._connection.identity.address) from None

    def output(self, job_id: str, attempt: int, rank: int) -> tuple[str, ...]:
        """The last lines of a rank, clean; none where they cannot be read."""
        stub: Any = JobServiceStub(self._connection.channel)
        request = job_service_pb2.ReadLogsRequest(
            job_id=job_id, attempt=attempt, node_rank=rank, offset=-OUTPUT_BYTES
        )
        found = bytearray()
        try:
            for message in stub.ReadLogs(request, timeout=OUTPUT_DEADLINE_S):
                found += message.data
        except grpc.RpcError:
            if not found:
                return ()
        lines = bytes(found[-OUTPUT_BYTES:]).decode("utf-8", "replace").splitlines()
        return tuple(plain_line(line) for line in lines[-OUTPUT_LINES:])

    def renew_in_time(self) -> bool:
        """Renew the certificate when that is due; whether there is a new line. The master may have
        been away until the certificate had ended: then the login broker gives another one.
        """
        identity = self._connection.identity
        now_s = self._clock.now_s()
        refused = False
        if not identity.renewal_due(now_s):
            try:
                if not self._wanted():
                    return False
            except Unauthenticated:  # it was revoked
                refused = True
        if identity.is_valid(now_s) and not refused:
            fresh = renew(self._connection)
            self._home.keep(fresh)
        else:
            fresh = self._home.log_in()
        self._ask_s = self._clock.boottime_s() + ASK_EVERY_S
        old, self._connection = self._connection, self._connected(fresh)
        old.close()
        return True

    def _wanted(self) -> bool:
        """Whether the master wishes a renewal, because the CA changes. It is asked now and then."""
        now_s = self._clock.boottime_s()
        if now_s < self._ask_s:
            return False
        self._ask_s = now_s + ASK_EVERY_S
        try:
            return renewal_wanted(self._connection)
        except Unauthenticated:
            raise
        except DlqError:  # it is away, or of an older release
            return False

    def close(self) -> None:
        """End the line; a stream in another thread ends."""
        self._connection.close()

    def _connected(self, identity: Identity) -> Connection:
        return Connection(identity, clock=self._clock, patience_s=PATIENCE_S)


class EventReader:
    """Follows the events in a thread of its own, and hands batches over. It waits when nobody takes
    them, and comes back where it was when the line is lost.
    """

    def __init__(
        self,
        line: NotifierLine,
        cursor: int,
        take: Callable[[EventReader, EventBatch], None],
        lost: Callable[[EventReader, DlqError], None],
    ) -> None:
        """`take` may block, until the reader is stopped. `lost`: the master refuses, or its journal
        is cut; a master that is away is asked again.
        """
        self._line, self._cursor, self._take, self._lost = line, cursor, take, lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Hand nothing over any more."""
        self._stop.set()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            try:
                for batch in self._line.events(self._cursor):
                    pause_s = FIRST_PAUSE_S
                    self._take(self, batch)
                    self._cursor = max(self._cursor, batch.cursor)
                    if self._stop.is_set():
                        return
            except CursorExpired as error:
                self._lost(self, error)
                return
            except DlqError as error:
                if not isinstance(error, Unavailable | TryAgain):
                    self._lost(self, error)
            except ValueError:  # the channel was closed under us: the certificate is new
                pass
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def plain_line(text: str) -> str:
    """A line of output without colours, cursor movements and control characters."""
    return clean(_ANSI.sub("", text))
