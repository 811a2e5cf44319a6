"""Two authorities count at the relay while the CA changes, and not everybody knows both."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dlq_client.inside.relay_line import LineLost
from dlq_common.identity.files import StoredIdentity
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from support.relay_house import CLUSTER, RelayHouse, hear, say


@pytest.fixture
def house() -> Iterator[RelayHouse]:
    with RelayHouse().up() as house:
        yield house


class NextCa:
    """The next CA of the house. As a master does, its relay shows a certificate of the former one,
    and takes both.
    """

    def __init__(self, house: RelayHouse) -> None:
        self._authority = Authority.create(CLUSTER, time.time())
        self.both = house.authority.certificate_pem() + self._authority.certificate_pem()
        house.show(house.authority, roots=self.both)

    def person(self) -> StoredIdentity:
        made = new_key_and_csr("alice")
        signed = self._authority.sign_user(made.request, "alice", Role.USER, time.time())
        return StoredIdentity(made.key, signed, self.both)

    def node(self) -> StoredIdentity:
        made = new_key_and_csr("gpu01")
        signed = self._authority.sign_node(made.request, "gpu01", time.time())
        return StoredIdentity(made.key, signed, self.both)

    def finish(self, house: RelayHouse) -> None:
        """The former one counts for nothing."""
        house.show(self._authority, roots=self._authority.certificate_pem())


def meet(house: RelayHouse, person: StoredIdentity, node: StoredIdentity) -> None:
    """Both come, and speak with each other. Raises LineLost."""
    tickets = house.expect(person)
    answered = house.answered(tickets, node, person)
    caller = house.called(tickets, person).result(60.0)
    say(caller, b"hello")
    assert hear(answered.result(60.0)) == [b"hello"]


def test_ends_that_have_renewed_meet_each_other(house: RelayHouse) -> None:
    after = NextCa(house)
    meet(house, after.person(), after.node())


def test_a_node_that_has_not_heard_of_it_is_told_which_certificate_its_caller_has(
    house: RelayHouse,
) -> None:
    node = house.node()
    meet(house, NextCa(house).person(), node)


def test_a_caller_that_has_not_heard_of_it_does_without_the_relay(house: RelayHouse) -> None:
    person = house.person()
    with pytest.raises(LineLost, match="did not join the line"):
        meet(house, person, NextCa(house).node())


def test_an_open_line_outlives_the_former_ca_and_its_holders_need_new_ones_then(
    house: RelayHouse,
) -> None:
    _, caller, agent = house.joined()
    person, after = house.person(), NextCa(house)
    after.finish(house)
    say(caller, b"still here")
    assert hear(agent) == [b"still here"]
    with pytest.raises(LineLost):
        house.called(house.expect(person), person).result(60.0)
    meet(house, after.person(), after.node())
