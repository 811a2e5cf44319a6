"""The facts of nodes that everybody may see."""

from __future__ import annotations

from bisect import bisect_right

from dlq.v1 import node_service_pb2 as wire
from dlq.v1.node_service_pb2_grpc import NodeServiceServicer
from dlq_common.errors import NotFound
from dlq_master.control.loop.ports import Control
from dlq_master.rpc.calls.auth import caller_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.calls.paging import page_size_of
from dlq_master.rpc.calls.reads import ENCODED, Slices
from dlq_master.rpc.specs.intake import node_id_of
from dlq_master.rpc.views.convert import node_message


class NodeService(NodeServiceServicer):
    """dlq.v1.NodeService."""

    def __init__(self, control: Control, slices: Slices) -> None:
        self._control = control
        self._slices = slices

    async def ListNodes(
        self, request: wire.ListNodesRequest, context: Context
    ) -> wire.ListNodesResponse:
        read = self._control.published
        most = page_size_of(request.page_size)
        nodes = read.nodes()
        # A page token is the last id shown: nodes that come and go between pages shift nothing.
        start = bisect_right(nodes, request.page_token, key=lambda node: str(node.node_id))
        page = nodes[start : start + most]
        response = wire.ListNodesResponse(
            next_page_token=page[-1].node_id if start + most < len(nodes) else ""
        )
        breathe = self._slices.of(caller_of(context).name)
        for node in page:
            response.nodes.append(node_message(node, read))
            await breathe(ENCODED * (1 + len(node.gpus)))
        return response

    async def GetNode(self, request: wire.GetNodeRequest, context: Context) -> wire.GetNodeResponse:
        read = self._control.published
        node_id = node_id_of(request.node_id)
        node = read.node(node_id)
        if node is None:
            raise NotFound(f"there is no node {node_id}", kind="node", id=node_id)
        return wire.GetNodeResponse(node=node_message(node, read))
