"""Reservations of nodes over the wire."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import reservation_service_pb2 as wire
from dlq.v1.reservation_service_pb2_grpc import ReservationServiceStub
from dlq_client.line.connection import ServiceCalls
from dlq_common.text.wire import to_timestamp


class Reservations(ServiceCalls[ReservationServiceStub]):
    """Nodes that are kept free for a while."""

    stub_kind = ReservationServiceStub

    def list(self) -> Sequence[wire.Reservation]:
        """The reservations that are not over, the first to begin first."""
        request = wire.ListReservationsRequest()
        return self._connection.call(self.stub.ListReservations, request).reservations

    def create(
        self,
        node_ids: Sequence[str],
        begin_s: float | None,
        end_s: float,
        reason: str,
        *,
        accept_loss: bool = False,
    ) -> wire.Reservation:
        """Reserve nodes; `begin_s` None: from now on. WorkWouldBeLost as with `set_node_flags`."""
        request = wire.CreateReservationRequest(
            node_ids=node_ids,
            begin_time=None if begin_s is None else to_timestamp(begin_s),
            end_time=to_timestamp(end_s),
            reason=reason,
            accept_loss=accept_loss,
        )
        return self._change(self.stub.CreateReservation, request).reservation

    def cancel(self, reservation_id: str) -> None:
        """Cancel one, or end it early."""
        request = wire.CancelReservationRequest(reservation_id=reservation_id)
        self._change(self.stub.CancelReservation, request)
