"""Calls of admins about a change of the cluster's CA: begin it, look at it, finish it.

The files of the state directory are the truth. A change is on disk before it is answered
(`rpc/people/authorities.py`). Several masters share these files by a sealed row of the database
(`rpc/people/shared_authority.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from dlq.v1 import admin_service_pb2 as wire
from dlq_common.errors import IllegalTransition, InternalError
from dlq_common.text.wire import to_timestamp
from dlq_master.control.stimuli import ShareAuthority
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.people.authorities import Authorities, MemberSeen
from dlq_master.rpc.specs.spec import check_request_id

FOLLOWS, FORMER, UNSEEN = "follows", "former", "unseen"
MOST_NAMED = 20


async def rotate_authority(
    call: Call, request: wire.RotateAuthorityRequest
) -> wire.RotateAuthorityResponse:
    """Begin a change. A repeat finds the change of the first request."""
    check_request_id(request.request_id)
    authorities = _authorities(call)
    if not authorities.begun_by(request.request_id):
        made = await asyncio.to_thread(authorities.prepare, call.now_s)
        await _share(call, authorities)  # before it signs: another master goes on with it
        authorities.adopt(made, request.request_id)
    return wire.RotateAuthorityResponse(authority=_facts(call, authorities))


async def get_authority(call: Call, request: wire.GetAuthorityRequest) -> wire.GetAuthorityResponse:
    return wire.GetAuthorityResponse(authority=_facts(call, _authorities(call)))


async def finish_authority(
    call: Call, request: wire.FinishAuthorityRequest
) -> wire.FinishAuthorityResponse:
    """Finish a change.

    It is refused while a node, or a user who has used the former CA, has not renewed. Users who
    have not called at all do not count: they log in when they come.
    """
    check_request_id(request.request_id)
    authorities = _authorities(call)
    if authorities.finished_by(request.request_id):
        await _share(call, authorities)
        return wire.FinishAuthorityResponse(authority=_facts(call, authorities))
    behind = [
        f"{one.kind} {one.name}"
        for one in _members(call, authorities)
        if one.state == FORMER or (one.state == UNSEEN and one.kind == "node")
    ]
    if behind and not request.force:
        more = f" and {len(behind) - MOST_NAMED} more" if len(behind) > MOST_NAMED else ""
        raise IllegalTransition(
            f"the former CA is still used by {', '.join(behind[:MOST_NAMED])}{more}",
            hint="they renew by themselves once they are heard; with --force they must join or "
            "log in anew",
            members=len(behind),
        )
    await asyncio.to_thread(authorities.finish, request.request_id)
    await _share(call, authorities)
    cut = call.parts.open_calls.look()
    return wire.FinishAuthorityResponse(authority=_facts(call, authorities), cut_count=cut)


async def _share(call: Call, authorities: Authorities) -> None:
    """Store the sealed files of the CA in the database, if there are several masters."""
    shared = authorities.shared
    if shared is None or (word := await asyncio.to_thread(shared.news)) is None:
        return
    await call.ask(ShareAuthority(sealed=word))
    await asyncio.to_thread(shared.stored, word)


def _authorities(call: Call) -> Authorities:
    if not isinstance(call.parts.authority, Authorities):
        raise InternalError("this master has no files of a CA")
    return call.parts.authority


def _facts(call: Call, authorities: Authorities) -> wire.AuthorityFacts:
    own, other = authorities.fingerprints()
    return wire.AuthorityFacts(
        fingerprint=own,
        next_fingerprint=other,
        changing=authorities.next is not None,
        expire_time=to_timestamp(authorities.not_after_s),
        members=_members(call, authorities),
    )


def _members(call: Call, authorities: Authorities) -> Iterator[wire.AuthorityMember]:
    """During a change: all nodes, then all users, by name."""
    if authorities.next is None:
        return
    names = [("node", str(node.node_id)) for node in call.read.nodes()]
    names += [("user", user.name) for user in call.read.users()]
    for kind, name in names:
        seen = authorities.seen.get((kind, name), MemberSeen())
        state = FOLLOWS if seen.follows else FORMER if seen.former_s else UNSEEN
        yield wire.AuthorityMember(kind=kind, name=name, state=state)
