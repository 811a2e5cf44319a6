"""The facts of queues and of the cluster that everybody may see."""

from __future__ import annotations

from dlq.v1 import queue_pb2
from dlq.v1 import queue_service_pb2 as wire
from dlq.v1.queue_service_pb2_grpc import QueueServiceServicer
from dlq_common.clock import Clock
from dlq_common.text.wire import to_timestamp
from dlq_master.control.loop.incidents import Incident
from dlq_master.control.loop.ports import Control, QueueFacts
from dlq_master.model.nodes.node import NodeState
from dlq_master.rpc.calls.auth import caller_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.calls.roles import OPERATORS
from dlq_master.rpc.views.policy_view import helper_message


class QueueService(QueueServiceServicer):
    """dlq.v1.QueueService."""

    def __init__(self, control: Control, clock: Clock, version: str) -> None:
        self._control = control
        self._clock = clock
        self._version = version

    async def ListQueues(
        self, request: wire.ListQueuesRequest, context: Context
    ) -> wire.ListQueuesResponse:
        queues = self._control.published.queues()
        return wire.ListQueuesResponse(queues=[queue_message(queue) for queue in queues])

    async def GetCluster(
        self, request: wire.GetClusterRequest, context: Context
    ) -> wire.GetClusterResponse:
        read, caller = self._control.published, caller_of(context)
        up = [node for node in read.nodes() if node.state is NodeState.UP]
        return wire.GetClusterResponse(
            cluster_name=read.cluster_name,
            master_version=self._version,
            epoch=read.epoch,
            caller=caller.name,
            role=caller.role,
            policy=read.policy,
            gpu_count=sum(len(node.gpus) for node in up),
            free_gpu_count=sum(read.free_gpu_count(node.node_id) for node in up),
            master_time=to_timestamp(self._clock.now_s()),
            freeze_reason=read.freeze_reason(),
            helpers=[helper_message(health) for health in read.helpers()],
            incidents=[
                incident_message(one) for one in read.incidents() if caller.role in OPERATORS
            ],
        )


def incident_message(incident: Incident) -> wire.Incident:
    """The requests on which the master has failed, without the words of their senders."""
    return wire.Incident(
        incident_id=incident.incident_id,
        failure_time=to_timestamp(incident.time_s),
        kind=incident.kind,
        sender=incident.sender,
        error=incident.words,
        failure_count=incident.failures,
    )


def queue_message(queue: QueueFacts) -> queue_pb2.Queue:
    """A queue with its present contents."""
    return queue_pb2.Queue(
        name=queue.name,
        priority=queue.priority,
        policy=queue.policy,
        is_default=queue.is_default,
        levels=[
            queue_pb2.QueueLevel(
                level=number,
                threshold_gpu_seconds=level.threshold_gpu_s,
                waiting_job_count=level.waiting,
                running_job_count=level.running,
            )
            for number, level in enumerate(queue.levels)
        ],
        running_gpu_count=queue.running_gpus,
        waiting_gpu_count=queue.waiting_gpus,
        held_job_count=queue.held,
    )
