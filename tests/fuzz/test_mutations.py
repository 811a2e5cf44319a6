"""What the fuzzer says: the same for the same seed, and close to real messages."""

from __future__ import annotations

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import job_service_pb2
from fuzz.corpus import SESSION, Mutator, session
from fuzz.job_words import JobWords, is_order
from support.wire_methods import Method, every_method

SUBMIT = "/dlq.v1.JobService/SubmitJob"


def method_of(path: str) -> Method:
    return next(method for method in every_method() if method.path == path)


def real() -> dict[str, list[bytes]]:
    ask = job_service_pb2.SubmitJobRequest(request_id="r")
    ask.spec.command.extend(["/bin/true"])
    ask.spec.resources.gpu_count = 2
    return {
        SUBMIT: [ask.SerializeToString()],
        SESSION: [each.SerializeToString() for each in session()],
    }


def said(seed: str, path: str, count: int) -> list[bytes]:
    mutator = Mutator(seed, {}, real())
    return [data for _ in range(count) for data in mutator.requests(method_of(path))]


def test_the_same_seed_says_the_same() -> None:
    assert said("1", SUBMIT, 50) == said("1", SUBMIT, 50)
    assert said("1", SUBMIT, 50) != said("2", SUBMIT, 50)


def test_a_changed_message_keeps_most_of_its_fields() -> None:
    mutator, (whole,) = Mutator("1", {}, {}), real()[SUBMIT]
    changed = [mutator.change("dlq.v1.SubmitJobRequest", whole) for _ in range(100)]
    asks = [job_service_pb2.SubmitJobRequest.FromString(each) for each in changed]
    assert sum(each != whole for each in changed) > 70
    assert sum(list(ask.spec.command) == ["/bin/true"] for ask in asks) > 50


def test_a_session_begins_with_a_hello_and_may_repeat_reports_under_other_fences() -> None:
    heard = [wire.SessionRequest() for _ in said("1", SESSION, 60)]
    bodies = set()
    for message, data in zip(heard, said("1", SESSION, 60), strict=True):
        try:
            message.ParseFromString(data)
        except Exception:  # noqa: BLE001 - bytes that are no message are wanted too
            continue
        bodies.add(message.WhichOneof("body"))
    assert {"hello", "heartbeat", "report", "command_result", "gpu_look"} <= bodies


@pytest.mark.parametrize(
    ("line", "obeyed"),
    [
        (b"1 1 1 signal 10", True),
        (b"1 3 1 kill", True),  # of a newer master
        (b"1  1 01 stop 15 60000 5000", True),
        (b"1 1 1 hold 60\0 and more", True),
        (b"what was too long 1 1 1 kill", True),  # the shim may have dropped what is in front
        (b"1 0 1 kill", False),
        (b"1 1 7 kill", False),
        (b"1 1 1 signal", False),
        (b"1 1 1 signal ten", False),
        (b"1 1 1 dance", False),
    ],
)
def test_an_order_is_known_as_the_shim_knows_it(line: bytes, obeyed: bool) -> None:
    assert is_order(line) == obeyed


def test_the_words_to_a_shim_are_no_order_one_after_another() -> None:
    words = JobWords("1")
    said = b"".join(words.order() for _ in range(3_000))
    assert not any(map(is_order, said.split(b"\n")))
    assert sum(line.startswith(b"1 1 1 ") for line in said.split(b"\n")) > 30
