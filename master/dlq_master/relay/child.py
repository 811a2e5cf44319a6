"""The master's side of the relay: a process that is started when it is first needed.

One that ends is told to the callers, and the next caller starts another one, after a rest. Without
it all bytes go through the master. It gets the present certificate of the master and the present
roots before each ticket, so that it never serves with older ones.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import Unavailable
from dlq_common.identity.pki import CertifiedIdentity, Role

COMMAND: Final = (sys.executable, "-P", "-m", "dlq_master.relay.program")
START_S: Final = 10.0
FIRST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 60.0

_log = get_logger("master.relay")


class ShownCertificate(Protocol):
    """The certificate of the master's ports (rpc/calls/certificate.py)."""

    @property
    def key(self) -> bytes: ...
    @property
    def chain(self) -> bytes: ...
    @property
    def roots(self) -> bytes: ...


class RelayedPair:
    """A caller and a node that are expected at the relay, or joined there."""

    def __init__(self, number: int, address: str, node: str) -> None:
        """`node`: the name in its certificate."""
        self.number, self.address, self.node = number, address, node
        self.caller_ticket, self.agent_ticket = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def over(self) -> None:
        """Returns at the end of the line. Raises Unavailable where it was not joined, or broke."""
        if why := await asyncio.shield(self._over):
            raise Unavailable(why)

    def end(self, why: str) -> None:
        """It is over."""
        if not self._over.done():
            self._over.set_result(why)


class RelayChild:
    """One relay at a time. Lives in the event loop's thread."""

    def __init__(self, listen: str, advertise: str, shown: Callable[[], ShownCertificate]) -> None:
        """`shown`: the certificate of now. `advertise`: HOST:PORT, or HOST:0 for the relay's own
        port, or "" for the host at which the master is dialled.
        """
        self._listen, self._advertise, self._shown = listen, advertise, shown
        self._process: asyncio.subprocess.Process | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._told: ShownCertificate | None = None
        self._port = 0
        self._pairs: dict[int, RelayedPair] = {}
        self._next = 0
        self._rest_s, self._rest_until_s = FIRST_REST_S, 0.0
        self._leaving = False

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    async def expect(self, caller: CertifiedIdentity, node_id: str) -> RelayedPair:
        """Tickets for both, for some seconds. Raises Unavailable. A caller has as many lines as
        open calls (rpc/calls/limits.py).
        """
        process = await self._running()
        assert process.stdin is not None
        self._next += 1
        who = _name(caller.cluster, caller.role, caller.name)
        node = _name(caller.cluster, Role.NODE, node_id)
        pair = RelayedPair(self._next, self._address(), node)
        self._pairs[pair.number] = pair
        try:
            self._tell_keys(process)
            self._tell(
                process,
                do="pair",
                pair=pair.number,
                caller=(pair.caller_ticket, who, caller.serial),
                agent=(pair.agent_ticket, node),
            )
            await process.stdin.drain()
        except BaseException as error:
            self.end(pair)
            if isinstance(error, OSError):
                raise Unavailable("the relay has ended") from None
            raise
        return pair

    def end(self, pair: RelayedPair) -> None:
        """The call has ended, and the line with it."""
        if self._pairs.pop(pair.number, None) is not None and self._process is not None:
            self._tell(self._process, do="end", pair=pair.number)
        pair.end("")

    def leave(self) -> None:
        """The master ends: the lines are lost, and both ends go on at the next master."""
        self._leaving = True
        _kill(self._process)
        self._all_over("the master is stopping")

    async def close(self) -> None:
        """Leave, and wait for the process."""
        self.leave()
        if self._hearing is not None:
            await asyncio.gather(self._hearing, return_exceptions=True)

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None:
                await self._start()
            assert self._process is not None
            return self._process

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._leaving or loop.time() < self._rest_until_s:
            raise Unavailable("the relay has ended, and rests")
        process: asyncio.subprocess.Process | None = None
        try:
            async with asyncio.timeout(START_S):
                process = await asyncio.create_subprocess_exec(
                    *COMMAND, self._listen,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                )  # fmt: skip
                self._port = await _port(process)
        except BaseException as error:
            _kill(process)
            if not isinstance(error, OSError | TimeoutError | ValueError | KeyError):
                raise  # the caller has gone
            self._rest(f"it does not start at {self._listen}: {error}")
            raise Unavailable("the relay does not start") from None
        self._process, self._told = process, None
        self._rest_s = FIRST_REST_S
        self._hearing = asyncio.create_task(self._hear(process))
        _log.info("relay_serving", pid=process.pid, port=self._port)

    def _rest(self, why: str) -> None:
        self._rest_until_s = asyncio.get_running_loop().time() + self._rest_s
        self._rest_s = min(2.0 * self._rest_s, LONGEST_REST_S)
        _log.error("relay_failed", cause=why)

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                said = json.loads(line)
                if (pair := self._pairs.pop(said["over"], None)) is not None:
                    pair.end(said["why"])
        except (ValueError, KeyError, TypeError) as error:
            _log.error("relay_failed", cause=f"it says nonsense: {error}")
            _kill(process)
        code = await process.wait()
        self._process = None
        if code and not self._leaving:
            self._rest(f"it ended with code {code}")
        self._all_over("the relay has ended")

    def _all_over(self, why: str) -> None:
        for pair in list(self._pairs.values()):
            pair.end(why)
        self._pairs.clear()

    def _tell_keys(self, process: asyncio.subprocess.Process) -> None:
        shown = self._shown()
        if shown != self._told:
            pem, roots = (shown.key + shown.chain).decode(), shown.roots.decode()
            self._tell(process, do="keys", pem=pem, roots=roots)
            self._told = shown

    def _tell(self, process: asyncio.subprocess.Process, **order: Any) -> None:
        assert process.stdin is not None
        with suppress(OSError, RuntimeError):  # it has ended: `_hear` finds out
            process.stdin.write(json.dumps(order).encode() + b"\n")

    def _address(self) -> str:
        host, _, port = self._advertise.rpartition(":")
        return f"{host}:{int(port or 0) or self._port}"


def _kill(process: asyncio.subprocess.Process | None) -> None:
    if process is not None:
        with suppress(ProcessLookupError):
            process.kill()


async def _port(process: asyncio.subprocess.Process) -> int:
    """Its first words. ValueError where it has ended instead."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise ValueError("it ended at once")
    return int(json.loads(line)["port"])


def _name(cluster: str, role: str, name: str) -> str:
    """The name in a certificate (identity/pki.py)."""
    return f"dlq://{cluster}/{role}/{name}"
