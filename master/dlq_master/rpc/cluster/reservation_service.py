"""Reservations of nodes: listed, made and cancelled."""

from __future__ import annotations

from dlq.v1 import reservation_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import filled, from_timestamp, said, to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import CancelReservation, CreateReservation, Reservation
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import needed, node_id_of, words_of

MOST_NODES = 10_000


async def list_reservations(
    call: Call, request: wire.ListReservationsRequest
) -> wire.ListReservationsResponse:
    read, jobs = call.read, call.caller.sees_all
    return wire.ListReservationsResponse(
        reservations=[_message(one, read, jobs=jobs) for one in read.reservations()]
    )


async def create_reservation(
    call: Call, request: wire.CreateReservationRequest
) -> wire.CreateReservationResponse:
    if not request.node_ids or len(request.node_ids) > MOST_NODES:
        raise InvalidRequest(f"name 1 to {MOST_NODES} nodes", field="node_ids")
    if not request.HasField("end_time"):
        raise InvalidRequest("when does it end?", field="end_time")
    made = await call.ask(
        CreateReservation(
            **call.signed(request),
            node_ids=tuple(node_id_of(it, "node_ids") for it in request.node_ids),
            begin_s=said(request, "begin_time"),
            end_s=from_timestamp(request.end_time),
            reason=words_of(request.reason, "reason"),
            accept_loss=request.accept_loss,
        )
    )
    return wire.CreateReservationResponse(reservation=_message(made, call.read, jobs=True))


async def cancel_reservation(
    call: Call, request: wire.CancelReservationRequest
) -> wire.CancelReservationResponse:
    reservation_id = needed(request.reservation_id, "reservation_id", "which reservation?")
    await call.ask(CancelReservation(**call.signed(request), reservation_id=reservation_id))
    return wire.CancelReservationResponse()


def _message(one: Reservation, read: Published, *, jobs: bool) -> wire.Reservation:
    """A reservation. `jobs`: with the jobs of all users that hold GPUs there."""
    there, late = read.on_reserved(one) if jobs else ((), ())
    return filled(
        wire.Reservation,
        one,
        begin_time=to_timestamp(one.begin_s),
        end_time=to_timestamp(one.end_s),
        state="active" if one.active else "planned",
        job_ids=map(str, there),
        late_job_ids=map(str, late),
    )
