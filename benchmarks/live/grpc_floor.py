"""The floor of a call: a server of this grpcio that does nothing but answer.

    python -m benchmarks.live.grpc_floor DIRECTORY ADDRESS

It serves `SubmitJob` over mutual TLS with the options of the master. Its answer is as long as
that of a master, and is never built anew. Nothing is read, checked or stored. So no master that
serves by grpc.aio can spend less on a call; `benchmarks.live.submits --floor` measures it. Its
`WatchEvents` sends as many messages of an event as the request says; `benchmarks.live.watchers
--floor` measures those.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from dlq_client.line.identity import Identity, certified
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_master.rpc.server import API_OPTIONS
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
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("dlq.v1.JobService", handlers)]
    )
    await server.start()
    os.write(1, f"{READY}\n".encode())
    await server.wait_for_termination()


async def _answer(_request: bytes, _context: Any) -> bytes:
    return _ANSWER


async def _messages(request: bytes, _context: Any) -> AsyncIterator[bytes]:
    for _ in range(int(request)):
        yield _EVENT


_EVENT = bytes(EVENT_BYTES)
_ANSWER = bytes([0x0A, ANSWER_BYTES - 2, 0x0A, ANSWER_BYTES - 4, *b"1" * (ANSWER_BYTES - 4)])


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
