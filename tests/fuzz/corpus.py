"""Real requests, recorded from commands and written as agents write them, and mutations of them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from attack.forging import Forger
from dlq.v1 import agent_service_pb2 as wire
from dlq_client.line.connection import Connection, open_channel
from support.harness import Daemons
from support.wire_methods import Method

SESSION = "/dlq.v1.AgentService/Session"
# Commands that say something of most methods. One that is refused has said it all the same.
COMMANDS = (
    "submit -G 1 --name real --hold -- /bin/true",
    "submit -n 2 -G 2 --time 10m --deadline 2h --comment words --hold -- /bin/sleep 1",
    "submit --array 0-3 -G 1 --hold -- /bin/true",
    "submit --after afterok:1 --env A=b --hold -- /bin/true",
    "list --all",
    "status 1",
    "show 1",
    "why 1",
    "estimate -G 1 --time 5m",
    "events --since 1h",
    "hold 1 --reason words",
    "release 1",
    "update 1 --time 20m",
    "pause 1",
    "resume 1",
    "requeue 1",
    "cancel 1",
    "nodes -R",
    "nodes n1",
    "queues",
    "usage",
    "costs",
    "promises",
    "logs 1",
    "notify add mail a@example.org --on failed",
    "notify list",
    "admin node cordon n1 --reason words",
    "admin node uncordon n1",
    "admin reserve n1 --from +1h --for 1h",
    "admin team set vision --gpu-quota 4",
    "admin policy show",
    "admin user list",
    "admin token list",
    "admin status",
)


class _Recorder(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Keeps what is said to each method."""

    def __init__(self, said: dict[str, list[bytes]]) -> None:
        self._said = said

    def _note(self, go_on: Any, details: Any, request: Any) -> Any:
        path = details.method
        path = path.decode() if isinstance(path, bytes) else path
        self._said[path].append(request.SerializeToString())
        return go_on(details, request)

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._note(continuation, details, request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._note(continuation, details, request)


@contextmanager
def _recorded(said: dict[str, list[bytes]]) -> Iterator[None]:
    """All lines that this process opens meanwhile are written down."""
    before = Connection.__dict__["opener"]
    Connection.opener = staticmethod(
        lambda who: grpc.intercept_channel(open_channel(who), _Recorder(said))
    )
    try:
        yield
    finally:
        Connection.opener = before


def recorded(daemons: Daemons) -> dict[str, list[bytes]]:
    """Path of a method -> real requests to it."""
    said: dict[str, list[bytes]] = defaultdict(list)
    with _recorded(said):
        for command in COMMANDS:
            daemons.dlq(*command.split())
    said[SESSION] = [each.SerializeToString() for each in session()]
    return dict(said)


def session() -> list[wire.SessionRequest]:
    """As an agent speaks: its hello, and reports of a rank under an old fence."""
    facts = wire.NodeFacts(hostname="evil", boot_id="1", virtual_devices=True)
    for index in range(8):
        facts.gpus.add(index=index, gpu_type="h100")
    report = wire.RankReport(sequence=1, job_id="1", phase=wire.RANK_PHASE_STARTED)
    report.fence.epoch, report.fence.attempt = 1, 1
    ended = wire.RankReport(sequence=2, job_id="1", phase=wire.RANK_PHASE_EXITED, exit_code=0)
    ended.fence.epoch, ended.fence.attempt = 99, 1
    look = wire.GpuLook(number=1)
    look.gpus.add(index=0, used_memory_bytes=1 << 33)
    return [
        wire.SessionRequest(hello=wire.Hello(facts=facts, highest_epoch=1, ranks=[report])),
        wire.SessionRequest(heartbeat=wire.Heartbeat()),
        wire.SessionRequest(report=report),
        wire.SessionRequest(report=ended),
        wire.SessionRequest(command_result=wire.CommandResult(sequence=1)),
        wire.SessionRequest(gpu_look=look),
    ]


class Mutator:
    """Requests for a method: forged ones, real ones, and real ones with a changed field or byte."""

    def __init__(
        self, seed: str, known: Mapping[str, Sequence[str]], real: Mapping[str, Sequence[bytes]]
    ) -> None:
        self._chance = random.Random(seed)
        self.forger = Forger(seed, known)
        self._real = real

    def requests(self, method: Method) -> list[bytes]:
        """What to say to it: some requests where the caller streams, otherwise one."""
        real = self._real.get(method.path, ())
        if not real or self._chance.random() < 0.4:
            return self.forger.requests(method)
        if method.path == SESSION:
            said = [real[0], *self._chance.choices(real, k=self._chance.randint(0, 6))]
        else:
            said = [self._chance.choice(real)]
        return [self._mutated(method, each) for each in said]

    def _mutated(self, method: Method, data: bytes) -> bytes:
        kind = self._chance.random()
        if kind < 0.15:
            return data  # a repeated request: its answer was given before
        return self.forger.bend(data) if kind < 0.45 else self.change(method.input_type, data)

    def change(self, message_type: str, data: bytes) -> bytes:
        """One to three of its fields, at any depth, have another value or none."""
        descriptor = descriptor_pool.Default().FindMessageTypeByName(message_type)
        message = GetMessageClass(descriptor)()
        try:
            message.ParseFromString(data)
        except DecodeError:
            return data
        for _ in range(self._chance.randint(1, 3)):
            inner: Any = self._chance.choice([message, *_inside(message)])
            fields = inner.DESCRIPTOR.fields
            if not fields:
                continue
            field = self._chance.choice(fields)
            inner.ClearField(field.name)
            if self._chance.random() < 0.8:
                self.forger.fill(inner, field)
        changed: bytes = message.SerializeToString()
        return changed


def _inside(message: Message) -> list[Message]:
    found: list[Message] = []
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in value if field.is_repeated else [value]:
            found += [inner, *_inside(inner)]
    return found
