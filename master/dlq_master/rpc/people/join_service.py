"""The join port: a token for a certificate, and nothing else."""

from __future__ import annotations

import hashlib
import hmac

from dlq.v1 import identity_service_pb2 as wire
from dlq.v1.identity_service_pb2_grpc import JoinServiceServicer
from dlq_common.clock import Clock
from dlq_common.errors import InvalidRequest, Unauthenticated
from dlq_common.identity.join_token import parse_join_token
from dlq_common.identity.pki import (
    Authority,
    fingerprint,
    requested_key_fingerprint,
    requested_name,
)
from dlq_master.control.loop.ports import Control
from dlq_master.control.stimuli import UseToken
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.specs.intake import node_id_of


class JoinService(JoinServiceServicer):
    """dlq.v1.JoinService. Nobody who calls here is known: the token is all that counts."""

    def __init__(
        self, control: Control, authority: Authority, clock: Clock, api_address: str
    ) -> None:
        self._control = control
        self._authority = authority
        self._clock = clock
        self._api_address = api_address

    async def Join(self, request: wire.JoinRequest, context: Context) -> wire.JoinResponse:
        try:
            token = parse_join_token(request.token)
        except InvalidRequest as error:
            raise Unauthenticated(error.what) from None
        ours = fingerprint(self._authority.certificate_pem())
        if not hmac.compare_digest(token.ca_fingerprint, ours):
            raise Unauthenticated("the join token is of another cluster")
        wished = node_id_of(requested_name(request.certificate_request), "certificate_request")
        node_id = await self._control.ask(
            UseToken(
                token_id=token.token_id,
                secret_hash=secret_hash(token.secret),
                key_fingerprint=requested_key_fingerprint(request.certificate_request),
                wished_node_id=wished,
            )
        )
        certificate = self._authority.sign_node(
            request.certificate_request, node_id, self._clock.now_s()
        )
        return wire.JoinResponse(
            certificate=certificate,
            ca_certificates=self._authority.certificate_pem(),
            api_address=self._api_address,
            node_id=node_id,
        )


def secret_hash(secret: str) -> str:
    """The stored digest of a token's secret. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()
