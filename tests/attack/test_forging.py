"""The forger reaches every field of every request, and says the same again for the same seed."""

from __future__ import annotations

from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from attack.forging import DEEPEST, Forger
from support.wire_methods import Method, every_method


def said(method: Method, count: int, seed: str = "s") -> list[bytes]:
    forger = Forger(seed, {"job_id": ["7"]})
    return [data for _ in range(count) for data in forger.requests(method)]


def understood(method: Method, data: bytes) -> Message | None:
    cls = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(method.input_type))
    try:
        message: Message = cls.FromString(data)
    except DecodeError:
        return None
    return message


def method_of(name: str) -> Method:
    return next(method for method in every_method() if method.path.endswith(name))


def test_the_same_seed_says_the_same() -> None:
    method = method_of("/SubmitJob")
    assert said(method, 50) == said(method, 50)
    assert said(method, 50) != said(method, 50, seed="t")


def test_every_field_of_every_request_is_set_at_some_time() -> None:
    missing = []
    for method in every_method():
        descriptor = descriptor_pool.Default().FindMessageTypeByName(method.input_type)
        seen = {
            field.name
            for data in said(method, 250)
            if (message := understood(method, data)) is not None
            for field, _ in message.ListFields()
        }
        missing += [
            f"{method.path} {field.name}" for field in descriptor.fields if field.name not in seen
        ]
    assert missing == []


def test_some_are_no_messages_and_many_are() -> None:
    method = method_of("/SubmitJob")
    whole = [understood(method, data) is not None for data in said(method, 400)]
    assert 0.5 < sum(whole) / len(whole) < 0.95


def test_messages_go_no_deeper_than_said() -> None:
    def depth(message: Message) -> int:
        return 1 + max(
            (depth(value) for field, value in message.ListFields() if isinstance(value, Message)),
            default=0,
        )

    forger = Forger("deep", {})
    descriptor = descriptor_pool.Default().FindMessageTypeByName("dlq.v1.SubmitJobRequest")
    assert max(depth(forger.message(descriptor, 0)) for _ in range(200)) <= DEEPEST + 2
