"""The public methods of the master, by their place in the protocol.

Methods of nodes are left out, and so is the renewal of certificates. A browser's session must never
become an identity that outlives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dlq.v1 import (
    admin_service_pb2,
    forecast_service_pb2,
    job_service_pb2,
    loan_service_pb2,
    node_service_pb2,
    notify_service_pb2,
    pool_service_pb2,
    promise_service_pb2,
    queue_service_pb2,
    reservation_service_pb2,
    team_service_pb2,
    usage_service_pb2,
)

_FILES = (
    admin_service_pb2,
    forecast_service_pb2,
    job_service_pb2,
    loan_service_pb2,
    node_service_pb2,
    notify_service_pb2,
    pool_service_pb2,
    promise_service_pb2,
    queue_service_pb2,
    reservation_service_pb2,
    team_service_pb2,
    usage_service_pb2,
)


class PublicMethod(NamedTuple):
    """A method of the master, with the classes of its messages."""

    path: str  # "/dlq.v1.JobService/GetJob"
    request: type[Message]
    response: type[Message]
    streams: bool  # in either direction

    @property
    def takes_request_id(self) -> bool:
        """Whether it changes something, and knows a repeat by its `request_id`."""
        return "request_id" in self.request.DESCRIPTOR.fields_by_name


def _method(wire: MethodDescriptor) -> PublicMethod:
    return PublicMethod(
        f"/{wire.containing_service.full_name}/{wire.name}",
        GetMessageClass(wire.input_type),
        GetMessageClass(wire.output_type),
        wire.client_streaming or wire.server_streaming,
    )


METHODS: Mapping[str, PublicMethod] = {
    method.path: method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in map(_method, service.methods)
}


def named(service: str, method: str) -> PublicMethod:
    """A public method of the protocol, such as `JobService` and `GetJob`. KeyError: none."""
    return METHODS[f"/dlq.v1.{service}/{method}"]
