"""Rented machines over the wire, for operators."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import pool_service_pb2 as wire
from dlq.v1.pool_service_pb2_grpc import PoolServiceStub
from dlq_client.line.connection import ServiceCalls


class Pools(ServiceCalls[PoolServiceStub]):
    """Machines that are rented from providers."""

    stub_kind = PoolServiceStub

    def list(self, name: str = "") -> wire.ListPoolsResponse:
        """The machines that may be rented and the rented ones; of one pool, or of all."""
        return self._connection.call(self.stub.ListPools, wire.ListPoolsRequest(name=name))

    def stop(self, machine_ids: Sequence[str] = (), pool: str = "") -> Sequence[wire.Machine]:
        """Give machines back, or all of a pool. They are gone when their state is "away" or
        "failed".
        """
        request = wire.StopMachinesRequest(machine_ids=machine_ids, pool=pool)
        return self._change(self.stub.StopMachines, request).machines
