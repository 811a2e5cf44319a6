"""Many requests at a time as one identity, counted, and what came back that should not."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

import grpc
from grpc import aio

from attack.calling import FAULTS, HANGS_S
from dlq.v1 import job_pb2, job_service_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.identity import Identity
from dlq_common.errors import DlqError
from dlq_common.identity.facts import SERVER_NAME
from fuzz.corpus import Mutator
from support.wire_methods import Method

AT_ONCE = 12
STREAM_S = 0.3
MOST_WRONGS = 20
TOO_LARGE = 5 * 1024 * 1024 + 1
# Of the client's own library, when it writes on a stream that the master has ended meanwhile.
OWN_FAULT = b"Internal error from Core"
# Of a fault on purpose, in the loop or outside of it.
PUT_ASIDE = (b"the master failed on", b"a fault of the master; its log has more")
READY_S = 30.0
MOST_OWN = 20  # jobs of the user who changes hers


class Speaker(Protocol):
    """One of a crowd."""

    shares: int  # of the messages of all
    said: int
    wrongs: list[str]

    async def say(self, messages: int) -> None: ...


class Barrage:
    """One identity, or nobody, that says so many messages."""

    shares = 1

    def __init__(
        self,
        name: str,
        address: str,
        ca: bytes,
        identity: Identity | None,
        mutator: Mutator,
        methods: Sequence[Method],
        *,
        secret: str = "",
        stumbles: bool = False,
    ) -> None:
        """`secret`: never to be shown. `stumbles`: the master is made to fail on what it says."""
        self.name = name
        self._address, self._ca, self._identity = address, ca, identity
        self._mutator, self._methods = mutator, methods
        self._secret, self._stumbles = secret.encode(), stumbles
        self.codes: Counter[str] = Counter()
        self.said = 0
        self.longest_s = 0.0
        self.wrongs: list[str] = []

    async def say(self, messages: int) -> None:
        """Say so many, AT_ONCE calls at a time; stop early if too much goes wrong."""
        key, certificate = (
            (self._identity.key, self._identity.certificate) if self._identity else (None, None)
        )
        credentials = grpc.ssl_channel_credentials(self._ca, key, certificate)
        options = [
            ("grpc.ssl_target_name_override", SERVER_NAME),
            ("grpc.enable_retries", 0),
            ("grpc.max_reconnect_backoff_ms", 500),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        goal = self.said + messages
        async with aio.secure_channel(self._address, credentials, options=options) as channel:

            async def worker() -> None:
                while self.said < goal and len(self.wrongs) < MOST_WRONGS:
                    await self._one_call(channel)

            await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    async def _one_call(self, channel: aio.Channel) -> None:
        forger = self._mutator.forger
        method = forger.choose(self._methods)
        requests = self._mutator.requests(method)
        if forger.rarely(2_000):
            requests = [b"\x0a" + bytes(TOO_LARGE)]
        self.said += len(requests)
        began_s = time.monotonic()
        code, came = await _ask(channel, method, requests)
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.codes[code.name] += 1
        if code is grpc.StatusCode.UNAVAILABLE:
            await asyncio.sleep(0.02)
            if self._stumbles and channel.get_state() is not grpc.ChannelConnectivity.READY:
                self.said -= len(requests)  # the master begins anew, and has heard nothing
                async with asyncio.timeout(READY_S):
                    await channel.channel_ready()
                return
        shown = f"{self.name} {method.path} {b'|'.join(requests)[:300].hex()}"
        told = came[-1] if came else b""
        if code in FAULTS and not (self._stumbles and any(one in told for one in PUT_ASIDE)):
            self.wrongs.append(f"{code.name}: {shown}: {told[:300]!r}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            self.wrongs.append(f"never answered: {shown}")
        if self._secret and any(self._secret in each for each in came):
            self.wrongs.append(f"the secret was shown: {shown}")

    def __str__(self) -> str:
        return (
            f"  {self.name}: {self.said} messages, {sum(self.codes.values())} calls, longest "
            f"{self.longest_s:.1f} s, {dict(self.codes)}"
        )


async def _ask(
    channel: aio.Channel, method: Method, requests: Sequence[bytes]
) -> tuple[grpc.StatusCode, list[bytes]]:
    """How the call ends (OK for a stream that goes on), and the bytes that came."""
    shapes: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    multi = shapes[method.client_streams, method.server_streams](method.path)
    asked: Any = iter(requests) if method.client_streams else requests[0]
    streams = method.server_streams
    call = multi(asked, timeout=STREAM_S if streams else HANGS_S)
    came: list[bytes] = []
    try:
        if not streams:
            return grpc.StatusCode.OK, [await call]
        async for answer in call:
            came.append(answer)
            if len(came) >= 50:
                call.cancel()
                break
    except aio.AioRpcError as error:
        told = (error.details() or "").encode()
        if told == OWN_FAULT:
            return grpc.StatusCode.CANCELLED, came
        goes_on = streams and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return (grpc.StatusCode.OK if goes_on else error.code()), [*came, told]
    except asyncio.CancelledError:
        if not call.cancelled():
            raise
    return grpc.StatusCode.OK, came


class Changes:
    """A user who changes jobs of her own as people do, once while another one says `EACH` messages.
    Few forged messages come as far as the loop of the master; each of these does.
    """

    shares = 0
    EACH = 4

    def __init__(self, jobs: Jobs, spec: job_pb2.JobSpec) -> None:
        """`spec`: of a job that is held."""
        self._jobs, self._spec = jobs, spec
        self.said = 0
        self.wrongs: list[str] = []

    def __str__(self) -> str:
        return f"  changes of jobs: {self.said}"

    async def say(self, messages: int) -> None:
        """Changes, refused or not."""
        for number in range(messages // self.EACH):
            await asyncio.to_thread(self._one, number)
            self.said += 1

    def _one(self, number: int) -> None:
        jobs = self._jobs
        with suppress(DlqError):
            mine = [job.job_id for job in jobs.list().jobs if not job.HasField("end_time")]
            if number % 5 == 0 or not mine:
                jobs.submit(self._spec)
            elif number % 5 == 1 or len(mine) > MOST_OWN:
                jobs.cancel(mine[0])
            elif number % 5 == 2:
                jobs.hold(mine[-1], reason=f"change {number}")
            else:
                wishes = job_service_pb2.UpdateJobRequest(nice=number % 7)
                jobs.update_each(mine[-1], wishes)


async def all_say(crowd: Sequence[Speaker], messages: int, beside: Awaitable[None]) -> None:
    """They share so many messages, while something else goes on beside them. It goes on without an
    end: its own failure ends all, and is raised.
    """
    witness = asyncio.ensure_future(beside)
    share = messages // sum(each.shares for each in crowd)
    talk = asyncio.gather(*(each.say(share) for each in crowd))
    try:
        await asyncio.wait((witness, talk), return_when=asyncio.FIRST_COMPLETED)
        if witness.done():
            witness.result()
            raise AssertionError("the witness has stopped looking")
        await talk
    finally:
        for task in (talk, witness):
            task.cancel()
        await asyncio.gather(talk, witness, return_exceptions=True)


def wrongs(crowd: Sequence[Speaker]) -> Iterator[str]:
    """What went wrong, of all of them."""
    for each in crowd:
        yield from each.wrongs
