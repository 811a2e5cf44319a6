"""Guests: users of one organisation who run jobs at the cluster of another, under a grant.

At their own cluster, `introduce` signs their identity, for one cluster, one key, and some minutes.
At the other cluster, `enter_as_guest` exchanges that for a certificate of a few hours, which names
the grant. From then on a guest is a user with fewer rights. The door checks the grant at each call
and for open streams (`rpc/calls/auth.py`).

The number of each introduction is in both audits. The other master marks it as used in its
database, so a restart there forgets none. A silent master introduces no user and admits no guest.
Existing certificates count until they end.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from dlq.v1 import identity_service_pb2 as wire
from dlq_common.errors import InvalidRequest, PermissionDenied, Unauthenticated
from dlq_common.identity.facts import GUEST_LIFE_S
from dlq_common.identity.pki import (
    Role,
    fingerprint,
    parse_identity,
    requested_key_fingerprint,
)
from dlq_common.identity.signed import INTRODUCTION, claimed, signed, verified
from dlq_common.text.names import check_user_name, shown
from dlq_master.control.people.grants import held_of
from dlq_master.control.stimuli import AdmitGuest, Caller
from dlq_master.rpc.calls.call import Call
from dlq_master.store.tables.revocations import USER, signing_s
from dlq_master.store.tables.tenants import through_word

LIFE_S: Final = 300.0  # of an introduction
# The most by which clocks of two clusters may differ.
SKEW_S: Final = 300.0
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")
_NUMBER: Final = re.compile(r"[0-9a-f]{32}")


async def introduce(call: Call, request: wire.IntroduceRequest) -> wire.IntroduceResponse:
    """Sign the caller's identity for the cluster of a grant that this cluster was given."""
    caller, now_s = call.caller, call.now_s
    held = held_of(call.read.held_grants.values(), request.grant)
    if call.identity is not None and call.identity.through:
        raise PermissionDenied(
            f"this certificate came through {call.identity.through}, and introduces nobody",
            user=caller.name,
            hint="dlq login on the master's host",
        )
    if held.users and caller.name not in held.users:
        raise PermissionDenied(
            f"the grant of {held.organisation} is not for {caller.name}", user=caller.name
        )
    if now_s >= held.until_s + SKEW_S:
        raise PermissionDenied(f"the grant of {held.organisation} has ended", user=caller.name)
    if not _FINGERPRINT.fullmatch(request.key_fingerprint):
        raise InvalidRequest("want the SHA-256 of a public key", field="key_fingerprint")
    number = secrets.token_hex(16)
    body = {
        "to": fingerprint(held.ca.encode()),
        "grant": held.serial,
        "number": number,
        "user": caller.name,
        "person": caller.key,
        "key": request.key_fingerprint,
        "until_s": now_s + LIFE_S,
    }
    return wire.IntroduceResponse(
        introduction=signed(call.parts.authority, INTRODUCTION, body, now_s),
        join_address=held.join_address,
        ca_certificates=held.ca.encode(),
        serial=f"{held.serial}/{number}",
    )


async def enter_as_guest(
    call: Call, request: wire.EnterAsGuestRequest
) -> wire.EnterAsGuestResponse:
    """The join port: exchange an introduction for a guest's certificate. Callers have no identity
    yet.
    """
    sign, now_s = call.parts.authority, call.now_s
    said = _introduction(call, request, now_s)
    user = await call.ask(
        AdmitGuest(
            caller=Caller(through_word(said.grant), Role.GUEST.value),
            request_id=said.number,
            serial=said.grant,
            user=said.user,
            home=said.person,
        )
    )
    grant = call.read.grants[said.grant]
    signed_s = signing_s(call.read.revocations, USER, user.name, now_s)
    certificate = sign.sign_user_of(
        through_word(grant.serial),
        request.certificate_request,
        user.name,
        Role.GUEST,
        signed_s,
        max(1.0, min(GUEST_LIFE_S, grant.until_s - now_s)),
    )
    call.identity = parse_identity(certificate)  # who this was, for the audit
    return wire.EnterAsGuestResponse(
        certificate=certificate,
        ca_certificates=sign.certificate_pem(),
        api_address=call.parts.api_address,
        serial=f"{said.grant}/{said.number}",
    )


# --- helpers, in order of use ---------------------------------------------------------------------


class _Said:
    """The facts of a verified introduction."""

    __slots__ = ("grant", "number", "person", "user")

    def __init__(self, grant: str, number: str, user: str, person: str) -> None:
        self.grant, self.number, self.user, self.person = grant, number, user, person


def _introduction(call: Call, request: wire.EnterAsGuestRequest, now_s: float) -> _Said:
    """The facts of an introduction.

    Unauthenticated: the grant's organisation has not signed it for this cluster, this key, and now.
    """
    _, unproven = claimed(request.introduction, INTRODUCTION)
    serial = str(unproven.get("grant", ""))
    grant = call.read.grants.get(serial)
    if grant is None:
        raise Unauthenticated(f"there is no grant {shown(serial)} here")
    body = verified(request.introduction, INTRODUCTION, grant.ca)
    try:
        made_s, until_s = float(body["made_s"]), float(body["until_s"])
        number, person = str(body["number"]), str(body["person"])
        audience, key = str(body["to"]), str(body["key"])
        user = check_user_name(str(body["user"]))
        if not _NUMBER.fullmatch(number) or not 0 < len(person) <= 128:
            raise ValueError("its number or its person")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"the introduction lacks something: {error}") from None
    if not call.parts.authority.pins(audience):
        raise Unauthenticated("the introduction is for another cluster")
    if not made_s - SKEW_S <= now_s <= min(until_s, made_s + LIFE_S) + SKEW_S:
        raise Unauthenticated(
            "the introduction is too old, or of the future",
            hint="ask for another one; clocks of the two clusters may differ by five minutes",
        )
    if requested_key_fingerprint(request.certificate_request) != key:
        raise Unauthenticated("the introduction is for another key")
    if words := grant.refusal(now_s):
        raise Unauthenticated(words, hint="the operators of the two clusters agree on another one")
    return _Said(serial, number, user, person)
