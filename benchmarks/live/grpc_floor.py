"""The floor of a call: a server of this grpcio that does nothing but answer.

    python -m benchmarks.live.grpc_floor DIRECTORY ADDRESS

It serves `SubmitJob` over mutual TLS with the options of the master. Its answer is as long as
that of a master, and is never built anew. Nothing is read, checked or stored. So no master that
serves by grpc.aio can spend less on a call; `benchmarks.live.submits --floor` measures it.

Its `SubmitJobs` keeps what it answers. It reads the request, and a thread writes the specs into
SQLite with the settings of a master. One transaction takes every request that has come meanwhile,
and the answers are built when it is on disk. Nothing is checked, planned or journalled. So no
durable submit of a master in Python can cost less; the same benchmark measures it.

Its `WatchEvents` sends as many messages of an event as the request says; `benchmarks.live.watchers
--floor` measures those.
"""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from grpc import aio

from dlq.v1 import job_service_pb2 as wire
from dlq_client.line.identity import Identity, certified
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_master.rpc.server import API_OPTIONS
from dlq_master.store.sqlite.open import connect, write
from support.ports import free_ports

ANSWER_BYTES = 25  # of a brief answer: the number and the state of a job
EVENT_BYTES = 500  # an event with its job
READY = "ready"


@contextmanager
def floor_server(directory: Path) -> Iterator[tuple[int, Identity]]:
    """Such a server in a process of its own: the id of the process, and the identity of a user."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    authority = Authority.create("floor", time.time())
    master, user = new_key_and_csr("master"), new_key_and_csr("user")
    (directory / "ca").write_bytes(authority.certificate_pem())
    (directory / "key").write_bytes(master.key)
    (directory / "certificate").write_bytes(authority.sign_master(master.request, time.time()))
    certificate = authority.sign_user(user.request, "user", Role.USER, time.time())
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, str(directory), address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().strip() == READY
        ca = authority.certificate_pem()
        yield server.pid, certified(user.key, certificate, ca, address)
    finally:
        server.terminate()
        server.wait(timeout=30)


async def _serve(directory: Path, address: str) -> None:
    ca, key, certificate = (
        (directory / name).read_bytes() for name in ("ca", "key", "certificate")
    )
    server = aio.server(options=API_OPTIONS)
    credentials = grpc.ssl_server_credentials([(key, certificate + ca)], ca, True)
    server.add_secure_port(address, credentials)
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(_answer) for name in ("SubmitJob", "ListJobs")
    }
    handlers["WatchEvents"] = grpc.unary_stream_rpc_method_handler(_messages)
    handlers["SubmitJobs"] = grpc.unary_unary_rpc_method_handler(
        Keeper(directory / "floor.db").submit,
        request_deserializer=wire.SubmitJobsRequest.FromString,
        response_serializer=wire.SubmitJobsResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("dlq.v1.JobService", handlers)]
    )
    await server.start()
    os.write(1, f"{READY}\n".encode())
    await server.wait_for_termination()


class _Kept(NamedTuple):
    """The rows of one request, and its caller's future."""

    rows: Sequence[tuple[int, bytes]]
    loop: asyncio.AbstractEventLoop
    told: asyncio.Future[None]


class Keeper:
    """Specs in a table. Its thread puts every request that has come into one transaction."""

    def __init__(self, path: Path) -> None:
        self._db = connect(path, mode="rwc")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("CREATE TABLE job_specs (job_id INTEGER PRIMARY KEY, spec BLOB)")
        self._last = 0
        self._fresh: queue.SimpleQueue[_Kept] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    async def submit(
        self, request: wire.SubmitJobsRequest, _context: Any
    ) -> wire.SubmitJobsResponse:
        """The ids of these specs, which are on disk."""
        ids = range(self._last + 1, self._last + 1 + len(request.specs))
        self._last = ids[-1]
        specs = [spec.SerializeToString() for spec in request.specs]
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        self._fresh.put(_Kept([*zip(ids, specs, strict=True)], loop, told))
        await told
        return wire.SubmitJobsResponse(jobs=[wire.SubmittedJob(job_id=str(each)) for each in ids])

    def _run(self) -> None:
        while True:
            taken = [self._fresh.get()]
            while not self._fresh.empty():
                taken.append(self._fresh.get())
            with write(self._db):
                for kept in taken:
                    self._db.executemany("INSERT INTO job_specs VALUES (?, ?)", kept.rows)
            taken[0].loop.call_soon_threadsafe(_tell, taken)


def _tell(taken: Sequence[_Kept]) -> None:
    for kept in taken:
        kept.told.set_result(None)


async def _answer(_request: bytes, _context: Any) -> bytes:
    return _ANSWER


async def _messages(request: bytes, _context: Any) -> AsyncIterator[bytes]:
    for _ in range(int(request)):
        yield _EVENT


_EVENT = bytes(EVENT_BYTES)
_ANSWER = bytes([0x0A, ANSWER_BYTES - 2, 0x0A, ANSWER_BYTES - 4, *b"1" * (ANSWER_BYTES - 4)])


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
