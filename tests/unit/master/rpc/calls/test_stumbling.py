"""Handlers outside of the loop fail on purpose, before or after their work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlq_common.identity.pki import Role
from dlq_master.control.loop.failpoints import AFTER, BEFORE, Failpoints, OnPurpose
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.surround import stumbling


def call_of(name: str, role: Role) -> Call:
    return cast(Call, SimpleNamespace(identity=SimpleNamespace(name=name, role=role)))


async def answers(call: Call, request: str) -> str:
    return request.upper()


async def streams(call: Call, request: str) -> AsyncIterator[str]:
    for letter in request:
        yield letter


class Passages:
    """Hears of each, and fails at one."""

    def __init__(self, fails: str = "") -> None:
        self._fails = fails
        self.heard: list[tuple[str, str]] = []

    def __call__(self, sender: str, when: str) -> None:
        self.heard.append((sender, when))
        if when == self._fails:
            raise OnPurpose(when)


def test_an_answer_lies_between_two_passages() -> None:
    passages = Passages()
    handler = stumbling(answers, passages)
    assert asyncio.run(handler(call_of("mallory", Role.USER), "a")) == "A"
    assert passages.heard == [("user:mallory", BEFORE), ("user:mallory", AFTER)]


@pytest.mark.parametrize(("fails", "came"), [(BEFORE, []), (AFTER, ["a", "b"]), ("", ["a", "b"])])
def test_a_stream_may_fail_before_it_begins_or_when_it_is_over(fails: str, came: list[str]) -> None:
    told: list[str] = []

    async def read() -> None:
        letters = stumbling(streams, Passages(fails))(call_of("n1", Role.NODE), "ab")
        async for one in letters:
            told.append(one)  # noqa: PERF401 - they count also if it fails

    if fails:
        with pytest.raises(OnPurpose):
            asyncio.run(read())
    else:
        asyncio.run(read())
    assert told == came


def test_nobody_in_particular_passes_no_failpoint() -> None:
    passages = Passages(BEFORE)
    call = cast(Call, SimpleNamespace(identity=None))
    assert asyncio.run(stumbling(answers, passages)(call, "a")) == "A"
    assert passages.heard == []


def test_the_failpoint_fails_about_every_nth_of_its_senders_and_of_nobody_else() -> None:
    failpoints = Failpoints("stagger:4@user:mallory,node:evil")

    def failures(sender: str) -> Any:
        failed = 0
        for _ in range(1_000):
            for when in (BEFORE, AFTER):
                try:
                    failpoints.stumble(sender, when)
                except OnPurpose:
                    failed += 1
        return failed

    assert 150 < failures("user:mallory") < 350
    assert 150 < failures("node:evil") < 350
    assert failures("user:alice") == 0
    assert failpoints.forgives("user:mallory")
    assert not failpoints.forgives("user:alice")
    assert not Failpoints("stumble:4@user:mallory").forgives("user:mallory")
