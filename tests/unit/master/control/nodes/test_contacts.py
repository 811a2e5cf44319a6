"""When nodes were last heard: silent ones are named in time, and the others cost one look a TTL."""

from __future__ import annotations

from dlq_master.control.nodes.contacts import Contacts
from dlq_master.model.ids import NodeId

TTL_S = 20.0
A, B = NodeId("a"), NodeId("b")


def test_a_node_is_silent_when_nothing_was_heard_for_the_ttl() -> None:
    contacts = Contacts([A, B], 0.0)
    contacts.hear(B, 15.0)
    assert contacts.silent(19.9, TTL_S) == []
    assert contacts.silent(20.0, TTL_S) == [A]
    assert contacts.silent(34.9, TTL_S) == []
    assert contacts.silent(35.0, TTL_S) == [B]


def test_a_node_that_was_heard_again_is_silent_a_ttl_after_that() -> None:
    contacts = Contacts([A], 0.0)
    assert contacts.silent(20.0, TTL_S) == [A]
    contacts.hear(A, 21.0)
    assert contacts.silent(40.0, TTL_S) == []
    assert contacts.silent(41.0, TTL_S) == [A]


def test_an_earlier_message_does_not_move_a_contact_back() -> None:
    contacts = Contacts([A], 10.0)
    contacts.hear(A, 5.0)
    assert contacts.get(A) == 10.0


def test_a_time_in_which_nobody_could_be_heard_is_no_silence() -> None:
    contacts = Contacts([A], 0.0)
    contacts.shift(8.0)
    assert contacts.silent(27.9, TTL_S) == []
    assert contacts.silent(28.0, TTL_S) == [A]


def test_a_forgotten_node_is_not_silent_and_one_that_joins_again_is_watched() -> None:
    contacts = Contacts([A], 0.0)
    contacts.forget(A)
    assert A not in contacts
    assert contacts.get(A) is None
    assert contacts.silent(100.0, TTL_S) == []
    contacts.hear(A, 100.0)
    assert contacts.silent(119.0, TTL_S) == []
    assert contacts.silent(120.0, TTL_S) == [A]
