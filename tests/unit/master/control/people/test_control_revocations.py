"""Revocations are rows: they outlive the master, and go with whom they are about."""

from __future__ import annotations

import math

import pytest

from dlq_common.errors import InvalidRequest, NotFound
from dlq_master.control.stimuli import DeleteUser, Revocation, RevokeCertificates, SetUser
from dlq_master.store.tables.revocations import USER, signing_s
from support.master_harness import ROOT, Master


def revoke(master: Master, subject: str, request_id: str = "") -> Revocation:
    row = master.ask(
        RevokeCertificates(caller=ROOT, request_id=request_id, subject=subject, reason="lost")
    )
    assert isinstance(row, Revocation)
    return row


def add_user(master: Master, name: str, uid: int) -> None:
    master.ask(
        SetUser(caller=ROOT, request_id="", name=name, role="user", uid=uid, gid=uid, groups=())
    )


def test_it_outlives_the_master_and_a_repeat_moves_nothing(master: Master) -> None:
    add_user(master, "alice", 1001)
    row = revoke(master, "user:alice", "r1")
    assert row.good_from_s == math.floor(row.time_s) + 1.0
    master.restart()
    assert dict(master.loop.published.revocations) == {"user:alice": row}
    assert revoke(master, "user:alice", "r1") == row


def test_the_next_certificate_is_signed_so_that_it_is_good(master: Master) -> None:
    add_user(master, "alice", 1001)
    row = revoke(master, "user:alice")
    rows = master.loop.published.revocations
    assert signing_s(rows, USER, "alice", row.time_s) == row.good_from_s
    assert signing_s(rows, USER, "alice", row.time_s + 9.0) == row.time_s + 9.0
    assert signing_s(rows, USER, "bob", row.time_s) == row.time_s


def test_it_goes_with_its_user(master: Master) -> None:
    add_user(master, "alice", 1001)
    revoke(master, "user:alice")
    revoke(master, "serial:1f")
    master.ask(DeleteUser(caller=ROOT, request_id="", name="alice"))
    assert list(master.loop.published.revocations) == ["serial:1f"]


def test_only_who_is_there_can_be_named(master: Master) -> None:
    for subject in ("user:nobody", "node:nowhere"):
        with pytest.raises(NotFound):
            revoke(master, subject)
    for subject in ("serial:", "serial:xyz", f"serial:{41 * 'a'}", "team:vision"):
        with pytest.raises(InvalidRequest):
            revoke(master, subject)
