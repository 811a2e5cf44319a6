"""The GPU map: the lease and the use of each GPU, in few bytes.

A page of thousands of GPUs is looked at by many people, again and again. So a node is a few packed
lists here, and a lease is told once, however many GPUs it has.
"""

from __future__ import annotations

from bisect import bisect_right

from dlq.v1 import lease_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq_common.text.wire import to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import AttemptKey
from dlq_master.model.lease import hold_until_s
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import GPU_BITS, indices
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.paging import page_size_of
from dlq_master.rpc.calls.reads import ENCODED
from dlq_master.rpc.jobs.visible import HIDDEN, names_others
from dlq_master.rpc.views.convert import ATTEMPT_STATES, LEASE_KINDS, NODE_STATES, contact_of

NOBODY, UNKNOWN = -1, -1


async def get_gpu_map(call: Call, request: wire.GetGpuMapRequest) -> wire.GetGpuMapResponse:
    read = call.read
    most = page_size_of(request.page_size)
    there = read.nodes()
    start = bisect_right(there, request.page_token, key=lambda node: str(node.node_id))
    page = there[start : start + most]
    leases, breathe = _Leases(read, call.caller), call.breathe()
    response = wire.GetGpuMapResponse(
        next_page_token=page[-1].node_id if start + most < len(there) else "",
        master_time=to_timestamp(call.now_s),
    )
    for node in page:
        known = len(leases.told)
        response.nodes.append(_node(node, read, leases))
        await breathe(ENCODED * (1 + len(leases.told) - known) // 3)
    response.leases.extend(leases.told)
    return response


class _Leases:
    """The leases of one answer, each with its place."""

    def __init__(self, read: Published, caller: Caller) -> None:
        self.told: list[wire.GpuMapLease] = []
        self._read, self._caller = read, caller
        self._places: dict[AttemptKey, int] = {}

    def place(self, key: AttemptKey) -> int:
        """The place of this attempt's lease in the answer."""
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = len(self.told)
            self.told.append(_lease(key, self._read, self._caller))
        return found


def _node(node: Node, read: Published, leases: _Leases) -> wire.GpuMapNode:
    holders, figures = read.holders(node.node_id), read.figures(node.node_id)
    types = [gpu.gpu_type for gpu in node.gpus]
    uses = (figures.get(gpu.index) for gpu in node.gpus)
    keys = (holders.get(gpu.index) for gpu in node.gpus)
    return wire.GpuMapNode(
        node_id=node.node_id,
        state=NODE_STATES[node.state],
        flags=sorted(node.flags),
        pool=node.pool.value,
        open=node.open,
        gpu_types=types[:1] if len(set(types)) == 1 else types,
        gpu_indexes=[gpu.index for gpu in node.gpus],
        lease_places=[NOBODY if key is None else leases.place(key) for key in keys],
        utilization_percents=[
            UNKNOWN if use is None or use.utilization_percent is None else use.utilization_percent
            for use in uses
        ],
        withheld_gpu_indexes=indices(node.withheld),
        agent_version=node.agent_version,
    )


def _lease(key: AttemptKey, read: Published, caller: Caller) -> wire.GpuMapLease:
    """The lease of a living attempt, as far as the caller may see it, to the second."""
    attempt, job = read.attempt(key), read.job(key.job_id)
    if attempt is None or job is None:
        return wire.GpuMapLease(job_id=str(key.job_id))
    seen, lease = caller.may_see(job), attempt.lease
    if not seen and read.others_shown == HIDDEN:
        return wire.GpuMapLease(job_id=str(key.job_id))
    told = wire.GpuMapLease(
        job_id=str(key.job_id),
        user=job.user if seen or names_others(read, caller) else "",
        team=job.team if seen else "",
        kind=LEASE_KINDS[lease.kind] if seen else lease_pb2.LEASE_KIND_UNSPECIFIED,
        attempt_state=ATTEMPT_STATES[attempt.state],
        leaving=attempt.stop_cause is not None,
        gpu_count=sum((slot.mask & GPU_BITS).bit_count() for slot in lease.allocation.slots),
    )
    told.assign_time.seconds = int(attempt.assigned_time_s)
    told.term_end_time.seconds = int(lease.term_end_s)
    contact_s = contact_of(attempt, read)
    if contact_s is not None:
        told.hold_until_time.seconds = int(hold_until_s(contact_s, lease.hold_s))
    return told
