"""The relay joins two holders of tickets, and nobody else."""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from dlq_client.inside.relay_line import LARGEST_MESSAGE_BYTES, LineLost, LineOver, RelayLine
from dlq_master.relay.program import LAST_S, MOST_STRANGERS, STRANGER_S, TICKET_S
from support.relay_house import RelayHouse, hear, say


@pytest.fixture
def house() -> Iterator[RelayHouse]:
    with RelayHouse().up() as house:
        yield house


def test_bytes_pass_both_ways(house: RelayHouse) -> None:
    _, caller, agent = house.joined()
    say(caller, b"hello")
    assert hear(agent) == [b"hello"]
    say(agent, b"and back")
    assert hear(caller) == [b"and back"]


def test_large_messages_pass_whole_while_both_ends_write(house: RelayHouse) -> None:
    _, caller, agent = house.joined()
    pieces = [os.urandom(LARGEST_MESSAGE_BYTES) for _ in range(8)]
    writers = [threading.Thread(target=_say_all, args=(line, pieces)) for line in (caller, agent)]
    for each in writers:
        each.start()
    for line in (agent, caller):
        had: list[bytes] = []
        while len(had) < len(pieces):
            had += hear(line)
        assert had == pieces
    for each in writers:
        each.join(60.0)


def _say_all(line: RelayLine, pieces: list[bytes]) -> None:
    for piece in pieces:
        say(line, piece)


def test_a_reader_that_waits_holds_its_writer_up(house: RelayHouse) -> None:
    """The relay keeps at most a piece: the rest waits at the writer."""
    _, caller, agent = house.joined()
    piece, sent = bytes(256 * 1024), 0
    for _ in range(400):
        caller.begin(piece)
        if not caller.write():
            break
        sent += 1
    assert sent < 400
    had = 0
    while had < sent:
        had += len(hear(agent))
    while not caller.write():
        caller.await_ready(writing=True, timeout_s=60.0)


def fill(line: RelayLine) -> None:
    """Until it takes nothing more."""
    while True:
        line.begin(bytes(256 * 1024))
        if not line.write():
            return


def test_a_pair_that_stands_still_both_ways_holds_no_other_up(house: RelayHouse) -> None:
    _, still, deaf = house.joined()
    others = [house.joined() for _ in range(4)]
    fill(still)
    fill(deaf)
    piece = os.urandom(512 * 1024)
    for _, caller, agent in others:
        writer = threading.Thread(target=say, args=(caller, piece))
        writer.start()
        assert hear(agent) == [piece]
        writer.join(60.0)


@pytest.mark.parametrize("side", ["caller", "agent"])
def test_a_ticket_of_a_line_that_has_ended_opens_no_other(house: RelayHouse, side: str) -> None:
    person, node = house.person(), house.node()
    tickets = house.expect(person)
    called, answered = house.called(tickets, person), house.answered(tickets, node, person)
    for line in (called.result(60.0), answered.result(60.0)):
        line.end(cleanly=True)
    assert house.heard.get(timeout=60.0)["over"] == tickets.number
    caller = side == "caller"
    again = house.called(tickets, person) if caller else house.answered(tickets, node, person)
    with pytest.raises(LineLost):
        again.result(60.0)


def test_a_ticket_opens_one_line(house: RelayHouse) -> None:
    tickets, caller, agent = house.joined()
    again = house.called(tickets, house.person())
    with pytest.raises(LineLost):
        again.result(60.0)
    say(caller, b"still here")
    assert hear(agent) == [b"still here"]


@pytest.mark.parametrize("thief", ["another user", "another certificate of the user", "a node"])
def test_a_ticket_of_somebody_else_opens_nothing_and_is_worth_nothing_then(
    house: RelayHouse, thief: str
) -> None:
    person = house.person()
    tickets = house.expect(person)
    identity = {
        "another user": lambda: house.person("bob"),
        "another certificate of the user": house.person,
        "a node": house.node,
    }[thief]()
    with pytest.raises(LineLost):
        house.called(tickets, identity).result(60.0)
    assert house.heard.get(timeout=60.0)["over"] == tickets.number
    with pytest.raises(LineLost):
        house.called(tickets, person).result(60.0)


