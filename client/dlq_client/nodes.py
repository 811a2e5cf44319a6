"""Nodes over the wire: look."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import node_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq.v1.node_service_pb2_grpc import NodeServiceStub
from dlq_client.line.connection import Connection

PAGE_SIZE = 5_000


class Nodes:
    """The machines of the cluster. Each method raises a DlqError when the master refuses."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.stub = NodeServiceStub(connection.channel)

    def list(self) -> Sequence[node_pb2.Node]:
        """All nodes in the order of their ids."""
        request = wire.ListNodesRequest(page_size=PAGE_SIZE)
        answer = self._connection.call(self.stub.ListNodes, request)
        nodes = list(answer.nodes)
        while answer.next_page_token:
            request.page_token = answer.next_page_token
            answer = self._connection.call(self.stub.ListNodes, request)
            nodes.extend(answer.nodes)
        return nodes

    def get(self, node_id: str) -> node_pb2.Node:
        request = wire.GetNodeRequest(node_id=node_id)
        return self._connection.call(self.stub.GetNode, request).node
