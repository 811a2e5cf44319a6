"""The CA's files travel sealed between masters: in order, whole, and never backwards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dlq_common.identity.files import write_private, write_public
from dlq_common.identity.pki import Authority
from dlq_master.rpc.people.authorities import DONE, NEXT, PAIR_KEY, Authorities
from dlq_master.rpc.people.shared_authority import (
    SharedAuthority,
    make_pair_key,
)
from dlq_master.store.batch import CA_FILES

NOW_S = 1.8e9


class Side:
    """One master: its state directory, its CA, and the sharing of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ca = Authorities(path, "lab")
        self.shared = SharedAuthority(path)

    def tell(self, meta: dict[str, str], *, starts: bool = False) -> bool:
        """Store what is new; whether there was anything."""
        word = self.shared.news(meta if starts else None)
        if word is not None:
            meta[CA_FILES] = word
            self.shared.stored(word)
        return word is not None

    def follow(self, meta: dict[str, str]) -> bool:
        changed = self.shared.take(meta)
        self.ca.reload()
        return changed

    def names(self) -> set[str]:
        return {path.name for path in self.path.iterdir()}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Side, Side]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    made = Authority.create("lab", NOW_S)
    write_private(first / "ca.key", made.key_pem())
    write_public(first / "ca.crt", made.chain_pem())
    make_pair_key(first)
    shutil.copytree(first, second)
    return Side(first), Side(second)


def test_a_standby_has_each_step_of_a_change(pair: tuple[Side, Side]) -> None:
    leader, standby = pair
    meta: dict[str, str] = {}
    assert leader.tell(meta, starts=True)
    assert not standby.follow(meta), "it has these files already"
    leader.ca.adopt(leader.ca.prepare(NOW_S), "rotate")
    assert leader.tell(meta)
    assert not leader.tell(meta), "it is stored once"
    assert standby.follow(meta)
    assert standby.ca.fingerprints() == leader.ca.fingerprints()
    assert NEXT in standby.names()
    assert standby.ca.trust_digest() == leader.ca.trust_digest()
    leader.ca.finish("finish")
    assert leader.tell(meta)
    assert standby.follow(meta)
    assert standby.ca.next is None
    assert standby.ca.pinned_pem() == leader.ca.pinned_pem()
    assert {NEXT, DONE}.isdisjoint(standby.names())
    assert standby.names() == leader.names()


def test_a_standby_that_was_away_for_a_whole_change_has_it_at_once(
    pair: tuple[Side, Side],
) -> None:
    leader, standby = pair
    meta: dict[str, str] = {}
    leader.tell(meta, starts=True)
    leader.ca.adopt(leader.ca.prepare(NOW_S), "rotate")
    leader.tell(meta)
    leader.ca.finish("finish")
    leader.tell(meta)
    assert standby.follow(meta)
    assert standby.ca.pinned_pem() == leader.ca.pinned_pem()


def test_a_master_that_comes_back_does_not_undo_a_change(pair: tuple[Side, Side]) -> None:
    leader, standby = pair
    meta: dict[str, str] = {}
    leader.tell(meta, starts=True)
    standby.follow(meta)
    standby.ca.adopt(standby.ca.prepare(NOW_S), "rotate")  # it leads now
    standby.tell(meta)
    assert leader.follow(meta), "the former leader starts as a standby"
    assert not leader.tell(meta, starts=True)
    assert leader.ca.fingerprints() == standby.ca.fingerprints()


def test_a_change_that_was_cut_short_before_the_database_had_it_is_stored_by_the_next_lead(
    pair: tuple[Side, Side],
) -> None:
    leader, standby = pair
    meta: dict[str, str] = {}
    leader.tell(meta, starts=True)
    leader.ca.prepare(NOW_S)
    again = Side(leader.path)  # after a crash
    assert not again.follow(meta)
    assert again.ca.next is not None
    assert again.tell(meta, starts=True)
    assert standby.follow(meta)
    assert standby.ca.fingerprints() == again.ca.fingerprints()


def test_the_rows_tell_no_key_and_another_key_opens_nothing(pair: tuple[Side, Side]) -> None:
    leader, standby = pair
    meta: dict[str, str] = {}
    leader.ca.adopt(leader.ca.prepare(NOW_S), "rotate")
    leader.tell(meta, starts=True)
    assert "PRIVATE KEY" not in meta[CA_FILES]
    (standby.path / PAIR_KEY).unlink()
    assert not standby.follow(meta), "without the key nothing is taken"
    make_pair_key(standby.path)
    assert not standby.follow(meta)
    assert standby.ca.next is None


def test_without_a_key_nothing_is_stored(pair: tuple[Side, Side]) -> None:
    leader, _ = pair
    (leader.path / PAIR_KEY).unlink()
    assert leader.shared.news({}) is None
