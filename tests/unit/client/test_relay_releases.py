"""Ends and relays of different releases: the command stays with the master, in silence."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dlq.v1 import exec_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_client.inside import relay_line
from dlq_client.inside.command import CommandInside
from dlq_client.inside.relay_line import LineLost
from dlq_client.line.connection import Patience
from dlq_common.identity.files import StoredIdentity
from support.fake_clock import FakeClock
from support.relay_house import RelayHouse, hear, say

FORMER = b"dlq-relay/1 "
STARTED = exec_pb2.ExecOutput(started=exec_pb2.ExecStarted(kept=True, relay=True))
ENDED = exec_pb2.ExecOutput(ended=exec_pb2.ExecEnded(exit_code=3))


def test_a_former_relay_and_present_ends_do_not_meet() -> None:
    with RelayHouse(greeting=FORMER).up() as house:
        person, node = house.person(), house.node()
        tickets = house.expect(person)
        ends = house.called(tickets, person), house.answered(tickets, node, person)
        for each in ends:
            with pytest.raises(LineLost, match="did not join the line"):
                each.result(60.0)


def test_former_ends_and_a_present_relay_do_not_meet_and_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with RelayHouse().up() as house:
        person, node = house.person(), house.node()
        tickets = house.expect(person)
        with monkeypatch.context() as former:
            former.setattr(relay_line, "GREETING", FORMER)
            ends = house.called(tickets, person), house.answered(tickets, node, person)
            for each in ends:
                with pytest.raises(LineLost, match="did not join the line"):
                    each.result(60.0)
        caller, agent = house.called(tickets, person), house.answered(tickets, node, person)
        say(caller.result(60.0), b"its ticket is as good as new")
        assert hear(agent.result(60.0)) == [b"its ticket is as good as new"]


@pytest.mark.parametrize("end", ["caller", "agent"])
def test_a_former_master_tells_no_name_of_the_other_end_and_that_is_nobody(end: str) -> None:
    with RelayHouse().up() as house:
        person, node = house.person(), house.node()
        tickets = house.expect(person)
        if end == "caller":
            house.answered(tickets, node, person)
            line = house.dialled(tickets.caller, person, "")
        else:
            house.called(tickets, person)
            line = house.dialled(tickets.agent, node, b"")
        with pytest.raises(LineLost, match="another certificate"):
            line.result(60.0)


class MasterOfOneCommand:
    """Runs one command, and has a relay. The command ends once its caller has tried that."""

    def __init__(self, address: str) -> None:
        self._address, self.tried = address, threading.Event()

    def exec_job(self, requests: Iterator[wire.ExecJobRequest]) -> Any:
        relays = next(requests).opening.spec.relay
        return SaidStream(self._line() if relays else self._command())

    def _line(self) -> Iterator[exec_pb2.ExecOutput]:
        yield exec_pb2.ExecOutput(relay=exec_pb2.ExecRelay(address=self._address, ticket="x" * 43))

    def _command(self) -> Iterator[exec_pb2.ExecOutput]:
        yield STARTED
        assert self.tried.wait(60.0)
        yield exec_pb2.ExecOutput(stdout=b"all of it")
        yield ENDED


class SaidStream:
    """One stream of ExecJob."""

    def __init__(self, said: Iterator[exec_pb2.ExecOutput]) -> None:
        self._said = said

    def __iter__(self) -> SaidStream:
        return self

    def __next__(self) -> wire.ExecJobResponse:
        return wire.ExecJobResponse(output=next(self._said))

    def cancel(self) -> None:
        pass


def a_connection(master: MasterOfOneCommand, identity: StoredIdentity) -> Any:
    clock = FakeClock()
    channel = SimpleNamespace(
        unary_unary=lambda *_, **__: None,
        unary_stream=lambda *_, **__: None,
        stream_unary=lambda *_, **__: None,
        stream_stream=lambda *_, **__: master.exec_job,
    )
    known = SimpleNamespace(
        address="192.0.2.1:1,127.0.0.1:1", first_address="192.0.2.1:1",
        key=identity.key, certificate=identity.certificate, ca=identity.ca,
    )  # fmt: skip
    return SimpleNamespace(
        channel=channel, direct=channel, identity=known, dialled="127.0.0.1:1",
        patience=lambda limit_s: Patience(limit_s, clock, random.Random(1), pause=clock.advance),
    )  # fmt: skip


def test_a_command_stays_with_its_master_and_only_the_curious_hear_of_it() -> None:
    with RelayHouse(greeting=FORMER).up() as house:
        master, ways = MasterOfOneCommand(f":{house.port}"), list[str]()

        def tell_more(words: str) -> None:
            ways.append(words)
            master.tried.set()

        told: list[str] = []
        command = CommandInside(
            a_connection(master, house.person()), "17", ["cat"],
            kept=True, bulky=True, tell=told.append, tell_more=tell_more,
        )  # fmt: skip
        outputs = list(command.outputs())
    assert [each.WhichOneof("body") for each in outputs] == ["started", "stdout", "ended"]
    assert told == []
    (way,) = ways
    assert way.startswith("bytes go through the master: the relay at 127.0.0.1:")
