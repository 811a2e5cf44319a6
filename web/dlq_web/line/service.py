"""The identity of a web server that serves everybody: a service with the role `web`.

It is kept in a directory of the service, renewed in time, and written there anew. On the master's
host the login broker gives the first one, since it knows the service's account.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from google.protobuf.empty_pb2 import Empty

from dlq.v1 import identity_service_pb2 as wire
from dlq_client.line.identity import Identity, load_identity, save_identity
from dlq_client.login import login
from dlq_common.clock import Clock
from dlq_common.errors import ConfigError, DlqError
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role
from dlq_common.text.wire import from_timestamp
from dlq_web.line.calls import MasterLine
from dlq_web.line.methods import PublicMethod

_CHECK = PublicMethod("/grpc.health.v1.Health/Check", Empty, Empty, False)
_USE_LINK = PublicMethod(
    "/dlq.v1.IdentityService/UseSignInLink",
    wire.UseSignInLinkRequest,
    wire.UseSignInLinkResponse,
    False,
)


class ServiceLine(MasterLine):
    """The master, asked as the service itself: for its health, and for the user of a link."""

    def __init__(self, identity: Identity, home: Path, clock: Clock) -> None:
        super().__init__(identity, clock)
        self._home = home

    async def probe(self, timeout_s: float) -> None:
        """Raises a DlqError while the master does not serve."""
        await self.call(_CHECK, Empty(), timeout_s)

    async def use_link(self, name: str, secret: str) -> ActsFor:
        """The user of a one-time link, which is used up by it. NotFound: there is none."""
        request = wire.UseSignInLinkRequest(name=name, secret=secret)
        told = await self.call(_USE_LINK, request)
        return ActsFor(told.name, told.role, from_timestamp(told.create_time))

    async def _renewed(self) -> Identity:
        fresh = await super()._renewed()
        await asyncio.to_thread(save_identity, self._home, fresh)
        return fresh


def service_identity(home: Path, login_socket: Path, clock: Clock) -> Identity:
    """The service's identity: as it is kept, or from the login broker of this host. ConfigError
    when there is none, or when it is a person's.
    """
    found = load_identity(home)
    if found is None or not found.is_valid(clock.now_s()):
        try:
            found = login(login_socket, "dlq-web")
        except DlqError as error:
            raise ConfigError(
                f"the service has no identity in {home}: {error.what}",
                hint="an admin says whose account it is: dlq admin user set dlq-web --role web "
                "--uid UID --gid GID",
            ) from None
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        save_identity(home, found)
    if found.role != Role.WEB:
        raise ConfigError(
            f"{found.user} has the role {found.role}, and a web server for all needs the role web",
            hint=f"dlq admin user set {found.user} --role web; then remove {home}",
        )
    return found
