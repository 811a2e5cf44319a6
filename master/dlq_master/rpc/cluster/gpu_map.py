"""The GPU map: the lease and the use of each GPU, in few bytes.

Many people look at pages of thousands of GPUs, again and again. So a node is a few packed lists,
and a lease is sent once, however many GPUs it has.
"""

from __future__ import annotations

from bisect import bisect_right

from dlq.v1 import lease_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown
from dlq_common.text.wire import to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import hold_until_s
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import GPU_BITS, indices
from dlq_master.rpc.calls.call import Call, page_size_of
from dlq_master.rpc.calls.reads import ENCODED
from dlq_master.rpc.jobs.visible import HIDDEN, names_others
from dlq_master.rpc.views.convert import ATTEMPT_STATES, LEASE_KINDS, NODE_STATES, contact_of
from dlq_master.rpc.views.shared_maps import MapPage

NOBODY, UNKNOWN = -1, -1
LONGEST_TOKEN = 256  # it is the name of a node


async def get_gpu_map(call: Call, request: wire.GetGpuMapRequest) -> wire.GetGpuMapResponse:
    read, caller = call.read, call.caller
    most, token = page_size_of(request.page_size), request.page_token
    if len(token) > LONGEST_TOKEN:  # pages are kept under their tokens
        raise InvalidRequest(f"{shown(token)} is not a page token", field="page_token")
    names = names_others(read, caller)
    key = caller.sees_all, names, read.others_shown, most, token

    async def make() -> MapPage:
        leases = _Leases(read, whole=caller.sees_all, names=names)
        return await _page(call, leases, most, token)

    page = await call.parts.maps.page(key, make)
    return page.response if caller.sees_all else _with_own(page, read, caller)


async def _page(call: Call, leases: _Leases, most: int, token: str) -> MapPage:
    """A page for all callers with these rights."""
    read, breathe = call.read, call.breathe()
    there = read.nodes()
    start = bisect_right(there, token, key=lambda node: str(node.node_id))
    nodes = there[start : start + most]
    response = wire.GetGpuMapResponse(
        next_page_token=nodes[-1].node_id if start + most < len(there) else "",
        master_time=to_timestamp(call.now_s),
    )
    for node in nodes:
        known = len(leases.told)
        response.nodes.append(_node(node, read, leases))
        await breathe(ENCODED * (1 + len(leases.told) - known) // 3)
    response.leases.extend(leases.told)
    return MapPage(response, tuple(leases.places), tuple(leases.users))


def _with_own(page: MapPage, read: Published, caller: Caller) -> wire.GetGpuMapResponse:
    """The page with all facts about the caller's own jobs."""
    own = [place for place, user in enumerate(page.users) if user == caller.name]
    seen = {place: job for place in own if (job := read.job(page.keys[place].job_id)) is not None}
    if not any(caller.may_see(job) for job in seen.values()):
        return page.response
    response = wire.GetGpuMapResponse()
    response.CopyFrom(page.response)
    for place, job in seen.items():
        attempt = read.attempt(page.keys[place])
        if attempt is not None and caller.may_see(job):
            response.leases[place].CopyFrom(_lease(attempt, job, read, user=job.user, whole=True))
    return response


class _Leases:
    """The leases of one answer, each with its place."""

    def __init__(self, read: Published, *, whole: bool, names: bool) -> None:
        """`whole`: with all facts of every job; `names`: with its user."""
        self.told: list[wire.GpuMapLease] = []
        self.users: list[str] = []
        self.places: dict[AttemptKey, int] = {}
        self._read, self._whole, self._names = read, whole, names

    def place(self, key: AttemptKey) -> int:
        """The place of this attempt's lease in the answer."""
        found = self.places.get(key)
        if found is None:
            found = self.places[key] = len(self.told)
            self.told.append(self._lease(key))
        return found

    def _lease(self, key: AttemptKey) -> wire.GpuMapLease:
        read = self._read
        attempt, job = read.attempt(key), read.job(key.job_id)
        self.users.append("" if job is None else job.user)
        if attempt is None or job is None or (read.others_shown == HIDDEN and not self._whole):
            return wire.GpuMapLease(job_id=str(key.job_id))
        user = job.user if self._names else ""
        return _lease(attempt, job, read, user=user, whole=self._whole)


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


def _lease(
    attempt: Attempt, job: Job, read: Published, *, user: str, whole: bool
) -> wire.GpuMapLease:
    """The lease of a live attempt, in whole seconds."""
    lease = attempt.lease
    told = wire.GpuMapLease(
        job_id=str(job.job_id),
        user=user,
        team=job.team if whole else "",
        kind=LEASE_KINDS[lease.kind] if whole else lease_pb2.LEASE_KIND_UNSPECIFIED,
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
