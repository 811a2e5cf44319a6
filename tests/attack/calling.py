"""Calls of any method with any bytes, as anybody; what came back, and what it gave away."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from attack.forging import Forger
from dlq_client.line.identity import Identity
from dlq_common.identity.facts import SERVER_NAME
from support.wire_methods import Method

HANGS_S = 60.0  # what has not been answered by then never is
STREAM_S = 0.5  # a stream that has said nothing wrong by then goes on
MOST_ANSWERS = 200  # of one stream
# The master's own fault, whatever was asked.
FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS}


class Caller:
    """One identity's line to the master, or a line without any."""

    def __init__(self, address: str, ca: bytes, identity: Identity | None) -> None:
        key, certificate = (identity.key, identity.certificate) if identity else (None, None)
        self._channel = grpc.secure_channel(
            address,
            grpc.ssl_channel_credentials(ca, key, certificate),
            options=[
                ("grpc.ssl_target_name_override", SERVER_NAME),
                ("grpc.enable_retries", 0),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 500),
            ],
        )

    def close(self) -> None:
        """Give the line back."""
        self._channel.close()

    def ask(self, method: Method, requests: Sequence[bytes]) -> tuple[grpc.StatusCode, list[bytes]]:
        """How the call ends (OK for a stream that goes on), and the bytes that came."""
        shapes: dict[tuple[bool, bool], Callable[..., Any]] = {
            (False, False): self._channel.unary_unary,
            (False, True): self._channel.unary_stream,
            (True, False): self._channel.stream_unary,
            (True, True): self._channel.stream_stream,
        }
        multi = shapes[method.client_streams, method.server_streams](method.path)
        asked: Any = iter(requests) if method.client_streams else requests[0]
        came: list[bytes] = []
        try:
            if not method.server_streams:
                return grpc.StatusCode.OK, [multi(asked, timeout=HANGS_S)]
            for answer in multi(asked, timeout=STREAM_S):
                came.append(answer)
                if len(came) >= MOST_ANSWERS:
                    break
        except grpc.RpcError as error:
            code, told = error.code(), (error.details() or "").encode()
            goes_on = method.server_streams and code is grpc.StatusCode.DEADLINE_EXCEEDED
            return (grpc.StatusCode.OK if goes_on else code), [*came, told]
        return grpc.StatusCode.OK, came


class Fuzzer(threading.Thread):
    """Calls one method after the other as one identity until it is stopped, and keeps what went
    wrong.
    """

    def __init__(
        self, name: str, caller: Caller, forger: Forger, methods: Sequence[Method], secret: str
    ) -> None:
        """`secret`: bytes that this identity must never be shown; empty when it may be."""
        super().__init__(name=name)
        self._caller, self._forger, self._methods = caller, forger, methods
        self._secret = secret.encode()
        self._enough = threading.Event()
        self.codes: Counter[str] = Counter()
        self.wrongs: list[str] = []
        self.longest_s = 0.0
        self.failure: BaseException | None = None

    def stop(self) -> None:
        """Finish the call at hand, then leave."""
        self._enough.set()

    def run(self) -> None:
        try:
            while not self._enough.is_set():
                self._one_call()
        except BaseException as failure:  # noqa: BLE001 - raised again by `fuzzed`
            self.failure = failure
        finally:
            self._caller.close()

    def _one_call(self) -> None:
        method = self._forger.choose(self._methods)
        requests = self._forger.requests(method)
        began_s = time.monotonic()
        code, came = self._caller.ask(method, requests)
        self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.codes[code.name] += 1
        if code is grpc.StatusCode.UNAVAILABLE:
            self._enough.wait(0.1)  # the master is away
        shown = f"{self.name} {method.path} {b'|'.join(requests)[:400].hex()}"
        if code in FAULTS:
            self.wrongs.append(f"{code.name}: {shown}: {came[-1][:300]!r}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            self.wrongs.append(f"never answered: {shown}")
        if self._secret and any(self._secret in each for each in came):
            self.wrongs.append(f"the secret was shown: {shown}")


@contextmanager
def fuzzed(fuzzers: Sequence[Fuzzer]) -> Iterator[None]:
    """All of them at work until the end of the block."""
    for fuzzer in fuzzers:
        fuzzer.start()
    try:
        yield
    finally:
        for fuzzer in fuzzers:
            fuzzer.stop()
        for fuzzer in fuzzers:
            fuzzer.join()
    for fuzzer in fuzzers:
        if fuzzer.failure is not None:
            raise fuzzer.failure


def told(fuzzers: Sequence[Fuzzer]) -> str:
    """The figures, a line for each."""
    return "\n".join(
        f"  {one.name}: {sum(one.codes.values())} calls, longest {one.longest_s:.1f} s, "
        f"{dict(one.codes)}"
        for one in fuzzers
    )


def seeds(seed: int, count: int) -> list[int]:
    """As many seeds that follow from one."""
    chance = random.Random(seed)
    return [chance.randrange(2**31) for _ in range(count)]
