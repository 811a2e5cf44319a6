"""The wire keeps its promises: everything commented, named by one rule, and nothing broken."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from support import wire_rules

PROTO = Path(__file__).resolve().parents[3] / "proto"


def _generate_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proto_generate", PROTO / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return _generate_module()


@pytest.fixture(scope="module")
def wire(generate: ModuleType) -> FileDescriptorSet:
    image = generate.described(with_comments=True)
    assert isinstance(image, FileDescriptorSet)
    return image


@pytest.fixture
def frozen() -> FileDescriptorSet:
    return FileDescriptorSet.FromString((PROTO / "v1.binpb").read_bytes())


def test_everything_on_the_wire_is_commented(wire: FileDescriptorSet) -> None:
    assert wire_rules.uncommented(wire) == []


def test_everything_on_the_wire_is_named_by_the_rules(wire: FileDescriptorSet) -> None:
    assert wire_rules.misnamed(wire) == []


def test_nothing_frozen_is_broken(wire: FileDescriptorSet, frozen: FileDescriptorSet) -> None:
    assert wire_rules.broken(frozen, wire) == []


def test_every_comment_that_is_taken_away_is_missed(wire: FileDescriptorSet) -> None:
    image = FileDescriptorSet()
    image.CopyFrom(wire)
    file = next(file for file in image.file if file.name.endswith("job_service.proto"))
    had = 0
    for location in file.source_code_info.location:
        had += bool(location.leading_comments)
        location.leading_comments = ""
    # Two comments of the file are above its syntax line and above nothing that has a name.
    assert had > 100
    assert abs(len(wire_rules.uncommented(image)) - had) <= 2


def _field(image: FileDescriptorSet, message: str, field: str) -> FieldDescriptorProto:
    found = dict(wire_rules._messages(image))[f"dlq.v1.{message}"]
    return next(each for each in found.field if each.name == field)


def _rename(message: str, field: str, name: str) -> Callable[[FileDescriptorSet], None]:
    def act(image: FileDescriptorSet) -> None:
        _field(image, message, field).name = name

    return act


def _renumber(image: FileDescriptorSet) -> None:
    _field(image, "Job", "user").number = 99


def _retype(image: FileDescriptorSet) -> None:
    _field(image, "Job", "version").type = FieldDescriptorProto.TYPE_STRING


def _drop_message(image: FileDescriptorSet) -> None:
    file = next(file for file in image.file if file.name.endswith("/lease.proto"))
    del file.message_type[0]


def _drop_rpc(image: FileDescriptorSet) -> None:
    file = next(file for file in image.file if file.name.endswith("/job_service.proto"))
    del file.service[0].method[0]


def _stream_rpc(image: FileDescriptorSet) -> None:
    file = next(file for file in image.file if file.name.endswith("/job_service.proto"))
    file.service[0].method[0].server_streaming = True


def _drop_value(image: FileDescriptorSet) -> None:
    file = next(file for file in image.file if file.name.endswith("/job.proto"))
    del file.enum_type[0].value[-1]


def _drop_optional(image: FileDescriptorSet) -> None:
    _field(image, "Job", "exit_code").proto3_optional = False


@pytest.mark.parametrize(
    "change",
    [
        _rename("Job", "user", "owner"),
        _renumber,
        _retype,
        _drop_message,
        _drop_rpc,
        _stream_rpc,
        _drop_value,
        _drop_optional,
    ],
)
def test_a_breaking_change_is_found(
    change: Callable[[FileDescriptorSet], None], frozen: FileDescriptorSet
) -> None:
    changed = FileDescriptorSet()
    changed.CopyFrom(frozen)
    change(changed)
    assert len(wire_rules.broken(frozen, changed)) >= 1


def test_adding_a_field_and_a_value_breaks_nothing(frozen: FileDescriptorSet) -> None:
    changed = FileDescriptorSet()
    changed.CopyFrom(frozen)
    dict(wire_rules._messages(changed))["dlq.v1.Job"].field.add(name="new", number=500)
    next(f for f in changed.file if f.enum_type).enum_type[0].value.add(name="NEW", number=77)
    assert wire_rules.broken(frozen, changed) == []


def test_a_field_may_go_when_its_name_and_number_are_reserved(frozen: FileDescriptorSet) -> None:
    changed = FileDescriptorSet()
    changed.CopyFrom(frozen)
    message = dict(wire_rules._messages(changed))["dlq.v1.Job"]
    gone = message.field[1]
    message.reserved_name.append(gone.name)
    message.reserved_range.add(start=gone.number, end=gone.number + 1)
    message.field.remove(gone)
    assert wire_rules.broken(frozen, changed) == []


@pytest.mark.parametrize(
    ("message", "field", "name"),
    [
        ("Job", "submit_time", "submitted"),
        ("Job", "run_duration", "run_time"),
        ("Job", "job_id", "JobId"),
        ("Job", "version", "job_id"),
        ("Job", "user", "user_time"),
        ("Node", "memory_bytes", "memory"),
    ],
)
def test_a_bad_name_is_found(
    message: str, field: str, name: str, frozen: FileDescriptorSet
) -> None:
    changed = FileDescriptorSet()
    changed.CopyFrom(frozen)
    _rename(message, field, name)(changed)
    assert len(wire_rules.misnamed(changed)) >= 1


def test_generated_code_that_was_edited_by_hand_is_found(
    generate: ModuleType, tmp_path: Path
) -> None:
    wanted = {"dlq/v1/a_pb2.py": b"made", "dlq/v1/b_pb2.py": b"made"}
    generate.write(wanted, tmp_path)
    assert list(generate.differences(wanted, tmp_path)) == []
    (tmp_path / "dlq/v1/a_pb2.py").write_bytes(b"edited")
    (tmp_path / "dlq/v1/b_pb2.py").unlink()
    (tmp_path / "dlq/v1/c_pb2.py").write_bytes(b"strange")
    assert list(generate.differences(wanted, tmp_path)) == [
        "differs: dlq/v1/a_pb2.py",
        "missing: dlq/v1/b_pb2.py",
        "not generated: dlq/v1/c_pb2.py",
    ]
