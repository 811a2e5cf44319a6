"""Runs the server for all users, until SIGTERM.

A restart ends all sessions of browsers, and no job notices. While the master is away, pages say so
and come back by themselves.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import uvicorn
from starlette.applications import Starlette

from dlq_client.service import ServiceHome
from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.daemon.systemd import Service, passed_sockets
from dlq_common.errors import ConfigError
from dlq_common.ids import RandomIds
from dlq_web.accepting import MOST_CONNECTIONS, BoundedListener
from dlq_web.config import WebConfig
from dlq_web.line.service import ServiceLine, service_identity
from dlq_web.listening import OpenProtocol, Tls, listening_socket
from dlq_web.shared import SharedServer, Site

LEAVING_S = 2
BEAT_S = 5.0


async def run(config: WebConfig, clock: Clock) -> None:
    """Serve with this configuration. Raises ConfigError before anything is served."""
    home = ServiceHome(
        config.service.state_dir / "identity", config.service.login_socket, "dlq-web"
    )
    identity = await asyncio.to_thread(service_identity, home, clock)
    async with AsyncExitStack() as leaving:
        leaving.enter_context(claimed(config.service.state_dir))
        line = ServiceLine(identity, home, clock)
        leaving.push_async_callback(line.close)
        tls = Tls(config.listen, identity.ca) if config.listen.certificate else None
        listening = BoundedListener(listening_socket(config.listen, passed_sockets(os.environ)))
        leaving.callback(listening.close)
        behind_proxy = listening.family is socket.AF_UNIX
        site = Site(
            origin=config.page.origin,
            behind_proxy=behind_proxy,
            certificates=tls is not None and config.listen.client_certificates,
            state_dir=config.service.state_dir,
            wall_user=config.wall.user,
        )
        shared = SharedServer(site, line, clock, RandomIds(clock))
        leaving.push_async_callback(shared.close)
        if config.openid.issuer:
            shared.add_openid(config.openid, config.page.origin)
        service = Service.of(os.environ, clock)
        server = OpenServer(shared.app(), tls, shared)
        tasks = [
            asyncio.create_task(line.keep_renewed()),
            asyncio.create_task(shared.keep_swept()),
            asyncio.create_task(_keep_alive(service)),
            *([asyncio.create_task(tls.keep_fresh())] if tls is not None else []),
        ]
        for task in tasks:
            leaving.callback(task.cancel)
        service.ready(f"serving {config.page.origin}")
        get_logger("web").info("web_serving", origin=config.page.origin, as_user=identity.user)
        await server.serve(sockets=[listening])
        service.stopping()


@contextmanager
def claimed(state_dir: Path) -> Iterator[None]:
    """Be the one server of this directory. A second one would bring revoked tokens back. The kernel
    takes the claim back however the process ends. ConfigError: another has it.
    """
    with open(state_dir / "web.lock", "wb", opener=_private) as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another dlq-web uses {state_dir}", hint="service.state_dir names another place"
            ) from None
        yield


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class OpenServer(uvicorn.Server):
    """Leaves in order by a signal, and ends every session first: an open page would hold it up."""

    def __init__(self, app: Starlette, tls: Tls | None, shared: SharedServer) -> None:
        config = uvicorn.Config(
            app, http=OpenProtocol, ws="none", lifespan="off", proxy_headers=False, log_config=None,
            log_level="error", access_log=False, server_header=False,
            timeout_graceful_shutdown=LEAVING_S, limit_concurrency=MOST_CONNECTIONS,
        )  # fmt: skip
        config.load()
        config.ssl = tls.context if tls is not None else None
        super().__init__(config)
        self._shared = shared

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._shared.sessions.end_all()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


async def _keep_alive(service: Service) -> NoReturn:
    while True:
        service.alive()
        await asyncio.sleep(service.patience_s(BEAT_S))