def test_another_node_is_not_the_jobs(house: RelayHouse) -> None:
    person = house.person()
    tickets = house.expect(person)
    with pytest.raises(LineLost):
        house.answered(tickets, house.node("gpu02"), person).result(60.0)
    assert "another certificate" in house.heard.get(timeout=60.0)["why"]


def test_a_certificate_of_another_cluster_opens_nothing(house: RelayHouse) -> None:
    person = house.person()
    tickets = house.expect(person)
    with RelayHouse().up() as other:
        stranger = other.person()
    forged = type(stranger)(stranger.key, stranger.certificate, person.ca)
    with pytest.raises(LineLost):
        house.called(tickets, forged).result(60.0)


def test_a_ticket_that_nobody_brings_expires(house: RelayHouse) -> None:
    person = house.person()
    tickets = house.expect(person)
    with house.time_goes_on(TICKET_S):
        assert house.heard.get(timeout=60.0)["over"] == tickets.number
    with pytest.raises(LineLost):
        house.called(tickets, person).result(60.0)


def test_one_that_comes_alone_is_let_go(house: RelayHouse) -> None:
    person = house.person()
    tickets = house.expect(person)
    with house.time_goes_on(TICKET_S / 20), pytest.raises(LineLost):
        house.called(tickets, person).result(60.0)


@pytest.mark.parametrize("first", ["caller", "agent"])
def test_a_clean_end_is_passed_on(house: RelayHouse, first: str) -> None:
    _, caller, agent = house.joined()
    ends, hears = (caller, agent) if first == "caller" else (agent, caller)
    say(ends, b"last words")
    ends.end(cleanly=True)
    assert hear(hears) == [b"last words"]
    with pytest.raises(LineOver):
        hear(hears)


def test_an_agent_that_is_lost_is_lost_to_the_caller(house: RelayHouse) -> None:
    tickets, caller, agent = house.joined()
    agent.end(cleanly=False)
    with pytest.raises(LineLost):
        hear(caller)
    caller.end(cleanly=False)
    assert house.heard.get(timeout=60.0) == {"over": tickets.number, "why": ""}


def test_a_caller_that_is_lost_is_lost_to_the_agent(house: RelayHouse) -> None:
    """Whether its command ends is the master's to say, and not the relay's."""
    tickets, caller, agent = house.joined()
    caller.end(cleanly=False)
    with pytest.raises(LineLost):
        hear(agent)
    agent.end(cleanly=False)
    assert house.heard.get(timeout=60.0) == {"over": tickets.number, "why": ""}


def test_an_end_that_stays_after_the_other_is_let_go(house: RelayHouse) -> None:
    tickets, caller, agent = house.joined()
    caller.end(cleanly=True)
    with pytest.raises(LineOver):
        hear(agent)
    with house.time_goes_on(LAST_S):
        assert house.heard.get(timeout=60.0) == {"over": tickets.number, "why": ""}


def test_the_masters_word_ends_both_lines(house: RelayHouse) -> None:
    tickets, caller, agent = house.joined()
    house.tell(do="end", pair=tickets.number)
    for line in (caller, agent):
        with pytest.raises(LineLost):
            hear(line)


# ---- the relay is not trusted with the bytes


@pytest.fixture
def lying() -> Iterator[RelayHouse]:
    """A relay that joins whatever it likes, as one would whose host was taken over."""
    with RelayHouse(believes_all=True).up() as house:
        yield house


def test_a_lying_relay_joins_no_other_node_to_a_caller(lying: RelayHouse) -> None:
    person = lying.person()
    tickets = lying.expect(person)
    called = lying.called(tickets, person)
    lying.answered(tickets, lying.node("gpu02"), person)
    with pytest.raises(LineLost, match="another certificate"):
        called.result(60.0)


