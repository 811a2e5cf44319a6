"""One mutual-TLS line to the master: deadlines on every call, and retries that cannot double."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import grpc

from dlq_client.line.errors import from_rpc_error, is_crowded, is_lost
from dlq_client.line.identity import Identity, default_home, load_identity
from dlq_common.clock import Clock, SteadyClock
from dlq_common.errors import NotLeader, Unauthenticated
from dlq_common.ids import Ids, RandomIds
from dlq_common.text.addresses import split_addresses

T = TypeVar("T")


def apart(call: Callable[[], T]) -> T:
    """The result of `call`, or its exception. It runs apart from the main thread, which alone hears
    Ctrl-C. Ctrl-C is noticed at once; the call goes on until the channel is closed.

    gRPC does not survive a KeyboardInterrupt everywhere. An interrupt between the begin of a call
    and its first reader leaves a call that never ends. Closing or dropping its channel then waits
    for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised again where its answer is awaited
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answer.result()


FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 2.0
# A standby may lead in a moment, and its refusal costs it little.
STANDBY_DELAY_S = 0.5
# A takeover ends within it, or somebody is needed.
TAKEOVER_S = 10.0


class Patience:
    """One outage: growing pauses with jitter, until `limit_s` have passed since it began.

    `restored` ends the outage; the next failure begins a new one.
    """

    def __init__(
        self,
        limit_s: float,
        clock: Clock,
        rng: random.Random,
        *,
        pause: Callable[[float], object] | None = None,
        has_standby: bool = False,
    ) -> None:
        """`has_standby`: another master leads within seconds, and is asked often until then."""
        self._limit_s = limit_s
        self._has_standby = has_standby
        self._clock = clock
        self._rng = rng
        # An event that is never set: a sleep that Ctrl-C ends at once.
        self._pause = pause or threading.Event().wait
        self._began_s: float | None = None
        self._delay_s = FIRST_DELAY_S

    def restored(self) -> None:
        """The line works again."""
        self._began_s = None
        self._delay_s = FIRST_DELAY_S

    def wait(self, *, standby: bool = False) -> bool:
        """Pause before the next try; False, at once, when the patience is over. `standby`: a master
        has refused that does not lead.
        """
        now_s = self._clock.boottime_s()
        if self._began_s is None:
            self._began_s = now_s
        # Full jitter: clients that lost the same master must not come back in step.
        delay_s = self._rng.uniform(0, STANDBY_DELAY_S if standby else self._delay_s)
        if now_s + delay_s - self._began_s >= self._limit_s:
            return False
        if not standby:
            soon = self._has_standby and now_s - self._began_s < TAKEOVER_S
            self._delay_s = min(STANDBY_DELAY_S if soon else LONGEST_DELAY_S, self._delay_s * 2)
        self._pause(delay_s)
        return True


# The master's certificate carries this name at every address.
SERVER_NAME = "dlq-master"
# One try. A reply that takes longer is taken for lost and asked for again.
CALL_DEADLINE_S = 10.0
# One command. A master that restarts under systemd is back well within it.
PATIENCE_S = 15.0
# So often a standby's word on the leader is followed at once; then only after a pause.
MOST_FOLLOWED = 2
# A stream is renewed this often even when all is well: no call is without a deadline.
STREAM_DEADLINE_S = 900.0
LARGEST_ANSWER_BYTES = 64 * 1024 * 1024

Request = TypeVar("Request")
Response = TypeVar("Response")
Stub = TypeVar("Stub")


class Connection:
    """A channel and the rules of the house for using it. Not to be used across a fork."""

    opener: Callable[[Identity], grpc.Channel] = staticmethod(lambda who: open_channel(who))
    """How a channel is made. A process that has a line already puts another function here."""
    asking: Callable[[Callable[[], Any]], Any] = staticmethod(apart)
    """How one request is made; that process needs no thread for it."""

    def __init__(
        self,
        identity: Identity,
        *,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
        deadline_s: float = CALL_DEADLINE_S,
    ) -> None:
        self.identity = identity
        self.clock = clock or SteadyClock()
        self.ids: Ids = RandomIds(self.clock)
        self._patience_s = patience_s
        self._deadline_s = deadline_s
        self.channel = self.opener(identity)

    def call(
        self,
        method: grpc.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        deadline_s: float | None = None,
    ) -> Response:
        """The answer to one request. It is repeated while answers are lost, or while too many of
        the user's requests are on their way. `deadline_s`: of one try, where the master may take
        its time.

        Only for requests that may be repeated: reads, and changes that carry a request_id. Raises a
        DlqError; Unavailable once the patience is over, and then a change may have happened.
        """
        patience, follows = self.patience(self._patience_s), MOST_FOLLOWED
        timeout_s = self._deadline_s if deadline_s is None else deadline_s
        while True:
            try:
                answer: Response = self.asking(partial(method, request, timeout=timeout_s))
                return answer
            except grpc.RpcError as error:
                failure = from_rpc_error(error, self.identity.address)
                if failure.metadata.get("leader") and "," in self.identity.address and follows:
                    follows -= 1  # it has done nothing, and says who leads: that one is next
                    continue
                again = is_lost(error) or is_crowded(failure)
                if again and patience.wait(standby=isinstance(failure, NotLeader)):
                    continue
                raise failure from None

    @property
    def dialled(self) -> str:
        """HOST:PORT of the master that is taken for the leader."""
        masters = getattr(self.channel, "masters", None)
        return self.identity.first_address if masters is None else str(masters.address)

    @property
    def direct(self) -> grpc.Channel:
        """The channel for streams that carry much, such as forwards: nobody relays their bytes."""
        direct: Callable[[], grpc.Channel] | None = getattr(self.channel, "direct", None)
        return self.channel if direct is None else direct()

    def patience(self, limit_s: float) -> Patience:
        """A fresh count of retries that gives up after `limit_s` of silence."""
        has_standby = "," in self.identity.address
        return Patience(limit_s, self.clock, self.rng(), has_standby=has_standby)

    def rng(self) -> random.Random:
        """Randomness for jitter."""
        return self.ids.rng()

    def close(self) -> None:
        """End the line; open streams are cancelled."""
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Change(Protocol):
    request_id: str


