"""Reservations of nodes: listed, made, cancelled."""

from __future__ import annotations

from dlq.v1 import reservation_service_pb2 as wire
from dlq.v1.reservation_service_pb2_grpc import ReservationServiceServicer
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_timestamp, to_timestamp
from dlq_master.control.loop.ports import Control, ReadModel
from dlq_master.control.stimuli import CancelReservation, CreateReservation, Reservation
from dlq_master.rpc.calls.auth import caller_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.specs.intake import node_id_of, words_of
from dlq_master.rpc.specs.spec import check_request_id

MOST_NODES = 10_000


class ReservationService(ReservationServiceServicer):
    """dlq.v1.ReservationService. The door has looked at the role; here at what is asked."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def ListReservations(
        self, request: wire.ListReservationsRequest, context: Context
    ) -> wire.ListReservationsResponse:
        read = self._control.published
        jobs = caller_of(context).sees_all
        return wire.ListReservationsResponse(
            reservations=[_message(one, read, jobs=jobs) for one in read.reservations()]
        )

    async def CreateReservation(
        self, request: wire.CreateReservationRequest, context: Context
    ) -> wire.CreateReservationResponse:
        if not request.node_ids or len(request.node_ids) > MOST_NODES:
            raise InvalidRequest(f"name 1 to {MOST_NODES} nodes", field="node_ids")
        if not request.HasField("end_time"):
            raise InvalidRequest("when does it end?", field="end_time")
        begins = request.HasField("begin_time")
        made = await self._control.ask(
            CreateReservation(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                node_ids=tuple(node_id_of(it, "node_ids") for it in request.node_ids),
                begin_s=from_timestamp(request.begin_time) if begins else None,
                end_s=from_timestamp(request.end_time),
                reason=words_of(request.reason, "reason"),
                accept_loss=request.accept_loss,
            )
        )
        assert isinstance(made, Reservation)
        return wire.CreateReservationResponse(
            reservation=_message(made, self._control.published, jobs=True)
        )

    async def CancelReservation(
        self, request: wire.CancelReservationRequest, context: Context
    ) -> wire.CancelReservationResponse:
        if not request.reservation_id:
            raise InvalidRequest("which reservation?", field="reservation_id")
        await self._control.ask(
            CancelReservation(
                caller=caller_of(context),
                request_id=check_request_id(request.request_id),
                reservation_id=request.reservation_id,
            )
        )
        return wire.CancelReservationResponse()


def _message(one: Reservation, read: ReadModel, *, jobs: bool) -> wire.Reservation:
    """`jobs`: with the jobs that hold GPUs there, of all users."""
    there, late = read.on_reserved(one) if jobs else ((), ())
    return wire.Reservation(
        reservation_id=one.reservation_id,
        node_ids=one.node_ids,
        begin_time=to_timestamp(one.begin_s),
        end_time=to_timestamp(one.end_s),
        reason=one.reason,
        created_by=one.created_by,
        state="active" if one.active else "planned",
        job_ids=map(str, there),
        late_job_ids=map(str, late),
    )
