"""Nodes over the wire: look."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import node_pb2
from dlq.v1 import node_service_pb2 as wire
from dlq.v1.node_service_pb2_grpc import NodeServiceStub
from dlq_client.line.connection import ServiceCalls
from dlq_common.errors import InvalidRequest

PAGE_SIZE = 5_000


class Nodes(ServiceCalls[NodeServiceStub]):
    """The machines of the cluster."""

    stub_kind = NodeServiceStub

    def list(self, chosen: wire.ListNodesRequest | None = None) -> Sequence[node_pb2.Node]:
        """All nodes in the order of their ids; `chosen`: only those that its filters take.
        InvalidRequest: the master is of a former release, and knows no filters.
        """
        request = wire.ListNodesRequest(page_size=PAGE_SIZE)
        if chosen is not None:
            request.MergeFrom(chosen)
            request.with_total = True  # a master without filters tells none
        found: list[node_pb2.Node] = []
        for page in self._pages(self.stub.ListNodes, request):
            if request.with_total and not page.HasField("total_count"):
                raise InvalidRequest(
                    "the master is of a former release, and cannot choose nodes",
                    hint="ask without --state, --flag, --type and --search",
                )
            found += page.nodes
        return found

    def get(self, node_id: str) -> node_pb2.Node:
        request = wire.GetNodeRequest(node_id=node_id)
        return self._connection.call(self.stub.GetNode, request).node
