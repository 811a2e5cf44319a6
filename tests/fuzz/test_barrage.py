"""A crowd talks beside a witness: what befalls the witness is not passed over."""

from __future__ import annotations

import asyncio

import pytest

from fuzz.barrage import all_say
from fuzz.test_master import faults_of


class Talker:
    """Says so many messages, each in a turn of the event loop."""

    shares = 1

    def __init__(self) -> None:
        self.said = 0
        self.wrongs: list[str] = []

    async def say(self, messages: int) -> None:
        for _ in range(messages):
            self.said += 1
            await asyncio.sleep(0)


async def fails_at(turn: int) -> None:
    for _ in range(turn):
        await asyncio.sleep(0)
    raise ValueError("alice is not served")


def talk(talker: Talker, messages: int, turn: int) -> None:
    asyncio.run(all_say([talker], messages, fails_at(turn)))


def test_a_witness_that_fails_ends_the_talk() -> None:
    """Her error was swallowed: the test was green while another user was not served."""
    talker = Talker()
    with pytest.raises(ValueError, match="alice is not served"):
        talk(talker, 100_000, 5)
    assert talker.said < 1_000


def test_a_witness_that_goes_on_is_stopped_with_the_talk() -> None:
    talker = Talker()
    talk(talker, 10, 1_000_000)
    assert talker.said == 10


def test_a_witness_that_stops_looking_is_a_failure() -> None:
    async def looks_away() -> None:
        pass

    with pytest.raises(AssertionError, match="stopped looking"):
        asyncio.run(all_say([Talker()], 1_000, looks_away()))


def test_faults_on_purpose_are_counted_by_place_and_kind() -> None:
    log = """\
{"event": "handler_failed", "stimulus": "HoldJob", "cause": "OnPurpose: the failpoint stagger, after the handler"}
{"event": "rpc_failed", "method": "/a/Get", "exception": "OnPurpose: the failpoint stagger, before the handler"}
{"event": "rpc_failed", "method": "/a/Get", "exception": "ValueError: a real one"}
"""  # noqa: E501 - lines of a log
    assert faults_of(log) == {
        "faults": 2,
        "faults_in_the_loop": 1,
        "faults_after_a_handler": 1,
        "kinds_with_faults": 2,
    }
