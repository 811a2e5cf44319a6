"""The largest, the smallest and the nearest wrong number in every numeric field of every request.

The fields come from the descriptors; the master behind the door is a real one with a real database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from grpc import aio

from dlq.v1 import job_service_pb2
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Role
from dlq_master.control.composition.starting import start
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.jobs.state import window_of
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.loop import Loop
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node
from dlq_master.store.batch import Batch, User
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database
from dlq_master.store.stored_tables import USERS
from dlq_master.store.tables.table import put
from support.master_harness import Wires, config_of
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.wire_methods import Method, every_method

pytestmark = pytest.mark.integration
FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
INTEGERS = {
    FieldDescriptor.TYPE_INT64: (2**63 - 1, -1),
    FieldDescriptor.TYPE_INT32: (2**31 - 1, -1),
    FieldDescriptor.TYPE_UINT64: (2**64 - 1,),
    FieldDescriptor.TYPE_UINT32: (2**32 - 1,),
    FieldDescriptor.TYPE_ENUM: (2**31 - 1, -1),
}
REALS = {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT}
TIMES = {"google.protobuf.Duration", "google.protobuf.Timestamp"}
FAR = 2**63 - 1
TEXTS = {
    "job_id": ("9223372036854775807", "99999999999999999999"),
    "page_token": ("9223372036854775807", "9999999999999999999"),
}
DEEPEST = 4
STREAM_S = 0.1  # a stream that has said nothing wrong by then goes on


class Case(NamedTuple):
    path: str
    request: Message


def _cases(method: Method) -> Iterator[Case]:
    descriptor = _descriptor(method.input_type)
    for words, request in _extremes(descriptor, DEEPEST):
        yield Case(words, request)


def _descriptor(name: str) -> Descriptor:
    found: Descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    return found


def _blank(descriptor: Descriptor) -> Message:
    """A request whose names of things are those of things that are there."""
    message: Any = message_factory.GetMessageClass(descriptor)()
    known = {"job_id": "1", "node_id": "gpu01", "request_id": "r", "user": "alice", "name": "x"}
    for field in descriptor.fields:
        plain = field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated
        if plain and field.name in known and field.containing_oneof is None:
            setattr(message, field.name, known[field.name])
    if descriptor.full_name == "dlq.v1.JobSpec":
        message.command.append("/bin/true")
        message.resources.gpu_count = 1
    blank: Message = message
    return blank


def _extremes(descriptor: Descriptor, depth: int) -> Iterator[tuple[str, Message]]:
    for field in descriptor.fields:
        for words, value in _values(field, depth):
            message: Any = _blank(descriptor)
            try:
                _put(message, field, value)
            except (ValueError, TypeError):
                continue  # a closed enum, or a map
            yield f"{field.name}{words}", message


def _values(field: FieldDescriptor, depth: int) -> Iterator[tuple[str, Any]]:
    if field.type in INTEGERS:
        yield from ((f"={value}", value) for value in INTEGERS[field.type])
    elif field.type in REALS:
        yield from ((f"={value}", value) for value in (float("nan"), float("inf"), -1.0, 1e308))
    elif field.type == FieldDescriptor.TYPE_STRING:
        yield from ((f"={value}", value) for value in TEXTS.get(field.name, ()))
    elif field.message_type is not None and field.message_type.full_name in TIMES:
        cls = message_factory.GetMessageClass(field.message_type)
        for seconds, nanos in ((FAR, 0), (-FAR - 1, 0), (-1, 0), (0, 2**31 - 1), (10**11, 0)):
            yield f"={seconds}.{nanos}", cls(seconds=seconds, nanos=nanos)
    elif field.message_type is not None and depth:
        for words, inner in _extremes(field.message_type, depth - 1):
            yield f".{words}", inner


def _put(message: Any, field: FieldDescriptor, value: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)[value.key or "STACK"] = value.value
    elif field.is_repeated:
        getattr(message, field.name).append(value)
    elif isinstance(value, Message):
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    clock, config = SteadyClock(), config_of()
    create_database(tmp_path / "dlq.db")
    writer = Writer(tmp_path / "dlq.db")
    people = [
        User(name, role, uid, uid, (uid,), 0.0)
        for name, role, uid in (("alice", "user", 1001), ("root", "admin", 1004))
    ]
    node = Node(NodeId("gpu01"), ())
    await writer.commit(Batch(changes=put(USERS, people), nodes=[node], meta={"epoch": "0"}))
    reader = Reader(tmp_path / "dlq.db")
    state, first = start(config, reader.load(window_of(config)), clock.now_s())
    await writer.commit(first)
    loop = Loop(
        state=state, clock=clock, store=writer, records=reader, transport=Wires(),
        wiring=WIRING,
        failpoints=Failpoints(), state_dir=tmp_path,
    )  # fmt: skip
    turning = asyncio.create_task(loop.run())
    async with rpc_house(tmp_path, loop) as house:
        yield house
    loop.stop()
    await turning
    writer.close()
    reader.close()


async def _code(channel: aio.Channel, method: Method, request: bytes) -> grpc.StatusCode:
    """How the call ends; OK for a stream that goes on."""
    kinds = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    make: Any = kinds[method.client_streams, method.server_streams]

    async def said() -> AsyncIterator[bytes]:
        yield request

    call = make(method.path)(said() if method.client_streams else request, timeout=DEADLINE_S)
    try:
        if method.server_streams:
            async with asyncio.timeout(STREAM_S):
                async for _ in call:
                    pass
        else:
            await call
    except TimeoutError:
        call.cancel()
    except aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def _ours() -> list[Method]:
    return [
        method
        for method in every_method()
        if method.path.startswith("/dlq.v1.") and "JoinService" not in method.path
    ]


async def test_no_number_in_a_request_is_a_fault_of_the_master(house: RpcHouse) -> None:
    spec = job_service_pb2.SubmitJobRequest(request_id="first")
    spec.spec.command.append("/bin/true")
    spec.spec.resources.gpu_count = 1
    submit: Any = house.channel_as("root", Role.ADMIN).unary_unary("/dlq.v1.JobService/SubmitJob")
    await submit(spec.SerializeToString(), timeout=DEADLINE_S)
    people, node = house.channel_as("root", Role.ADMIN), house.channel_as("gpu01", Role.NODE)
    faults = []
    for method in _ours():
        channel = node if "AgentService" in method.path else people
        for case in _cases(method):
            code = await _code(channel, method, case.request.SerializeToString())
            if code in FAULTS:
                faults.append((method.path, case.path, code.name))
    assert faults == []


async def test_bytes_that_are_no_message_are_the_callers_error(house: RpcHouse) -> None:
    people, node = house.channel_as("root", Role.ADMIN), house.channel_as("gpu01", Role.NODE)
    codes = {
        await _code(node if "AgentService" in method.path else people, method, b"\xff" * 2048)
        for method in _ours()
    }
    assert codes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED}


def test_the_requests_are_not_only_empty_ones() -> None:
    assert sum(1 for method in _ours() for _ in _cases(method)) > 500
