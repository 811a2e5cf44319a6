"""The identity of a web server that serves everybody: a service with the role `web`.

It is kept and renewed in time. Where the master was away until it had ended, the login broker gives
another one.
"""

from __future__ import annotations

import asyncio

import grpc
from google.protobuf.empty_pb2 import Empty

from dlq.v1 import identity_service_pb2 as wire
from dlq_client.line.identity import Identity
from dlq_client.service import ServiceHome
from dlq_common.clock import Clock
from dlq_common.errors import ConfigError, DlqError, Unauthenticated
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

    def __init__(self, identity: Identity, home: ServiceHome, clock: Clock) -> None:
        super().__init__(identity, clock)
        self._home = home
        self._refused = False

    async def probe(self, timeout_s: float) -> None:
        """Raises a DlqError while the master does not serve."""
        await self.call(_CHECK, Empty(), timeout_s)

    async def use_link(self, name: str, secret: str) -> ActsFor:
        """The user of a one-time link, which is used up by it. NotFound: there is none."""
        request = wire.UseSignInLinkRequest(name=name, secret=secret)
        told = await self.call(_USE_LINK, request)
        return ActsFor(told.name, told.role, from_timestamp(told.create_time))

    async def _wanted(self) -> bool:
        """Also once the certificate was revoked: the login broker gives another one."""
        try:
            return await super()._wanted()
        except grpc.RpcError as error:
            self._refused = isinstance(self._told(error), Unauthenticated)
            return self._refused

    async def _renewed(self) -> Identity:
        refused, self._refused = self._refused, False
        if refused or not self.identity.is_valid(self._clock.now_s()):
            return await asyncio.to_thread(self._home.log_in)
        fresh = await super()._renewed()
        await asyncio.to_thread(self._home.keep, fresh)
        return fresh


def service_identity(home: ServiceHome, clock: Clock) -> Identity:
    """The service's identity: as it is kept, or from the login broker of this host. ConfigError
    when there is none, or when it is a person's.
    """
    try:
        found = home.identity(clock.now_s())
    except ConfigError:
        raise
    except DlqError as error:
        raise ConfigError(
            f"the service has no identity in {home.directory}: {error.what}",
            hint=f"an admin says whose account it is: dlq admin user set {home.name} --role web "
            "--uid UID --gid GID",
        ) from None
    if found.role != Role.WEB:
        raise ConfigError(
            f"{found.user} has the role {found.role}, and a web server for all needs the role web",
            hint=f"dlq admin user set {found.user} --role web; then remove {home.directory}",
        )
    return found
