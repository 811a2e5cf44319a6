"""The least helper: one process of Python that answers the calls of `floor_call.c`.

    python -m benchmarks.commands.floor_helper SOCKET [HOME sync|aio]

It answers with the bytes of the call. With an identity in HOME it asks the server of
`benchmarks.live.grpc_floor` first, over a channel that is open: by grpc or by grpc.aio. It reads
no word, becomes like no caller and checks nobody. So no helper in Python can spend less on a call.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from dlq_client.line.connection import SERVER_NAME, open_channel
from dlq_client.line.identity import Identity, load_identity

BYTES = 512
METHOD = "/dlq.v1.JobService/ListJobs"


def main(path: str, home: str = "", kind: str = "") -> None:
    """Serve until it is killed."""
    identity = load_identity(Path(home)) if home else None
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    if kind == "aio":
        assert identity is not None
        asyncio.run(_serve_aio(listening, identity))
    _serve(listening, _asking(identity) if identity else lambda: None)


def _asking(identity: Identity) -> Callable[[], object]:
    ask: Any = open_channel(identity).unary_unary(METHOD)
    return lambda: ask(b"")


def _serve(listening: socket.socket, ask: Callable[[], object]) -> None:
    while True:
        line, _ = listening.accept()
        with line:
            call = line.recv(BYTES, socket.MSG_WAITALL)
            ask()
            line.sendall(call)


async def _serve_aio(listening: socket.socket, identity: Identity) -> None:
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    async with aio.secure_channel(identity.address, credentials, options) as channel:
        ask: Any = channel.unary_unary(METHOD)
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            line, _ = await loop.sock_accept(listening)
            with line:
                call = await loop.sock_recv(line, BYTES)
                await ask(b"")
                await loop.sock_sendall(line, call)


if __name__ == "__main__":
    main(*sys.argv[1:])