@pytest.mark.parametrize("other", ["another user", "another certificate of the user", "a node"])
def test_a_lying_relay_joins_no_other_caller_to_a_node(lying: RelayHouse, other: str) -> None:
    person = lying.person()
    tickets = lying.expect(person)
    identity = {
        "another user": lambda: lying.person("bob"),
        "another certificate of the user": lying.person,
        "a node": lying.node,
    }[other]()
    lying.called(tickets, identity)
    with pytest.raises(LineLost, match="another certificate"):
        lying.answered(tickets, lying.node(), person).result(60.0)


def test_a_caller_takes_no_node_of_another_cluster(lying: RelayHouse) -> None:
    person = lying.person()
    tickets = lying.expect(person)
    with RelayHouse().up() as other:
        stranger = other.node()
    forged = type(stranger)(stranger.key, stranger.certificate, person.ca)
    lying.answered(tickets, forged, person)
    with pytest.raises(LineLost):
        lying.called(tickets, person).result(60.0)


def test_two_callers_whose_lines_are_swapped_reach_no_nodes_command(lying: RelayHouse) -> None:
    """Each agent was told of one certificate, so a line of the other caller is worth nothing."""
    alice, bob, node = lying.person(), lying.person("bob"), lying.node()
    hers, his = lying.expect(alice), lying.expect(bob)
    lying.called(hers, bob)
    lying.called(his, alice)
    for tickets, expected in ((hers, alice), (his, bob)):
        with pytest.raises(LineLost, match="another certificate"):
            lying.answered(tickets, node, expected).result(60.0)


def test_a_caller_does_not_talk_with_itself(lying: RelayHouse) -> None:
    """A relay that gives a caller's own certificate to it is no node."""
    person = lying.person()
    tickets = lying.expect(person)
    called = lying.called(tickets, person)
    lying.answered(tickets, person, person)
    with pytest.raises(LineLost, match="another certificate"):
        called.result(60.0)


def _is_closed(line: socket.socket) -> bool:
    line.settimeout(60.0)
    try:
        while line.recv(4096):
            pass
    except ConnectionError:
        return True
    return True


def test_a_stranger_that_says_nothing_is_let_go(house: RelayHouse) -> None:
    with (
        socket.create_connection(("127.0.0.1", house.port)) as line,
        house.time_goes_on(STRANGER_S),
    ):
        assert _is_closed(line)


def test_many_strangers_do_not_keep_a_member_out(house: RelayHouse) -> None:
    crowd = [socket.create_connection(("127.0.0.1", house.port)) for _ in range(2 * MOST_STRANGERS)]
    try:
        _, caller, agent = house.joined()
        say(caller, b"through")
        assert hear(agent) == [b"through"]
        assert _is_closed(crowd[0]), "the oldest makes room"
    finally:
        for each in crowd:
            each.close()


def test_bytes_that_are_no_greeting_end_their_line_alone(house: RelayHouse) -> None:
    """Before TLS, within it, and as a joined member: the relay serves others all the same."""
    chance = random.Random(25)
    for size in (1, 5, 64, 4096):
        with socket.create_connection(("127.0.0.1", house.port)) as raw:
            raw.sendall(b"\x16\x03\x01" * (size % 2) + chance.randbytes(size))
            raw.shutdown(socket.SHUT_WR)
            assert _is_closed(raw)
    for ticket in ("x" * 43, "\u00e9" * 21 + "x", "{}" * 30):
        with pytest.raises(LineLost):
            house.dialled(ticket, house.person(), "").result(60.0)
    _, caller, agent = house.joined()
    say(caller, b"well")
    assert hear(agent) == [b"well"]


def test_a_message_that_is_too_long_is_no_message(house: RelayHouse) -> None:
    _, caller, agent = house.joined()
    caller.begin(bytes(LARGEST_MESSAGE_BYTES + 1))
    caller.write()
    with pytest.raises(ValueError, match="a message of"):
        hear(agent)


def test_former_tls_is_refused(house: RelayHouse) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", house.port)) as raw,
        pytest.raises(OSError, match=r"(?i)alert|version|closed|reset"),
    ):
        context.wrap_socket(raw)
