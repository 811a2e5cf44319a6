"""A server that leaves in order by a signal: its sessions end, and then everything is tidied up.

uvicorn's own server would raise the signal once more at its end, and the process would be gone
before. A page that is open would hold the end up, so sessions end first.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from dlq_web.door.sessions import WebSessions

LEAVING_S = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class OrderlyServer(uvicorn.Server):
    """Serves an application with one protocol. `most`: connections at a time; None: any number."""

    def __init__(
        self,
        app: Starlette,
        protocol: type[H11Protocol],
        sessions: WebSessions,
        *,
        most: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = uvicorn.Config(
            app, http=protocol, ws="none", lifespan="off", proxy_headers=False, log_config=None,
            log_level="error", access_log=False, server_header=False,
            timeout_graceful_shutdown=LEAVING_S, limit_concurrency=most,
        )  # fmt: skip
        config.load()
        config.ssl = tls
        super().__init__(config)
        self._sessions = sessions

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._sessions.end_all()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
