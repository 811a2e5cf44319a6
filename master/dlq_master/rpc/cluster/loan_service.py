"""Servers of the inference side: lent, planned to be taken back, taken back."""

from __future__ import annotations

from collections.abc import Iterable

from dlq.v1 import loan_service_pb2 as wire
from dlq.v1.loan_service_pb2_grpc import LoanServiceServicer
from dlq_common.errors import InvalidRequest
from dlq_common.text.units import DAY
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.control.loans.reclaim_asking import ask_back
from dlq_master.control.loans.state import Followed, SwitchedOff
from dlq_master.control.loop.ports import Control, ReadModel
from dlq_master.control.stimuli import loans as stimuli
from dlq_master.control.stimuli.loans import Hit, Reclaimed
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node, NodeFlag, NodePool
from dlq_master.rpc.calls.auth import caller_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.specs.intake import node_id_of, words_of
from dlq_master.rpc.specs.spec import check_request_id, check_span

MOST_SERVERS = 4096
SHORTEST_WITHIN_S = 1.0
LONGEST_WITHIN_S = 7.0 * DAY
# The first that is set says where a server stands.
_STATES = {
    NodeFlag.RECLAIMED: "reclaimed",
    NodeFlag.LOANED: "lent",
    NodeFlag.LENDING: "lending",
}


class LoanService(LoanServiceServicer):
    """dlq.v1.LoanService. The door has looked at the role; here at what is asked."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def ListLoans(
        self, request: wire.ListLoansRequest, context: Context
    ) -> wire.ListLoansResponse:
        read = self._control.published
        servers = [node for node in read.nodes() if node.pool is NodePool.INFERENCE]
        answer = wire.ListLoansResponse(servers=[server_message(node, read) for node in servers])
        followed = read.followed_load()
        if followed is not None:
            answer.controller.CopyFrom(_controller_message(followed, read.loans_off()))
        return answer

    async def LendServers(
        self, request: wire.LendServersRequest, context: Context
    ) -> wire.LendServersResponse:
        node_ids, count = _which(request.node_ids, request.count)
        lent = await self._control.ask(
            stimuli.LendServers(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                node_ids=node_ids,
                count=count,
            )
        )
        return wire.LendServersResponse(servers=self._servers(lent))

    async def PlanReclaim(
        self, request: wire.PlanReclaimRequest, context: Context
    ) -> wire.PlanReclaimResponse:
        node_ids, count = _which(request.node_ids, request.count)
        ask = stimuli.ReclaimServers(
            caller=caller_of(context),
            request_id="",
            node_ids=node_ids,
            count=count,
            within_s=_within_s(request),
            force=_force(request),
            plan_only=True,
        )
        return wire.PlanReclaimResponse(plan=plan_message(await ask_back(self._control, ask)))

    async def ReclaimServers(
        self, request: wire.ReclaimServersRequest, context: Context
    ) -> wire.ReclaimServersResponse:
        token = words_of(request.token, "token")
        node_ids: tuple[NodeId, ...] = ()
        count = 0
        if not token or request.node_ids or request.count:
            node_ids, count = _which(request.node_ids, request.count)
        elif request.HasField("within_duration") or request.force:
            raise InvalidRequest("beside a token say all that was asked, or nothing", field="token")
        ask = stimuli.ReclaimServers(
            caller=caller_of(context),
            request_id=check_request_id(request.request_id),
            node_ids=node_ids,
            count=count,
            within_s=_within_s(request),
            force=_force(request),
            token=token,
        )
        done = await ask_back(self._control, ask)
        return wire.ReclaimServersResponse(
            plan=plan_message(done), servers=self._servers(done.node_ids)
        )

    async def SetLoanController(
        self, request: wire.SetLoanControllerRequest, context: Context
    ) -> wire.SetLoanControllerResponse:
        await self._control.ask(
            stimuli.SwitchLoans(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                on=request.on,
            )
        )
        read = self._control.published
        followed = read.followed_load() or Followed("")
        return wire.SetLoanControllerResponse(
            controller=_controller_message(followed, read.loans_off())
        )

    def _servers(self, node_ids: Iterable[NodeId]) -> list[wire.LoanServer]:
        read = self._control.published
        nodes = (read.node(node_id) for node_id in node_ids)
        return [server_message(node, read) for node in nodes if node is not None]


def server_message(node: Node, read: ReadModel) -> wire.LoanServer:
    """A server as the inference side sees it."""
    flag = next((flag for flag in _STATES if flag in node.flags), None)
    message = wire.LoanServer(
        node_id=node.node_id,
        state="away" if flag is None else _STATES[flag],
        gpu_count=len(node.gpus),
        attempts=[str(key) for key in read.attempts_on(node.node_id)],
        detail=read.server_words(node.node_id),
    )
    note = None if flag is None else node.note(flag)
    if note is not None:
        message.actor = note.by
        message.since_time.CopyFrom(to_timestamp(note.since_s))
    return message


def _controller_message(followed: Followed, off: SwitchedOff | None) -> wire.LoanController:
    message = wire.LoanController(
        source=followed.source, lent_count=followed.lent, fault=followed.fault
    )
    if followed.busy is not None:
        message.busy_share = followed.busy
    if followed.at_s is not None:
        message.load_time.CopyFrom(to_timestamp(followed.at_s))
    if off is not None:
        message.off_by = off.by
        message.off_time.CopyFrom(to_timestamp(off.at_s))
    return message


def plan_message(plan: Reclaimed) -> wire.ReclaimPlan:
    """The effects of a reclaim."""
    return wire.ReclaimPlan(
        token=plan.token,
        node_ids=plan.node_ids,
        jobs=[_job_message(hit) for hit in plan.hits],
        promised_duration=to_duration(plan.promised_s),
        proven=plan.proven,
        too_long=plan.too_long,
    )


def _job_message(hit: Hit) -> wire.ReclaimedJob:
    message = wire.ReclaimedJob(
        job_id=str(hit.job_id),
        user=hit.user,
        name=hit.name,
        action=hit.action,
        gpu_count=hit.gpus,
        kept_gpu_count=hit.kept_gpus,
        grace_duration=to_duration(hit.grace_s),
        lost_duration=to_duration(hit.lost_s),
        killed=hit.killed,
    )
    if hit.deadline_s is not None:
        message.deadline_time.CopyFrom(to_timestamp(hit.deadline_s))
    return message


def _which(names: Iterable[str], count: int) -> tuple[tuple[NodeId, ...], int]:
    node_ids = tuple(node_id_of(name) for name in names)
    if bool(node_ids) is bool(count) or count < 0:
        raise InvalidRequest("name servers, or say how many", field="node_ids")
    if max(len(node_ids), count) > MOST_SERVERS:
        raise InvalidRequest(f"more than {MOST_SERVERS} servers", field="count")
    return node_ids, count


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
