"""The facts about nodes, queues and the cluster that every caller may see."""

from __future__ import annotations

from dlq.v1 import node_service_pb2 as nodes
from dlq.v1 import queue_pb2
from dlq.v1 import queue_service_pb2 as queues
from dlq_common.errors import NotFound
from dlq_common.text.wire import filled, to_duration, to_timestamp
from dlq_master.control.config import InteractiveConfig
from dlq_master.control.loop.incidents import Incident
from dlq_master.control.people.queues import QueueFacts
from dlq_master.model.nodes.node import NodeState
from dlq_master.rpc.calls.call import Call, page_size_of
from dlq_master.rpc.calls.reads import ENCODED
from dlq_master.rpc.calls.roles import OPERATORS
from dlq_master.rpc.cluster.node_lists import page_of, wanted_nodes
from dlq_master.rpc.specs.intake import node_id_of
from dlq_master.rpc.views.convert import node_message
from dlq_master.rpc.views.policy_view import helper_message
from dlq_master.rpc.views.profile_view import turn_buckets


async def list_nodes(call: Call, request: nodes.ListNodesRequest) -> nodes.ListNodesResponse:
    read, breathe = call.read, call.breathe()
    most = page_size_of(request.page_size)
    found = await wanted_nodes(request, read, breathe)
    page, following = page_of(found, request.page_token, most)
    response = nodes.ListNodesResponse(next_page_token=following)
    if request.with_total:
        response.total_count = len(found)
    for node in page:
        response.nodes.append(node_message(node, read))
        await breathe(ENCODED * (1 + len(node.gpus)))
    return response


async def get_node(call: Call, request: nodes.GetNodeRequest) -> nodes.GetNodeResponse:
    read = call.read
    node_id = node_id_of(request.node_id)
    node = read.node(node_id)
    if node is None:
        raise NotFound(f"there is no node {node_id}", kind="node", id=node_id)
    return nodes.GetNodeResponse(node=node_message(node, read))


async def list_queues(call: Call, request: queues.ListQueuesRequest) -> queues.ListQueuesResponse:
    return queues.ListQueuesResponse(queues=map(_queue, call.read.queues()))


async def get_cluster(call: Call, request: queues.GetClusterRequest) -> queues.GetClusterResponse:
    read, caller = call.read, call.caller
    up = [node for node in read.nodes() if node.state is NodeState.UP]
    submit_left, submit_rate = read.submit_limits(caller.name, call.now_s)
    meter, operates = call.parts.meter, caller.role in OPERATORS
    commits = meter.commits.of()
    return queues.GetClusterResponse(
        cluster_name=read.cluster_name,
        master_version=call.parts.version,
        epoch=read.epoch,
        caller=caller.name,
        role=caller.role,
        policy=read.policy,
        gpu_count=sum(len(node.gpus) for node in up),
        free_gpu_count=sum(read.free_gpu_count(node.node_id) for node in up if node.open),
        core_count=sum(node.cores for node in up),
        free_core_count=sum(read.free_core_count(node.node_id) for node in up),
        submit_left_count=submit_left,
        submit_rate=submit_rate,
        master_time=to_timestamp(call.now_s),
        freeze_reason=read.freeze_reason(),
        helpers=map(helper_message, read.helpers()),
        incidents=map(_incident, read.incidents()) if operates else (),
        turns=turn_buckets(meter.turns) if operates else (),
        commits=turn_buckets(commits.counts, commits.ends) if operates else (),
        people_version=read.people_version if caller.sees_all else 0,
    )


def _incident(incident: Incident) -> queues.Incident:
    """The requests on which the master has failed, without the words of their senders."""
    return queues.Incident(
        incident_id=incident.incident_id,
        failure_time=to_timestamp(incident.time_s),
        kind=incident.kind,
        sender=incident.sender,
        error=incident.words,
        failure_count=incident.failures,
    )


def _queue(queue: QueueFacts) -> queue_pb2.Queue:
    """A queue with its present contents."""
    return filled(
        queue_pb2.Queue,
        queue,
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
        running_core_count=queue.running_cores,
        waiting_core_count=queue.waiting_cores,
        held_job_count=queue.held,
        interactive=None if queue.interactive is None else _limits(queue.interactive),
    )


def _limits(told: InteractiveConfig) -> queue_pb2.InteractiveLimits:
    """The limits of interactive jobs."""
    return queue_pb2.InteractiveLimits(
        default_time_limit_duration=to_duration(told.time_limit),
        max_time_limit_duration=to_duration(told.max_time),
        gpus_per_job_count=told.gpus_per_job,
        gpus_per_user_count=told.gpus_per_user,
        floor_gpus=told.floor,
    )
