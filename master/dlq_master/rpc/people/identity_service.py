"""Renewal: a new key for the identity one has already."""

from __future__ import annotations

from dlq.v1 import identity_service_pb2 as wire
from dlq.v1.identity_service_pb2_grpc import IdentityServiceServicer
from dlq_common.clock import Clock
from dlq_common.identity.pki import Authority, Role
from dlq_master.rpc.calls.auth import identity_of
from dlq_master.rpc.calls.call import Context


class IdentityService(IdentityServiceServicer):
    """dlq.v1.IdentityService. The door has made sure that the caller is still known."""

    def __init__(self, authority: Authority, clock: Clock) -> None:
        self._authority = authority
        self._clock = clock

    async def RenewCertificate(
        self, request: wire.RenewCertificateRequest, context: Context
    ) -> wire.RenewCertificateResponse:
        identity, now_s = identity_of(context), self._clock.now_s()
        sign = self._authority
        asked = request.certificate_request
        if identity.role is Role.NODE:
            certificate = sign.sign_node(asked, identity.name, now_s)
        else:
            certificate = sign.sign_user(asked, identity.name, identity.role, now_s)
        return wire.RenewCertificateResponse(
            certificate=certificate, ca_certificates=sign.certificate_pem()
        )
