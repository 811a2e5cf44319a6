"""A relay that lies about the bytes: the end that hears it has a lost line, and never a whole one.

Only a word of TLS between the two ends (close_notify) means that nothing is missing.
"""

from __future__ import annotations

import pytest

from dlq_client.inside.relay_line import LineLost, RelayLine
from support.relay_house import LIES, RelayHouse, hear, say

BEFORE, SPOILT, AFTER = b"before", b"spoilt" * 50, b"after"


def heard_to_the_end(line: RelayLine) -> list[bytes]:
    """All that comes before the line is lost. LineOver, its orderly end, is not caught."""
    had: list[bytes] = []
    try:
        while True:
            had += hear(line)
    except LineLost:
        return had


@pytest.mark.parametrize("says", ["caller", "agent"])
@pytest.mark.parametrize("lie", LIES)
def test_what_is_heard_is_what_was_said_and_the_end_is_no_orderly_one(lie: str, says: str) -> None:
    with RelayHouse(lie=LIES[lie]).up() as house:
        _, caller, agent = house.joined()
        sayer, hearer = (caller, agent) if says == "caller" else (agent, caller)
        say(sayer, BEFORE)
        assert hear(hearer) == [BEFORE]
        house.lying.set()
        say(sayer, SPOILT)
        assert house.has_lied.wait(60.0)
        say(sayer, AFTER)
        sayer.end(cleanly=True)  # not even its last word is believed behind a missing byte
        assert heard_to_the_end(hearer) in ([], [SPOILT])
        hearer.end(cleanly=False)


def test_two_lines_of_the_same_ends_cannot_be_crossed() -> None:
    """Not once they speak: each session of TLS has keys of its own."""
    with RelayHouse().up() as house:
        person, node = house.person(), house.node()
        lines: list[tuple[RelayLine, RelayLine]] = []
        for _ in range(2):
            tickets = house.expect(person)
            called = house.called(tickets, person)
            answered = house.answered(tickets, node, person)
            lines.append((called.result(60.0), answered.result(60.0)))
        (first, one), (second, other) = lines
        first.begin(b"for one")
        assert first.write()
        assert hear(one) == [b"for one"]
        sealed = _sealed_by(second, b"for the other")
        one._heard.write(sealed)
        with pytest.raises(LineLost, match="no line of its other end"):
            one._open()
        other._heard.write(sealed)
        other._open()
        assert other.read() == [b"for the other"]


def _sealed_by(line: RelayLine, message: bytes) -> bytes:
    """What this end would send."""
    line.begin(message)
    line._seal()
    sealed, line._unsent = bytes(line._unsent), memoryview(b"")
    return sealed
