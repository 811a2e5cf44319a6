"""A command that is taken up again, while its former stream still counts as open."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dlq.v1 import exec_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_client.inside.command import CommandInside
from dlq_client.line.connection import Patience
from dlq_common.errors import TryAgain
from support.fake_clock import FakeClock
from unit.client.test_masters import FailedCall

FULL, LOST = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
STARTED = exec_pb2.ExecOutput(started=exec_pb2.ExecStarted(kept=True))
ASKED: list[bool] = []  # of each stream, whether it takes the command up again
ENDED = exec_pb2.ExecOutput(ended=exec_pb2.ExecEnded(exit_code=3))


class ScriptedStream:
    """One stream of ExecJob: these outputs, then this error."""

    def __init__(self, *script: Any) -> None:
        self._script = script

    def __iter__(self) -> Iterator[wire.ExecJobResponse]:
        for each in self._script:
            if isinstance(each, Exception):
                raise each
            yield wire.ExecJobResponse(output=each)

    def cancel(self) -> None:
        pass


def begun(*streams: ScriptedStream) -> CommandInside:
    """A kept command whose master answers with these streams in turn."""
    left, clock = list(streams), FakeClock()

    def next_stream(inputs: Iterator[wire.ExecJobRequest]) -> ScriptedStream:
        ASKED.append(next(inputs).opening.spec.resumed)
        return left.pop(0)

    ASKED.clear()
    channel = SimpleNamespace(
        unary_unary=lambda *_, **__: None,
        unary_stream=lambda *_, **__: None,
        stream_unary=lambda *_, **__: None,
        stream_stream=lambda *_, **__: next_stream,
    )
    connection: Any = SimpleNamespace(
        channel=channel,
        identity=SimpleNamespace(address="head:7320"),
        patience=lambda limit_s: Patience(limit_s, clock, random.Random(1), pause=clock.advance),
    )
    return CommandInside(connection, "17", ["true"], kept=True)


def test_one_that_comes_back_to_a_full_house_waits_for_its_place() -> None:
    command = begun(
        ScriptedStream(STARTED, FailedCall(LOST)),
        ScriptedStream(FailedCall(FULL)),
        ScriptedStream(FailedCall(FULL)),
        ScriptedStream(STARTED, ENDED),
    )
    assert list(command.outputs())[-1].ended.exit_code == 3


def test_one_that_begins_in_a_full_house_is_refused_at_once() -> None:
    command = begun(ScriptedStream(FailedCall(FULL)))
    with pytest.raises(TryAgain):
        list(command.outputs())


@pytest.mark.parametrize(
    "refused",
    [
        FailedCall(LOST, leader="other:7320"),
        FailedCall(LOST, words="failed to connect to all addresses; x"),
    ],
    ids=["by a standby", "before it left"],
)
def test_one_that_never_began_begins_anew(refused: FailedCall) -> None:
    command = begun(ScriptedStream(refused), ScriptedStream(STARTED, ENDED))
    assert list(command.outputs())[-1].ended.exit_code == 3
    assert ASKED == [False, False]


def test_one_whose_answer_was_lost_is_taken_up_and_never_begun_twice() -> None:
    command = begun(ScriptedStream(FailedCall(LOST)), ScriptedStream(STARTED, ENDED))
    list(command.outputs())
    assert ASKED == [False, True]
