"""Runs the server for all users, until SIGTERM.

A restart ends all sessions of browsers, and no job notices. While the master is away, pages say so
and come back by themselves.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from dlq_client.service import ServiceHome
from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.daemon.pinned import pin
from dlq_common.daemon.systemd import Service, passed_sockets
from dlq_common.errors import ConfigError
from dlq_common.ids import RandomIds
from dlq_web.accepting import MOST_CONNECTIONS, BoundedListener
from dlq_web.config import WebConfig
from dlq_web.line.service import ServiceLine, service_identity
from dlq_web.listening import OpenProtocol, Tls, listening_socket
from dlq_web.orderly import OrderlyServer
from dlq_web.shared import SharedServer, Site

BEAT_S = 5.0


async def run(config: WebConfig, clock: Clock) -> None:
    """Serve with this configuration. Raises ConfigError before anything is served."""
    pin()
    home = ServiceHome(
        config.service.state_dir / "identity", config.service.login_socket, "dlq-web"
    )
    identity = await asyncio.to_thread(service_identity, home, clock)
    async with AsyncExitStack() as leaving:
        leaving.enter_context(claimed(config.service.state_dir))
        line = ServiceLine(identity, home, clock)
        leaving.push_async_callback(line.close)
        tls = Tls(config.listen, identity.ca) if config.listen.certificate else None
        if tls is not None:
            trusted = tls
            line.renewed = lambda fresh: trusted.trust(fresh.ca)
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
        server = OrderlyServer(
            shared.app(), OpenProtocol, shared.sessions, most=MOST_CONNECTIONS,
            tls=tls.context if tls is not None else None,
        )  # fmt: skip
        tasks = [
            asyncio.create_task(line.keep_renewed()),
            asyncio.create_task(shared.keep_swept()),
            asyncio.create_task(_keep_alive(service)),
            *([asyncio.create_task(tls.keep_fresh())] if tls is not None else []),
            *([asyncio.create_task(shared.rechecks.keep())] if shared.rechecks is not None else []),
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


async def _keep_alive(service: Service) -> NoReturn:
    while True:
        service.alive()
        await asyncio.sleep(service.patience_s(BEAT_S))
