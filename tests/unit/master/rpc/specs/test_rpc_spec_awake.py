"""A check is asked only where one of its fields is said: without them it must have nothing to say,
whatever the other fields hold.
"""

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dlq.v1 import job_pb2, job_service_pb2
from dlq_common.errors import InvalidRequest
from dlq_master.control.stimuli import Caller
from dlq_master.rpc.specs.intake import submit_stimulus
from dlq_master.rpc.specs.spec import CHECKS, Check, check_said, checked

AWAKE_ALONE = [check for check in CHECKS if check.fields]


def nonsense(message: Message, depth: int = 0) -> Message:
    """The same with something in every field that no check likes."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value["\x00"] = odd(field.message_type.fields_by_name["value"])
        elif field.is_repeated:
            if field.message_type is None:
                value.append(odd(field))
            else:
                nonsense(value.add(), depth + 1)
        elif field.message_type is not None:
            nonsense(value, depth + 1)
        else:
            setattr(message, field.name, odd(field))
    return message


def odd(field: Any) -> object:
    """A value of the field's kind that means nothing."""
    kinds = {
        FieldDescriptor.CPPTYPE_STRING: "\x00",
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_ENUM: 1,
        FieldDescriptor.CPPTYPE_UINT32: 4_000_000_000,
        FieldDescriptor.CPPTYPE_UINT64: 4_000_000_000,
    }
    return kinds.get(field.cpp_type, -1)


@pytest.mark.parametrize("check", AWAKE_ALONE, ids=lambda it: ",".join(sorted(it.fields)))
def test_without_its_fields_a_check_refuses_nothing(check: Check) -> None:
    spec = job_pb2.JobSpec()
    nonsense(spec)
    for path in check.fields:
        name = path.removeprefix("resources.")
        message: Message = spec if name == path else spec.resources
        assert name in message.DESCRIPTOR.fields_by_name
        message.ClearField(name)
    check.passes(spec)


def test_with_nonsense_in_every_field_it_is_refused() -> None:
    spec = job_pb2.JobSpec()
    nonsense(spec)
    with pytest.raises(InvalidRequest):
        check_said(spec)


def test_a_field_of_a_newer_client_is_refused_by_its_name_at_any_depth() -> None:
    spec = job_pb2.JobSpec(command=["true"])
    spec.resources.MergeFromString(b"\xfa\x7f\x01x")  # field 2047, which nobody has
    with pytest.raises(InvalidRequest, match="resources has fields that this master does not know"):
        checked(spec)


def test_jobs_that_ask_for_the_same_share_one_request() -> None:
    def submitted(gpus: int, name: str) -> object:
        spec = job_pb2.JobSpec(command=["true"], name=name)
        spec.resources.gpu_count = gpus
        request = job_service_pb2.SubmitJobRequest(request_id=name, spec=spec)
        return submit_stimulus(request, Caller("ann", "user", "ann", 0.0)).request

    assert submitted(4, "a") is submitted(4, "b")
    assert submitted(8, "c") != submitted(4, "d")
