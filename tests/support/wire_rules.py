"""What must hold of the wire, as pure functions over descriptor sets: each returns its
complaints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

_TIMESTAMP = ".google.protobuf.Timestamp"
_DURATION = ".google.protobuf.Duration"
_INTEGERS = frozenset(
    {
        FieldDescriptorProto.TYPE_INT32,
        FieldDescriptorProto.TYPE_INT64,
        FieldDescriptorProto.TYPE_UINT32,
        FieldDescriptorProto.TYPE_UINT64,
    }
)
_FLOATS = frozenset({FieldDescriptorProto.TYPE_FLOAT, FieldDescriptorProto.TYPE_DOUBLE})
# Path numbers of SourceCodeInfo: field numbers inside FileDescriptorProto, DescriptorProto, ...
_FILE_MESSAGE, _FILE_ENUM, _FILE_SERVICE = 4, 5, 6
_MESSAGE_FIELD, _MESSAGE_NESTED, _MESSAGE_ENUM, _MESSAGE_ONEOF = 2, 3, 4, 8
_ENUM_VALUE, _SERVICE_METHOD = 2, 2
_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_PASCAL = re.compile(r"[A-Z][A-Za-z0-9]*")

Path = tuple[int, ...]


def uncommented(image: FileDescriptorSet) -> list[str]:
    """Services, rpcs, messages, enums, their values, oneofs and fields without a leading
    comment.
    """
    missing: list[str] = []
    for file in image.file:
        commented = {
            tuple(location.path)
            for location in file.source_code_info.location
            if location.leading_comments.strip()
        }
        missing += [
            f"{file.name}: {name} has no comment"
            for path, name in _named(file)
            if path not in commented
        ]
    return missing


def misnamed(image: FileDescriptorSet) -> list[str]:
    """Everything that breaks the naming rules of the wire."""
    return [complaint for file in image.file for complaint in _misnamed_in(file)]


def broken(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    """What a peer built from `old` can no longer do with one built from `new`."""
    return [*_broken_messages(old, new), *_broken_enums(old, new), *_broken_services(old, new)]


def _named(file: FileDescriptorProto) -> Iterator[tuple[Path, str]]:
    for i, service in enumerate(file.service):
        yield (_FILE_SERVICE, i), service.name
        for j, method in enumerate(service.method):
            yield (_FILE_SERVICE, i, _SERVICE_METHOD, j), f"{service.name}.{method.name}"
    for i, enum in enumerate(file.enum_type):
        yield from _named_enum((_FILE_ENUM, i), enum)
    for i, message in enumerate(file.message_type):
        yield from _named_message((_FILE_MESSAGE, i), message)


def _named_message(path: Path, message: DescriptorProto) -> Iterator[tuple[Path, str]]:
    if message.options.map_entry:
        return
    yield path, message.name
    for i, field in enumerate(message.field):
        yield (*path, _MESSAGE_FIELD, i), f"{message.name}.{field.name}"
    for i, oneof in enumerate(message.oneof_decl):
        if not any(f.proto3_optional and f.oneof_index == i for f in message.field):
            yield (*path, _MESSAGE_ONEOF, i), f"{message.name}.{oneof.name}"
    for i, enum in enumerate(message.enum_type):
        yield from _named_enum((*path, _MESSAGE_ENUM, i), enum)
    for i, nested in enumerate(message.nested_type):
        yield from _named_message((*path, _MESSAGE_NESTED, i), nested)


def _named_enum(path: Path, enum: EnumDescriptorProto) -> Iterator[tuple[Path, str]]:
    yield path, enum.name
    for i, value in enumerate(enum.value):
        yield (*path, _ENUM_VALUE, i), value.name


def _misnamed_in(file: FileDescriptorProto) -> Iterator[str]:
    package = file.package.replace(".", "/")
    if not re.fullmatch(rf"{package}/[a-z_]+\.proto", file.name):
        yield f"{file.name}: the path is not the package {file.package}"
    if file.service and not file.name.endswith("_service.proto"):
        yield f"{file.name}: services live in files named after a service"
    for enum in file.enum_type:
        yield from _misnamed_enum(enum)
    for message in file.message_type:
        yield from _misnamed_message(message)
    for service in file.service:
        yield from _misnamed_service(service)


def _misnamed_enum(enum: EnumDescriptorProto) -> Iterator[str]:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    if (enum.value[0].name, enum.value[0].number) != (f"{prefix}UNSPECIFIED", 0):
        yield f"{enum.name}: the first value is not {prefix}UNSPECIFIED = 0"
    for value in enum.value:
        if not value.name.startswith(prefix):
            yield f"{enum.name}: {value.name} does not begin with {prefix}"


def _misnamed_message(message: DescriptorProto) -> Iterator[str]:
    if not _PASCAL.fullmatch(message.name):
        yield f"{message.name}: not PascalCase"
    if message.options.map_entry:
        return
    for field in message.field:
        where = f"{message.name}.{field.name}"
        if not _SNAKE.fullmatch(field.name):
            yield f"{where}: not snake_case"
        yield from _misnamed_time(where, field)
        yield from _misnamed_number(where, field)
    for nested in message.nested_type:
        yield from _misnamed_message(nested)


def _misnamed_time(where: str, field: FieldDescriptorProto) -> Iterator[str]:
    is_timestamp, is_duration = field.type_name == _TIMESTAMP, field.type_name == _DURATION
    if is_timestamp != field.name.endswith("_time"):
        yield f"{where}: Timestamps, and only they, are named *_time"
    if is_duration != field.name.endswith(("_duration", "_timeout")):
        yield f"{where}: Durations, and only they, are named *_duration or *_timeout"


def _misnamed_number(where: str, field: FieldDescriptorProto) -> Iterator[str]:
    if re.search(r"(_id|_ids)$", field.name) and field.type != FieldDescriptorProto.TYPE_STRING:
        yield f"{where}: ids are strings"
    if field.name.endswith("_count") and field.type not in _INTEGERS:
        yield f"{where}: a count is an integer"
    if re.search(r"(memory|(?<!page_)size)$", field.name) and field.type in _INTEGERS | _FLOATS:
        yield f"{where}: the unit is not in the name"


def _misnamed_service(service: ServiceDescriptorProto) -> Iterator[str]:
    if not service.name.endswith("Service"):
        yield f"{service.name}: not named *Service"
    for method in service.method:
        for part, kind in ((method.input_type, "Request"), (method.output_type, "Response")):
            if part.rsplit(".", 1)[-1] != f"{method.name}{kind}":
                yield f"{service.name}.{method.name}: does not use {method.name}{kind}"


def _broken_messages(old: FileDescriptorSet, new: FileDescriptorSet) -> Iterator[str]:
    present = dict(_messages(new))
    for name, before in _messages(old):
        if name not in present:
            yield f"{name}: the message is gone"
            continue
        after = present[name]
        yield from _broken_fields(name, before, after)


def _broken_fields(name: str, before: DescriptorProto, after: DescriptorProto) -> Iterator[str]:
    fields = {field.number: field for field in after.field}
    reserved_names = set(after.reserved_name)
    for field in before.field:
        now = fields.get(field.number)
        if now is not None:
            if _meaning(before, field) != _meaning(after, now):
                yield f"{name}.{field.name}: number {field.number} means something else"
        elif not _is_reserved(after, field.number) or field.name not in reserved_names:
            yield f"{name}.{field.name}: gone, and its name and number are not reserved"


def _meaning(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[object, ...]:
    oneof = (
        message.oneof_decl[field.oneof_index].name
        if field.HasField("oneof_index") and not field.proto3_optional
        else ""
    )
    return field.name, field.type, field.type_name, field.label, field.proto3_optional, oneof


def _is_reserved(message: DescriptorProto, number: int) -> bool:
    return any(span.start <= number < span.end for span in message.reserved_range)


def _broken_enums(old: FileDescriptorSet, new: FileDescriptorSet) -> Iterator[str]:
    present = {enum.name: enum for file in new.file for enum in file.enum_type}
    for before in (enum for file in old.file for enum in file.enum_type):
        after = present.get(before.name)
        values = {value.number: value.name for value in after.value} if after else {}
        for value in before.value:
            if values.get(value.number) != value.name:
                yield f"{before.name}: {value.name} = {value.number} is gone"


def _broken_services(old: FileDescriptorSet, new: FileDescriptorSet) -> Iterator[str]:
    present = dict(_methods(new))
    for name, shape in _methods(old):
        if name not in present:
            yield f"{name}: the rpc is gone"
        elif present[name] != shape:
            yield f"{name}: the rpc takes, returns or streams something else"


def _messages(image: FileDescriptorSet) -> Iterator[tuple[str, DescriptorProto]]:
    for file in image.file:
        for message in file.message_type:
            yield f"{file.package}.{message.name}", message
            for nested in message.nested_type:
                yield f"{file.package}.{message.name}.{nested.name}", nested


def _methods(image: FileDescriptorSet) -> Iterator[tuple[str, tuple[object, ...]]]:
    for file in image.file:
        for service in file.service:
            for method in service.method:
                yield (
                    f"{file.package}.{service.name}.{method.name}",
                    (
                        method.input_type,
                        method.output_type,
                        method.client_streaming,
                        method.server_streaming,
                    ),
                )
