"""A node that speaks nonsense through the relay."""

from __future__ import annotations

from typing import Any

import pytest

from dlq.v1 import exec_pb2
from dlq_client.inside.relay_line import full_address
from dlq_client.inside.relayed import RelayedLine
from dlq_common.errors import Unavailable


class NonsenseLine:
    """A line on which bytes come that are no message."""

    def begin(self, message: bytes) -> None:
        self.said = message

    def write(self) -> bool:
        return True

    def read(self) -> list[bytes]:
        return [b"\xff\xff\xff"]


def test_bytes_that_are_no_message_are_told_in_words() -> None:
    line: Any = NonsenseLine()
    relayed = RelayedLine(line, None, "head:7323")
    with pytest.raises(Unavailable, match="does not speak as a command does"):
        relayed.take_up(exec_pb2.ExecSpec(resumed=True))
    with pytest.raises(Unavailable, match="does not speak as a command does"):
        next(relayed.outputs(0))


def test_an_address_without_a_host_is_told_with_that_of_the_master() -> None:
    assert full_address(":7323", "head:7320") == "head:7323"
    assert full_address(":7323", "[::1]:7320") == "[::1]:7323"
    assert full_address("relay.lab:9", "head:7320") == "relay.lab:9"
