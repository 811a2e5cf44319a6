"""Servers of the inference side: lending them, planning their return, and taking them back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from dlq.v1 import loan_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.units import DAY
from dlq_common.text.wire import filled, to_duration, to_timestamp
from dlq_master.control.loans.reclaims import ask_back
from dlq_master.control.loans.state import Followed
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli.loans import (
    Hit,
    LendServers,
    Reclaimed,
    ReclaimServers,
    SwitchLoans,
)
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node, NodeFlag, NodePool
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import node_id_of, words_of
from dlq_master.rpc.specs.spec import check_span

MOST_SERVERS = 4096
SHORTEST_WITHIN_S = 1.0
LONGEST_WITHIN_S = 7.0 * DAY
# The first that is set says where a server stands.
_STATES = {
    NodeFlag.RECLAIMED: "reclaimed",
    NodeFlag.LOANED: "lent",
    NodeFlag.LENDING: "lending",
}


class ServersAsked(TypedDict):
    """Servers by name, or a number of any servers."""

    node_ids: tuple[NodeId, ...]
    count: int


async def list_loans(call: Call, request: wire.ListLoansRequest) -> wire.ListLoansResponse:
    read = call.read
    followed = read.followed_load()
    return wire.ListLoansResponse(
        servers=[_server(node, read) for node in read.nodes() if node.pool is NodePool.INFERENCE],
        controller=None if followed is None else _controller(followed, read),
    )


async def lend_servers(call: Call, request: wire.LendServersRequest) -> wire.LendServersResponse:
    which = _which(request.node_ids, request.count)
    lent = await call.ask(LendServers(**call.signed(request), **which))
    return wire.LendServersResponse(servers=_servers(lent, call.read))


async def plan_reclaim(call: Call, request: wire.PlanReclaimRequest) -> wire.PlanReclaimResponse:
    ask = ReclaimServers(
        caller=call.caller,
        request_id="",
        **_which(request.node_ids, request.count),
        within_s=_within_s(request),
        force=_force(request),
        plan_only=True,
    )
    return wire.PlanReclaimResponse(plan=_plan(await ask_back(call.parts.control, ask)))


async def reclaim_servers(
    call: Call, request: wire.ReclaimServersRequest
) -> wire.ReclaimServersResponse:
    token = words_of(request.token, "token")
    which: ServersAsked = {"node_ids": (), "count": 0}
    if not token or request.node_ids or request.count:
        which = _which(request.node_ids, request.count)
    elif request.HasField("within_duration") or request.force:
        raise InvalidRequest("beside a token say all that was asked, or nothing", field="token")
    ask = ReclaimServers(
        **call.signed(request),
        **which,
        within_s=_within_s(request),
        force=_force(request),
        token=token,
    )
    done = await ask_back(call.parts.control, ask)
    return wire.ReclaimServersResponse(plan=_plan(done), servers=_servers(done.node_ids, call.read))


async def set_loan_controller(
    call: Call, request: wire.SetLoanControllerRequest
) -> wire.SetLoanControllerResponse:
    await call.ask(SwitchLoans(**call.signed(request), on=request.on))
    followed = call.read.followed_load() or Followed("")
    return wire.SetLoanControllerResponse(controller=_controller(followed, call.read))


# --- answers --------------------------------------------------------------------------------------


def _servers(node_ids: Iterable[NodeId], read: Published) -> list[wire.LoanServer]:
    nodes = (read.node(node_id) for node_id in node_ids)
    return [_server(node, read) for node in nodes if node is not None]


def _server(node: Node, read: Published) -> wire.LoanServer:
    """A server as the inference side sees it."""
    flag = next((flag for flag in _STATES if flag in node.flags), None)
    note = None if flag is None else node.note(flag)
    return wire.LoanServer(
        node_id=node.node_id,
        state="away" if flag is None else _STATES[flag],
        gpu_count=len(node.gpus),
        attempts=map(str, read.attempts_on(node.node_id)),
        detail=read.server_words(node.node_id),
        actor="" if note is None else note.by,
        since_time=None if note is None else to_timestamp(note.since_s),
    )


def _controller(followed: Followed, read: Published) -> wire.LoanController:
    off = read.loans_off()
    return wire.LoanController(
        source=followed.source,
        lent_count=followed.lent,
        fault=followed.fault,
        busy_share=followed.busy,
        load_time=to_timestamp(followed.at_s),
        off_by="" if off is None else off.by,
        off_time=None if off is None else to_timestamp(off.at_s),
    )


def _plan(plan: Reclaimed) -> wire.ReclaimPlan:
    return filled(
        wire.ReclaimPlan,
        plan,
        jobs=map(_hit, plan.hits),
        promised_duration=to_duration(plan.promised_s),
    )


def _hit(hit: Hit) -> wire.ReclaimedJob:
    return filled(
        wire.ReclaimedJob,
        hit,
        job_id=str(hit.job_id),
        gpu_count=hit.gpus,
        kept_gpu_count=hit.kept_gpus,
        grace_duration=to_duration(hit.grace_s),
        lost_duration=to_duration(hit.lost_s),
        deadline_time=to_timestamp(hit.deadline_s),
    )


# --- requests -------------------------------------------------------------------------------------


def _which(names: Iterable[str], count: int) -> ServersAsked:
    node_ids = tuple(node_id_of(name) for name in names)
    if bool(node_ids) is bool(count) or count < 0:
        raise InvalidRequest("name servers, or say how many", field="node_ids")
    if max(len(node_ids), count) > MOST_SERVERS:
        raise InvalidRequest(f"more than {MOST_SERVERS} servers", field="count")
    return {"node_ids": node_ids, "count": count}


def _within_s(request: wire.PlanReclaimRequest | wire.ReclaimServersRequest) -> float | None:
    if not request.HasField("within_duration"):
        return None
    return check_span(
        "within_duration", request.within_duration, SHORTEST_WITHIN_S, LONGEST_WITHIN_S
    )


def _force(request: wire.PlanReclaimRequest | wire.ReclaimServersRequest) -> bool:
    if request.force and not request.HasField("within_duration"):
        raise InvalidRequest("force needs a time: within_duration", field="force")
    return request.force
