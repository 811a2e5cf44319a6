"""Nodes over the wire: look."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import node_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq.v1.node_service_pb2_grpc import NodeServiceStub
from dlq_client.line.connection import ServiceCalls

PAGE_SIZE = 5_000


class Nodes(ServiceCalls[NodeServiceStub]):
    """The machines of the cluster."""

    stub_kind = NodeServiceStub

    def list(self) -> Sequence[node_pb2.Node]:
        """All nodes in the order of their ids."""
        request = wire.ListNodesRequest(page_size=PAGE_SIZE)
        pages = self._pages(self.stub.ListNodes, request)
        return [node for page in pages for node in page.nodes]

    def get(self, node_id: str) -> node_pb2.Node:
        request = wire.GetNodeRequest(node_id=node_id)
        return self._connection.call(self.stub.GetNode, request).node
