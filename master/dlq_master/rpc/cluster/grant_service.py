"""Grants between organisations: made, revoked and listed; and the documents that they exchange.

A row of the giving cluster is the truth. Its signed document is a proof for the other cluster. So
is a signed statement of the guests' use: a cluster that keeps statements knows what it owes without
asking.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from cryptography import x509

from dlq.v1 import admin_service_pb2 as wire
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.identity.pki import ca_cluster, fingerprint
from dlq_common.identity.signed import GRANT, STATEMENT, claimed, signed, verified
from dlq_common.text.names import GUEST_MARK, check_organisation, check_word, shown
from dlq_common.text.wire import from_duration, to_timestamp
from dlq_master.control.people.grants import held_of, period_of
from dlq_master.control.stimuli import KeepGrant, MakeGrant, RevokeGrant, User
from dlq_master.model.usage.accounting import DAY_S
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.people.grant_books import used_gpu_s
from dlq_master.rpc.people.host_accounts import HostAccount, named_account
from dlq_master.rpc.specs.intake import user_name_of, words_of
from dlq_master.rpc.specs.node_choice import passing
from dlq_master.store.tables.tenants import GivenGrant, GrantLimits, GuestAccount, HeldGrant

T = TypeVar("T")
MOST_ACCOUNTS: Final = 1_000
MOST_COUNT: Final = 1_000_000
LONGEST_S: Final = 5 * 366 * DAY_S
_LARGEST_CA_BYTES: Final = 32 * 1024


async def make_grant(call: Call, request: wire.MakeGrantRequest) -> wire.MakeGrantResponse:
    organisation = passing(check_organisation, request.organisation, "organisation")
    team = request.team or organisation
    lifetime_s = from_duration(request.lifetime_duration)
    if not 60.0 <= lifetime_s <= LONGEST_S:
        raise InvalidRequest("a grant lasts from a minute to five years", field="lifetime_duration")
    roots = _roots(request.ca_certificates)
    if call.parts.authority.pins(fingerprint(roots.encode())):
        raise InvalidRequest("this is the CA of this cluster itself", field="ca_certificates")
    grant = await call.ask(
        MakeGrant(
            **call.signed(request),
            new_serial=secrets.token_hex(8),
            organisation=organisation,
            ca=roots,
            team=passing(check_word, team, "team", "team"),
            accounts=await _accounts(request.accounts),
            limits=_limits(request.limits, call),
            lifetime_s=lifetime_s,
            replace=request.replace,
        )
    )
    call.parts.open_calls.look()  # guests of a grant that was replaced enter anew
    return wire.MakeGrantResponse(grant=await _given(call, grant))


async def revoke_grant(call: Call, request: wire.RevokeGrantRequest) -> wire.RevokeGrantResponse:
    """Revoke a grant. Open streams of its guests end before the answer."""
    done = await call.ask(
        RevokeGrant(
            **call.signed(request),
            serial=words_of(request.serial, "serial"),
            reason=words_of(request.reason, "reason"),
        )
    )
    cut = call.parts.open_calls.look()
    grant = done.grant
    told = await _given(call, grant) if isinstance(grant, GivenGrant) else _held(grant)
    return wire.RevokeGrantResponse(grant=told, cut_count=cut, cancelled_count=done.cancelled)


async def list_grants(call: Call, request: wire.ListGrantsRequest) -> wire.ListGrantsResponse:
    given = sorted(call.read.grants.values(), key=lambda one: (one.made_s, one.serial))
    held = sorted(call.read.held_grants.values(), key=lambda one: (one.made_s, one.serial))
    told = [await _given(call, one) for one in given]
    return wire.ListGrantsResponse(grants=[*told, *map(_held, held)])


async def sign_document(call: Call, request: wire.SignDocumentRequest) -> wire.SignDocumentResponse:
    grant = call.read.grants.get(request.serial)
    if grant is None:
        raise NotFound(f"there is no grant {shown(request.serial)}", kind="grant")
    now_s, sign = call.now_s, call.parts.authority
    body: dict[str, Any] = {"grant": grant.serial, "to": fingerprint(grant.ca.encode())}
    if request.kind == GRANT:
        body |= {
            "cluster": sign.cluster,
            "ca": sign.certificate_pem().decode(),
            "join_address": call.parts.join_address,
            "organisation": grant.organisation,
            "team": grant.team,
            "limits": grant.limits._asdict(),
            "granted_s": grant.made_s,
            "until_s": grant.until_s,
        }
    elif request.kind == STATEMENT:
        used = await used_gpu_s(call.read, grant.team, grant.since_day, now_s)
        body |= {
            "from_day": grant.since_day,
            "gpu_s": sum(used.values()),
            "users": {name.partition(GUEST_MARK)[0]: gpu_s for name, gpu_s in used.items()},
        }
    else:
        raise InvalidRequest(f"{shown(request.kind)} is no grant or statement", field="kind")
    return wire.SignDocumentResponse(document=signed(sign, request.kind, body, now_s))


async def take_document(call: Call, request: wire.TakeDocumentRequest) -> wire.TakeDocumentResponse:
    """Keep a document once its signature is verified.

    A grant names the roots that verify it: the admin vouches for its origin.
    """
    kind, _ = claimed(request.document)
    take = {GRANT: _grant_of, STATEMENT: _stated}.get(kind)
    if take is None:
        raise InvalidRequest(f"this document is a {kind}", field="document")
    try:
        held = take(call, request)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"this {kind} lacks something: {error}", field="document") from None
    kept = await call.ask(KeepGrant(**call.signed(request), held=held))
    return wire.TakeDocumentResponse(grant=_held(kept))


# --- helpers, in order of use ---------------------------------------------------------------------


def _roots(pem: bytes) -> str:
    """The roots of an organisation, as PEM. InvalidRequest: they are not those of a
    cluster's CA.
    """
    try:
        if len(pem) > _LARGEST_CA_BYTES:
            raise ValueError("it is too large")
        roots = x509.load_pem_x509_certificates(pem)
        if len({ca_cluster(root) for root in roots}) != 1:
            raise ValueError("it is of several clusters")
        return pem.decode("ascii")
    except ValueError as error:
        raise InvalidRequest(
            f"this is no CA of a dlq cluster: {error}",
            field="ca_certificates",
            hint="ca.crt of an identity directory there has it",
        ) from None


async def _accounts(names: Sequence[str]) -> tuple[GuestAccount, ...]:
    if not 0 < len(names) <= MOST_ACCOUNTS:
        raise InvalidRequest(
            f"a grant names 1 to {MOST_ACCOUNTS} accounts, one for each guest", field="accounts"
        )

    def found() -> list[HostAccount]:
        return [named_account(name) for name in dict.fromkeys(names)]

    accounts = await asyncio.to_thread(found)
    return tuple(GuestAccount(one.name, one.uid, one.gid, one.groups) for one in accounts)


def _limits(asked: wire.GrantLimits, call: Call) -> GrantLimits:
    has = asked.HasField
    hours = asked.gpu_hours if has("gpu_hours") else None
    if hours is not None and not 0 < hours < 1e9:
        raise InvalidRequest("GPU-hours are above 0", field="limits.gpu_hours")
    if not 1 <= asked.gpu_count <= MOST_COUNT:
        raise InvalidRequest("a grant is for 1 GPU or more", field="limits.gpu_count")
    if max(asked.quota_gpu_count, asked.guaranteed_gpu_count) > asked.gpu_count:
        raise InvalidRequest("no part of the GPUs is more than all of them", field="limits")
    if asked.period_days > 3_660:
        raise InvalidRequest("a period has 3660 days at most", field="limits.period_days")
    default = next(one.name for one in call.read.queues() if one.is_default)
    return GrantLimits(
        gpus=asked.gpu_count,
        queues=tuple(dict.fromkeys(asked.queues)) or (default,),
        gpu_hours=hours,
        period_days=asked.period_days or 30,
        running_jobs=asked.running_job_count if has("running_job_count") else None,
        guaranteed=asked.guaranteed_gpu_count,
        quota=asked.quota_gpu_count,
    )


async def _given(call: Call, grant: GivenGrant) -> wire.Grant:
    now_s = call.now_s
    begin, end = period_of(grant, now_s)
    used = await used_gpu_s(call.read, grant.team, grant.since_day, now_s)
    lately = await used_gpu_s(call.read, grant.team, begin, now_s, last_day=end - 1)
    ending = f"{GUEST_MARK}{grant.organisation}"
    return wire.Grant(
        serial=grant.serial,
        organisation=grant.organisation,
        cluster_name=_cluster(grant.ca),
        ca_fingerprint=fingerprint(grant.ca.encode()),
        team=grant.team,
        accounts=[one.name for one in grant.accounts],
        limits=_limits_message(grant.limits),
        create_time=to_timestamp(grant.made_s),
        expire_time=to_timestamp(grant.until_s),
        state=grant.state_at(now_s).value,
        used_gpu_seconds=sum(used.values()),
        period_gpu_seconds=sum(lately.values()),
        account_time=to_timestamp(now_s),
        guests=_guests(user for user in call.read.users() if user.name.endswith(ending)),
        reason=grant.reason,
    )


def _guests(users: Iterator[User]) -> Iterator[wire.Guest]:
    for user in users:
        yield wire.Guest(name=user.name, account=user.account)


def _held(held: HeldGrant) -> wire.Grant:
    return wire.Grant(
        serial=held.serial,
        organisation=held.organisation,
        held=True,
        cluster_name=_cluster(held.ca),
        ca_fingerprint=fingerprint(held.ca.encode()),
        team=held.team,
        limits=_limits_message(held.limits),
        create_time=to_timestamp(held.made_s),
        expire_time=to_timestamp(held.until_s),
        used_gpu_seconds=held.owed_gpu_s,
        account_time=to_timestamp(held.owed_until_s),
        users=held.users,
    )


def _cluster(roots: str) -> str:
    return ca_cluster(x509.load_pem_x509_certificate(roots.encode()))


def _limits_message(limits: GrantLimits) -> wire.GrantLimits:
    return wire.GrantLimits(
        gpu_count=limits.gpus,
        gpu_hours=limits.gpu_hours,
        period_days=limits.period_days,
        queues=limits.queues,
        running_job_count=limits.running_jobs,
        guaranteed_gpu_count=limits.guaranteed,
        quota_gpu_count=limits.quota,
    )


def _grant_of(call: Call, request: wire.TakeDocumentRequest) -> HeldGrant:
    """The grant in a document. InvalidRequest: it is for another organisation."""
    _, told = claimed(request.document, GRANT)
    body = verified(request.document, GRANT, _roots(str(told["ca"]).encode()))
    if not call.parts.authority.pins(str(body["to"])):
        raise InvalidRequest("this grant is for another organisation", field="document")
    limits = dict(body["limits"])
    name = request.organisation or str(body["cluster"])
    return HeldGrant(
        serial=passing(check_word, str(body["grant"]), "document", "grant"),
        organisation=passing(check_organisation, name, "organisation"),
        ca=str(body["ca"]),
        join_address=words_of(str(body["join_address"]), "document"),
        team=passing(check_word, str(body["team"]), "document", "team"),
        limits=GrantLimits(
            gpus=int(limits["gpus"]),
            queues=tuple(
                passing(check_word, str(one), "document", "queue") for one in limits["queues"]
            ),
            gpu_hours=None if limits["gpu_hours"] is None else float(limits["gpu_hours"]),
            period_days=int(limits["period_days"]),
            running_jobs=None if limits["running_jobs"] is None else int(limits["running_jobs"]),
            guaranteed=int(limits["guaranteed"]),
            quota=int(limits["quota"]),
        ),
        made_s=float(body["granted_s"]),
        until_s=float(body["until_s"]),
        users=tuple(sorted(user_name_of(user, "users") for user in request.users)),
    )


def _stated(call: Call, request: wire.TakeDocumentRequest) -> HeldGrant:
    """The grant, with the figures of a statement. NotFound: there is no such grant."""
    _, told = claimed(request.document, STATEMENT)
    held = held_of(call.read.held_grants.values(), str(told["grant"]))
    body = verified(request.document, STATEMENT, held.ca)
    if not call.parts.authority.pins(str(body["to"])):
        raise InvalidRequest("this statement is for another organisation", field="document")
    return held._replace(
        owed_gpu_s=float(body["gpu_s"]),
        owed_until_s=float(body["made_s"]),
        statement=request.document,
    )
