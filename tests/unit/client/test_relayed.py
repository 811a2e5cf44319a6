"""A node that speaks nonsense through the relay."""

from __future__ import annotations

from typing import Any

import pytest

from dlq.v1 import exec_pb2
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
