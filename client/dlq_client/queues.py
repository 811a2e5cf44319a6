"""Queues and the cluster over the wire: look."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import queue_pb2
from dlq.v1 import queue_service_pb2 as wire
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq_client.line.connection import ServiceCalls


class Queues(ServiceCalls[QueueServiceStub]):
    """Calls about queues, and about the cluster."""

    stub_kind = QueueServiceStub

    def list(self) -> Sequence[queue_pb2.Queue]:
        """All queues, the first to be served first."""
        return self._connection.call(self.stub.ListQueues, wire.ListQueuesRequest()).queues

    def cluster(self) -> wire.GetClusterResponse:
        """The cluster's name and state, and the caller's identity as the master sees it."""
        return self._connection.call(self.stub.GetCluster, wire.GetClusterRequest())