class _Listing(Protocol):
    page_token: str


class _Page(Protocol):
    @property
    def next_page_token(self) -> str: ...


Changing = TypeVar("Changing", bound=_Change)
Listing = TypeVar("Listing", bound=_Listing)
Page = TypeVar("Page", bound=_Page)


class ServiceCalls(Generic[Stub]):
    """The calls of one service. Each raises a DlqError when the master refuses; then nothing has
    changed.
    """

    stub_kind: type[Any]

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.stub: Stub = self.stub_kind(connection.channel)

    def _change(
        self,
        method: grpc.UnaryUnaryMultiCallable[Changing, Response],
        request: Changing,
        *,
        deadline_s: float | None = None,
    ) -> Response:
        """The answer to a change, which gets its key before its first try: every retry carries the
        same.
        """
        request.request_id = request.request_id or self._connection.ids.request_id()
        return self._connection.call(method, request, deadline_s=deadline_s)

    def _pages(
        self, method: grpc.UnaryUnaryMultiCallable[Listing, Page], request: Listing
    ) -> Iterator[Page]:
        """The answers to a list, page after page to the last; at least one. Changes the request."""
        while True:
            answer = self._connection.call(method, request)
            yield answer
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token


def connect(home: Path | None = None, *, patience_s: float = PATIENCE_S) -> Connection:
    """A connection with the identity that `dlq login` stored. Unauthenticated without an
    identity.
    """
    directory = home or default_home(os.environ)
    identity = load_identity(directory)
    if identity is None:
        raise Unauthenticated(
            f"nobody is logged in: {directory} holds no identity",
            hint="run `dlq login` on the master's host",
        )
    return Connection(identity, patience_s=patience_s)


def open_channel(identity: Identity) -> grpc.Channel:
    """A channel of this process, with the settings of every line to the master; to the one that
    leads, where the identity names several.
    """
    credentials, options = channel_credentials(identity), channel_options()
    if "," not in identity.address:
        return grpc.secure_channel(identity.address, credentials, options=options)
    from dlq_client.line.masters import DIAL_MS, Masters, MastersChannel

    options = [*(dict(options) | PAIR_OPTIONS).items()]
    options.append(("grpc.min_reconnect_backoff_ms", DIAL_MS))
    return MastersChannel(
        Masters(split_addresses(identity.address)),
        lambda address: grpc.secure_channel(address, credentials, options=options),
    )


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """Mutual TLS with this identity."""
    return grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)


# Where another master can be asked, one that stands still is given up after 5.5 seconds. Masters
# take a ping every four seconds (rpc/server.py), also those of before.
PAIR_OPTIONS: dict[str, object] = {
    "grpc.keepalive_time_ms": 4_200,
    "grpc.keepalive_timeout_ms": 1_300,
    "grpc.http2.ping_timeout_ms": 1_300,
    "grpc.max_reconnect_backoff_ms": 500,
}


def channel_options() -> list[tuple[str, object]]:
    """The settings of every line to the master."""
    return [
        ("grpc.ssl_target_name_override", SERVER_NAME),
        # A host that died without a word is noticed after 5 + 3 seconds.
        ("grpc.keepalive_time_ms", 5_000),
        ("grpc.keepalive_timeout_ms", 3_000),
        # This concerns the pings that measure the line too: while one of them is out, none is sent
        # for this.
        ("grpc.http2.ping_timeout_ms", 3_000),
        ("grpc.http2.max_pings_without_data", 0),
        # Retries are ours alone: they know which requests may be repeated.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_receive_message_length", LARGEST_ANSWER_BYTES),
        # A cluster's address is dialled directly; proxies of the environment are for the web.
        ("grpc.enable_http_proxy", 0),
    ]
