"""The heads of messages that are made by hand, beside what protobuf makes of the same bytes."""

import pytest

from dlq.v1 import exec_pb2
from dlq_client.inside.relay_line import stdin_head, stdin_of, stdout_head, stdout_of

# Around each size at which a length takes one byte more, in either of the two lengths.
SIZES = (1, 2, 124, 125, 126, 127, 128, 129, 16379, 16380, 16383, 16384, 1 << 19)


@pytest.mark.parametrize("size", SIZES)
def test_the_heads_are_those_of_protobuf(size: int) -> None:
    data = bytes(size)
    told = exec_pb2.RelayedInput(input=exec_pb2.ExecInput(stdin=data)).SerializeToString()
    said = exec_pb2.ExecOutput(stdout=data).SerializeToString()
    assert stdin_head(size) + data == told
    assert stdout_head(size) + data == said
    assert bytes(stdin_of(told) or b"") == data
    assert bytes(stdout_of(said) or b"") == data


def test_another_message_is_left_to_protobuf() -> None:
    for told in (
        exec_pb2.RelayedInput(spec=exec_pb2.ExecSpec(command=["true"])),
        exec_pb2.RelayedInput(input=exec_pb2.ExecInput()),
        exec_pb2.RelayedInput(),
    ):
        assert stdin_of(told.SerializeToString()) is None
    for said in (exec_pb2.ExecOutput(stderr=b"words"), exec_pb2.ExecOutput()):
        assert stdout_of(said.SerializeToString()) is None


def test_a_message_that_is_cut_or_longer_than_it_says_is_none_of_them() -> None:
    told = exec_pb2.RelayedInput(input=exec_pb2.ExecInput(stdin=b"x" * 300)).SerializeToString()
    said = exec_pb2.ExecOutput(stdout=b"x" * 300).SerializeToString()
    for end in range(len(told)):
        assert stdin_of(told[:end]) is None
    for end in range(len(said)):
        assert stdout_of(said[:end]) is None
    assert stdin_of(told + b"x") is None
    assert stdout_of(said + b"x") is None
    assert stdout_of(b"\x12\xff\xff\xff\xff\xff") is None
