"""Which of several masters is dialled next, and that a repeated change keeps its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import error_details_pb2, status_pb2

from dlq.v1 import job_service_pb2
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import CLUSTER_FILE, MASTERS_VARIABLE, Identity, load_identity
from dlq_client.line.masters import Masters, MastersChannel
from dlq_common.errors import NotLeader

AWAY = grpc.StatusCode.UNAVAILABLE


class FailedCall(grpc.RpcError, grpc.Call):
    """What gRPC raises; `leader`: the refusal of a standby."""

    def __init__(self, code: grpc.StatusCode, leader: str = "", words: str = "refused") -> None:
        super().__init__()
        self._words = words
        self._code, self._trailing = code, _trailing(leader) if leader else ()

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._words

    def trailing_metadata(self) -> Any:
        return self._trailing

    initial_metadata = is_active = time_remaining = cancel = cast(Any, None)

    def add_callback(self, callback: Callable[[], None]) -> bool:
        del callback
        return False


def _trailing(leader: str) -> tuple[tuple[str, bytes], ...]:
    packed = Packed()
    packed.Pack(
        error_details_pb2.ErrorInfo(
            reason=NotLeader.reason, domain="dlq", metadata={"leader": leader}
        )
    )
    status = status_pb2.Status(code=AWAY.value[0], details=[packed])
    return (("grpc-status-details-bin", status.SerializeToString()),)


class FakeMasters:
    """What each address does with a call: an error, or an answer."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    def dial(self, address: str) -> grpc.Channel:
        return cast(grpc.Channel, _FakeChannel(self, address))

    def ask(self, address: str, request: Any) -> Any:
        copied = type(request)()
        copied.CopyFrom(request)
        self.asked.append((address, copied))
        answer = self.answers[address]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class _FakeChannel:
    def __init__(self, masters: FakeMasters, address: str) -> None:
        self._masters, self._address = masters, address

    def unary_unary(self, *_: Any, **__: Any) -> Any:
        return lambda request, **named: self._masters.ask(self._address, request)

    def unary_stream(self, *_: Any, **__: Any) -> Any:
        return lambda request, **named: self._stream(request)

    def _stream(self, request: Any) -> Iterator[Any]:
        yield self._masters.ask(self._address, request)

    def close(self) -> None:
        pass


def connection_to(fake: FakeMasters, monkeypatch: pytest.MonkeyPatch) -> Connection:
    identity = Identity(
        key=b"", certificate=b"", ca=b"", address="a,b", cluster="lab", user="alice", role="user",
        issued_s=0.0, expires_s=0.0,
    )  # fmt: skip
    channel = MastersChannel(Masters(("a", "b")), fake.dial)
    monkeypatch.setattr(Connection, "opener", staticmethod(lambda _: channel))
    return Connection(identity)


def test_a_change_is_repeated_at_the_leader_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = job_service_pb2.HoldJobResponse()
    fake = FakeMasters(a=FailedCall(AWAY, leader="b"), b=answer)
    Jobs(connection_to(fake, monkeypatch)).hold("7")
    (first, second) = fake.asked
    assert (first[0], second[0]) == ("a", "b")
    assert first[1].request_id == second[1].request_id != ""


def test_an_answer_that_was_lost_is_asked_for_at_the_next_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = job_service_pb2.HoldJobResponse()
    fake = FakeMasters(a=FailedCall(AWAY), b=[FailedCall(AWAY, leader="a"), answer])
    fake.answers["a"] = [FailedCall(AWAY), FailedCall(AWAY)]
    Jobs(connection_to(fake, monkeypatch)).hold("7")
    assert [address for address, _ in fake.asked] == ["a", "b", "a", "b"]
    assert len({request.request_id for _, request in fake.asked}) == 1


def test_a_refusal_that_is_final_turns_to_nobody_else() -> None:
    fake = FakeMasters(a=FailedCall(grpc.StatusCode.NOT_FOUND))
    channel = MastersChannel(Masters(("a", "b")), fake.dial)
    with pytest.raises(FailedCall):
        channel.unary_unary("/x")(job_service_pb2.ListJobsRequest())
    assert channel.masters.address == "a"


@pytest.mark.parametrize(
    ("code", "next_one"),
    [
        (grpc.StatusCode.UNAVAILABLE, "b"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "a"),  # its own time is over
        (grpc.StatusCode.CANCELLED, "a"),
    ],
)
def test_a_stream_that_is_lost_turns_to_the_next_master(
    code: grpc.StatusCode, next_one: str
) -> None:
    fake = FakeMasters(a=FailedCall(code))
    channel = MastersChannel(Masters(("a", "b")), fake.dial)
    with pytest.raises(FailedCall):
        next(channel.unary_stream("/x")(job_service_pb2.WatchEventsRequest()))
    assert channel.masters.address == next_one


def test_a_late_failure_of_a_master_that_was_left_changes_nothing() -> None:
    masters = Masters(("a", "b", "c"))
    masters.failed("a")
    masters.failed("a")
    assert masters.address == "b"
    masters.failed("b", leader="d")  # one that is in no list of ours
    assert masters.address == "d"
    masters.failed("d")
    assert masters.address == "a"


def test_a_relay_without_a_host_is_sought_at_the_master_that_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = connection_to(FakeMasters(), monkeypatch)
    first = connection.dialled
    channel = cast(MastersChannel, connection.channel)
    channel.masters.failed(first)
    assert connection.dialled == channel.masters.address != first


def test_the_environment_names_the_masters(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("identity.key", "identity.crt", "ca.crt"):
        (tmp_path / name).write_bytes(b"x")
        (tmp_path / name).chmod(0o600)
    (tmp_path / CLUSTER_FILE).write_text(
        '{"address": "a:1", "cluster": "lab", "user": "u", "role": "user", "issued_s": 0, '
        '"expires_s": 9}'
    )
    monkeypatch.setenv(MASTERS_VARIABLE, "a:1,b:2")
    found = load_identity(tmp_path)
    assert found is not None
    assert (found.address, found.first_address) == ("a:1,b:2", "a:1")
