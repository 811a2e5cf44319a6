"""Certificates: renewed for holders of one, and issued to nodes with a join token."""

from __future__ import annotations

import hashlib

from dlq.v1 import identity_service_pb2 as wire
from dlq_common.errors import InvalidRequest, PermissionDenied, Unauthenticated
from dlq_common.identity.join_token import parse_join_token
from dlq_common.identity.pki import (
    Role,
    requested_key_fingerprint,
    requested_name,
)
from dlq_master.control.stimuli import UseToken
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import node_id_of
from dlq_master.store.tables.revocations import NODE, USER, signing_s


async def renew_certificate(
    call: Call, request: wire.RenewCertificateRequest
) -> wire.RenewCertificateResponse:
    """A new certificate for the caller's identity; the door has checked that it is still known.

    A certificate that came through a service ends no later than before.
    """
    caller, sign, asked = call.caller, call.parts.authority, request.certificate_request
    if call.identity is not None and call.identity.through:
        raise PermissionDenied(
            f"this certificate came through {call.identity.through}, and is not renewed",
            hint="dlq login --oidc gets another one",
        )
    if caller.role == Role.NODE:
        now_s = signing_s(call.read.revocations, NODE, caller.name, call.now_s)
        certificate = sign.sign_node(asked, caller.name, now_s)
    else:
        now_s = signing_s(call.read.revocations, USER, caller.name, call.now_s)
        certificate = sign.sign_user(asked, caller.name, Role(caller.role), now_s)
    return wire.RenewCertificateResponse(
        certificate=certificate, ca_certificates=sign.certificate_pem()
    )


async def certify_user(call: Call, request: wire.CertifyUserRequest) -> wire.CertifyUserResponse:
    """A certificate for the user for whom a service calls.

    It names the service, ends early, and counts only while the service does (auth.py).
    """
    caller, sign, life_s = call.caller, call.parts.authority, call.parts.web_certificates_s
    service = None if call.identity is None else call.identity.by
    if call.identity is not None and call.identity.groups:
        raise PermissionDenied("a certificate has its user's own role, and none of a group's")
    if not life_s or service is None:
        raise PermissionDenied(
            "the master gives no certificates through a web server",
            user=caller.name,
            hint="an operator may grant it: [identity] web_certificates in master.toml",
        )
    certificate = sign.sign_user_of(
        service.name,
        request.certificate_request,
        caller.name,
        Role(caller.role),
        call.now_s,
        life_s,
    )
    return wire.CertifyUserResponse(
        certificate=certificate,
        ca_certificates=sign.certificate_pem(),
        api_address=call.parts.api_address,
    )


async def check_identity(
    call: Call, request: wire.CheckIdentityRequest
) -> wire.CheckIdentityResponse:
    """Whether the caller must renew now. It changes nothing."""
    assert call.identity is not None
    sign = call.parts.authority
    has_other_roots = sign.trust_digest() not in ("", request.trust_digest)
    return wire.CheckIdentityResponse(
        renewal_wanted=sign.is_former(call.identity) or has_other_roots
    )


async def join(call: Call, request: wire.JoinRequest) -> wire.JoinResponse:
    """The join port: exchange a token for a certificate. Callers have no identity; only the token
    counts.
    """
    sign = call.parts.authority
    try:
        token = parse_join_token(request.token)
    except InvalidRequest as error:
        raise Unauthenticated(error.what) from None
    if not sign.pins(token.ca_fingerprint):
        raise Unauthenticated("the join token is of another cluster")
    wished = node_id_of(requested_name(request.certificate_request), "certificate_request")
    node_id = await call.ask(
        UseToken(
            token_id=token.token_id,
            secret_hash=secret_hash(token.secret),
            key_fingerprint=requested_key_fingerprint(request.certificate_request),
            wished_node_id=wished,
        )
    )
    now_s = signing_s(call.read.revocations, NODE, node_id, call.now_s)
    return wire.JoinResponse(
        certificate=sign.sign_node(request.certificate_request, node_id, now_s),
        ca_certificates=sign.certificate_pem(),
        api_address=call.parts.api_address,
        node_id=node_id,
    )


def secret_hash(secret: str) -> str:
    """The stored digest of a token's secret. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()
