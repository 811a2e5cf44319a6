"""Rented machines over the wire, for operators."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import pool_service_pb2 as wire
from dlq.v1.pool_service_pb2_grpc import PoolServiceStub
from dlq_client.line.connection import Connection


class Pools:
    """Each method raises a DlqError when the master refuses; then nothing has changed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.stub = PoolServiceStub(connection.channel)

    def list(self, name: str = "") -> wire.ListPoolsResponse:
        """The machines that may be rented and the rented ones; of one pool, or of all."""
        return self._connection.call(self.stub.ListPools, wire.ListPoolsRequest(name=name))

    def stop(self, machine_ids: Sequence[str] = (), pool: str = "") -> Sequence[wire.Machine]:
        """Give machines back, or all of a pool. They are gone when their state is "away" or
        "failed".
        """
        request = wire.StopMachinesRequest(
            request_id=self._connection.ids.request_id(), machine_ids=machine_ids, pool=pool
        )
        return self._connection.call(self.stub.StopMachines, request).machines
