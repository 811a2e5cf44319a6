"""Every method that a master could serve, read from the descriptors and not from our own lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

import dlq.v1


@dataclass(frozen=True, slots=True)
class Method:
    """One method: where it is served, what it takes and returns, what streams."""

    path: str
    input_type: str
    output_type: str
    client_streams: bool
    server_streams: bool


def every_method() -> list[Method]:
    """The methods of dlq.v1 and of the health service."""
    return [method for file in _files() for method in _methods(file)]


def _files() -> Iterator[FileDescriptor]:
    modules = [f"dlq.v1.{module.name}" for module in iter_modules(dlq.v1.__path__)]
    for name in [*modules, "grpc_health.v1.health_pb2"]:
        if name.endswith("_pb2"):
            file = import_module(name).DESCRIPTOR
            assert isinstance(file, FileDescriptor)
            yield file


def _methods(file: FileDescriptor) -> Iterator[Method]:
    for service in file.services_by_name.values():
        for method in service.methods:
            streams = descriptor_pb2.MethodDescriptorProto()
            method.CopyToProto(streams)
            yield Method(
                path=f"/{service.full_name}/{method.name}",
                input_type=method.input_type.full_name,
                output_type=method.output_type.full_name,
                client_streams=streams.client_streaming,
                server_streams=streams.server_streaming,
            )


def tells(answer: Any) -> bool:
    """Whether an answer holds more than that jobs are not there."""
    return any(
        field.name != "refusals" or any(one.reason != "NOT_FOUND" for one in value)
        for field, value in answer.ListFields()
        if field.message_type
    )
